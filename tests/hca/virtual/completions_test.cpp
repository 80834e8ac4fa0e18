// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/completions.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

class VirtualCompletions : public ::testing::Test {
 protected:
  void SetUp() override {
    channel_ = Completions::create_channel(parts_.contexts[0]);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 2;
    attr.channel = &channel_->verbs;
    cq_ = static_cast<VirtualCq*>(Completions::create(parts_.contexts[0], attr));
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(Completions::destroy_channel(*channel_), EBUSY);
    EXPECT_EQ(Completions::destroy(*cq_), 0);
    EXPECT_EQ(Completions::destroy_channel(*channel_), 0);
    EXPECT_EQ(parts_.contexts[0].users.load(), 0U);
  }
  void push(std::uint32_t qpn, bool solicited = false) {
    Completion entry{};
    entry.qpn = qpn;
    entry.wr_id = qpn;
    parts_.completions.push(cq_, entry, solicited);
  }
  AdapterParts parts_;
  Channel* channel_ = nullptr;
  VirtualCq* cq_ = nullptr;
  Completion out_{};
};

TEST_F(VirtualCompletions, ComeInOrderAndWakeTheirProcess) {
  EXPECT_FALSE(may_have_entry(*cq_));
  push(7);
  push(8);
  EXPECT_TRUE(may_have_entry(*cq_));
  EXPECT_EQ(parts_.woken.size(), 2U);
  ASSERT_TRUE(parts_.completions.take(*cq_, out_));
  EXPECT_EQ(out_.wr_id, 7U);
  ASSERT_TRUE(parts_.completions.take(*cq_, out_));
  EXPECT_EQ(out_.wr_id, 8U);
  EXPECT_FALSE(parts_.completions.take(*cq_, out_));
  EXPECT_FALSE(may_have_entry(*cq_));
}

TEST_F(VirtualCompletions, OfAQueuePairThatIsForgottenAreSkipped) {
  push(7);
  push(8);
  VirtualQp qp;
  qp.number = 7;
  qp.send_cq = qp.recv_cq = cq_;
  Completions::forget(qp);
  ASSERT_TRUE(parts_.completions.take(*cq_, out_));
  EXPECT_EQ(out_.wr_id, 8U);
}

TEST_F(VirtualCompletions, TooManyMakeTheQueueUnusable) {
  for (std::uint32_t i = 0; i < 3; ++i) push(i);
  EXPECT_EQ(parts_.completions.idle(*cq_), -1);
  (void)parts_.next();
  ibv_async_event event{};
  EXPECT_EQ(parts_.events.take(parts_.contexts[0], event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
}

TEST_F(VirtualCompletions, AnArmedQueueTellsItsChannelOnce) {
  ibv_cq* which = nullptr;
  void* context = nullptr;
  EXPECT_EQ(Completions::request_notify(*cq_, true), 0);
  push(1);
  EXPECT_EQ(Completions::get_event(*channel_, &which, &context), EAGAIN);
  push(2, true);
  EXPECT_EQ(Completions::get_event(*channel_, &which, &context), 0);
  EXPECT_EQ(which, ibv_cq_ex_to_cq(&cq_->verbs));
  EXPECT_EQ(Completions::get_event(*channel_, &which, &context), EAGAIN);
}

TEST_F(VirtualCompletions, ASmallerQueueMustHoldWhatIsThere) {
  push(1);
  push(2);
  EXPECT_EQ(Completions::resize(*cq_, 1), EINVAL);
  EXPECT_EQ(Completions::resize(*cq_, 5), 0);
}

}  // namespace
}  // namespace turnout::hca::test
