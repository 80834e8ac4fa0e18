// SPDX-License-Identifier: BSD-3-Clause
// What is not offered says so, by every call that a program may make of it.
#include <gtest/gtest.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_endpoint.h>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

TEST(Absent, ScalableEndpointsAndTheirContexts) {
  Node node;
  fid_ep* made = nullptr;
  EXPECT_EQ(fi_scalable_ep(node.domain, node.info.get(), &made, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_tx_context(node.ep, 0, nullptr, &made, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_rx_context(node.ep, 0, nullptr, &made, nullptr), -FI_ENOSYS);
  InfoPtr hints = hints_for_all();
  InfoPtr info;
  hints->ep_attr->tx_ctx_cnt = 2;
  EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), -FI_ENODATA);
  EXPECT_EQ(node.info->domain_attr->max_ep_tx_ctx, 1u);
}

TEST(Absent, SharedTransmitContexts) {
  Node node;
  fid_stx* transmit = nullptr;
  fi_tx_attr tx_attr{};
  EXPECT_EQ(fi_stx_context(node.domain, &tx_attr, &transmit, nullptr), -FI_ENOSYS);
  InfoPtr hints = hints_for_all();
  InfoPtr info;
  hints->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
  EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), -FI_ENODATA);
}

TEST(Absent, Collectives) {
  Node node;
  fid_mc* group = nullptr;
  fid_av_set* set = nullptr;
  fi_collective_attr attr{};
  int value = 0, sum = 0;
  EXPECT_EQ(fi_query_collective(node.domain, FI_BARRIER, &attr, 0), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_av_set(node.av, nullptr, &set, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_join_collective(node.ep, FI_ADDR_NOTAVAIL, nullptr, 0, &group, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_barrier(node.ep, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_broadcast(node.ep, &value, 1, nullptr, 0, 0, FI_INT32, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(
      fi_allreduce(node.ep, &value, 1, nullptr, &sum, nullptr, 0, FI_INT32, FI_SUM, 0, nullptr),
      -FI_ENOSYS);
  InfoPtr hints = hints_for_all();
  InfoPtr info;
  hints->caps = FI_COLLECTIVE;
  EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), -FI_ENODATA);
}

// Peer providers share queues, counters and receives here.
TEST(Absent, OtherObjectsOfPeers) {
  Node node;
  fid_eq* eq = nullptr;
  fi_eq_attr eq_attr{};
  eq_attr.flags = FI_PEER;
  EXPECT_EQ(fi_eq_open(node.fabric, &eq_attr, &eq, nullptr), -FI_EINVAL);
  fid_av* av = nullptr;
  fi_av_attr av_attr{};
  av_attr.flags = FI_PEER;
  EXPECT_EQ(fi_av_open(node.domain, &av_attr, &av, nullptr), -FI_EBADFLAGS);
  fid_domain* domain = nullptr;
  EXPECT_EQ(fi_domain2(node.fabric, node.info.get(), &domain, FI_PEER, nullptr), -FI_EOPNOTSUPP);
  fid_ep* ep = nullptr;
  EXPECT_EQ(fi_endpoint2(node.domain, node.info.get(), &ep, FI_PEER, nullptr), -FI_EOPNOTSUPP);
}

TEST(Absent, Multicast) {
  Node node;
  fid_mc* group = nullptr;
  const Address address = node.name();
  EXPECT_EQ(fi_join(node.ep, &address, 0, &group, nullptr), -FI_ENOSYS);
  InfoPtr hints = hints_for_all();
  InfoPtr info;
  hints->caps = FI_MSG | FI_MULTICAST;
  EXPECT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), -FI_ENODATA);
}

}  // namespace
}  // namespace turnout::testing
