// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/receive_cost.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

TEST(ReceiveCost, MeasuresARoundInSixtyFourMessages) {
  ReceiveCost cost;
  EXPECT_FALSE(cost.due(7));
  EXPECT_TRUE(cost.due(8));  // more often at first
  cost.add(ChannelKind::rc_rdma, 300, 3, 10);
  EXPECT_FALSE(cost.due(17));
  EXPECT_TRUE(cost.due(18));
  // What another program took is no message's price, and still this round is over.
  cost.add(ChannelKind::rc_rdma, ReceiveCost::kInterrupted + 1, 1, 20);
  EXPECT_FALSE(cost.due(27));
  cost.add(ChannelKind::rc_rdma, 6100, 61, 90);
  cost.add(ChannelKind::rc_rdma, 100, 1, 100);
  EXPECT_FALSE(cost.due(163));
  EXPECT_TRUE(cost.due(164));
  ASSERT_EQ(cost.lines().size(), 1u);
  EXPECT_EQ(cost.lines()[0].channel, ChannelKind::rc_rdma);
  EXPECT_EQ(cost.lines()[0].messages, 65u);
  EXPECT_DOUBLE_EQ(cost.lines()[0].mean, 100);
}

TEST(ReceiveCost, OverDcSendrecvPostingTheReceivesCountsToo) {
  ReceiveCost cost;
  cost.open(500, 2);
  EXPECT_TRUE(cost.is_open());
  cost.close(100, 64);
  EXPECT_FALSE(cost.is_open());
  EXPECT_DOUBLE_EQ(cost.lines()[0].mean, 300);
}

TEST(ReceiveCost, AGainNeedsTwoSamplesOfSomeSize) {
  ReceiveCost cost;
  cost.open(3000, 15);
  cost.close(0, 64);
  cost.add(ChannelKind::dc_rdma, 1600, 16, 128);
  EXPECT_FALSE(cost.gain(ChannelKind::dc_rdma).has_value());
  cost.open(200, 1);
  cost.close(0, 192);
  EXPECT_EQ(cost.gain(ChannelKind::dc_rdma), 100);
  EXPECT_FALSE(cost.gain(ChannelKind::rc_rdma).has_value());
  EXPECT_FALSE(cost.gain(ChannelKind::dc_sendrecv).has_value());  // against itself
}

}  // namespace
}  // namespace turnout
