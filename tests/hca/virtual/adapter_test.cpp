// SPDX-License-Identifier: BSD-3-Clause
// The parts of an adapter between the port and memory: AdapterContexts, Network, DataMover.
#include <gtest/gtest.h>

#include <cstring>

#include "hca/device/common_objects.h"
#include "hca/virtual/adapter_contexts.h"
#include "hca/virtual/data_mover.h"
#include "hca/virtual/network.h"
#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

TEST(AdapterContexts, AreLimitedAndGivenUpWhereTheirInitiatorWaitsForNothing) {
  AdapterParts parts;
  parts.profile.dc_responder_contexts = 1;
  parts.profile.dc_nack_wait = 10;
  AdapterContexts& contexts = parts.adapter_contexts;
  VirtualQp& target = parts.add_qp(1, QpKind::dct);
  Node& node = parts.processes.node_of(target);
  VirtualQp &one = parts.add_qp(0, QpKind::dci), &two = parts.add_qp(0, QpKind::dci);
  Operation first, second;
  first.source = one.number;
  second.source = two.number;
  first.target = second.target = target.number;
  EXPECT_TRUE(contexts.admit(node, one, first));
  EXPECT_FALSE(contexts.admit(node, two, second));
  EXPECT_EQ(two.nack_wait, 10);
  EXPECT_FALSE(contexts.admit(node, two, second));
  EXPECT_EQ(two.nack_wait, 20);
  EXPECT_EQ(parts.kernel.statistics().dc_nacks, 2U);
  contexts.leave(first);
  contexts.leave(first);  // nothing twice
  EXPECT_TRUE(contexts.admit(node, two, second));
  EXPECT_EQ(node.responders.count(one.number), 0U);
  two.connected = target.number;
  contexts.release(two);
  EXPECT_TRUE(node.responders.empty());
}

TEST(AdapterContexts, OfTwoThatWaitForNothingTheSmallerNumberIsGivenUp) {
  AdapterParts parts;
  parts.profile.dc_responder_contexts = 3;
  VirtualQp& target = parts.add_qp(1, QpKind::dct);
  Node& node = parts.processes.node_of(target);
  VirtualQp* initiators[4];
  Operation operations[4];
  for (std::size_t i = 0; i < 4; ++i) {
    initiators[i] = &parts.add_qp(0, QpKind::dci);
    operations[i].source = initiators[i]->number;
    operations[i].target = target.number;
  }
  for (const std::size_t i : {2U, 1U, 0U}) {
    ASSERT_TRUE(parts.adapter_contexts.admit(node, *initiators[i], operations[i]));
  }
  parts.adapter_contexts.leave(operations[2]);
  parts.adapter_contexts.leave(operations[1]);
  EXPECT_TRUE(parts.adapter_contexts.admit(node, *initiators[3], operations[3]));
  EXPECT_EQ(node.responders.count(initiators[0]->number), 1U) << "an operation of it is under way";
  EXPECT_EQ(node.responders.count(initiators[1]->number), 0U);
  EXPECT_EQ(node.responders.count(initiators[2]->number), 1U);
}

TEST(Network, ANodesLinkServesOneAfterTheOther) {
  AdapterParts parts;
  parts.profile.wire_rate = 1024;  // a picosecond a byte
  parts.profile.wire_packet = 4096;
  parts.profile.wire_hop = 1000;
  parts.profile.wire_loopback = 7;
  Network& network = parts.network;
  VirtualQp &a = parts.add_qp(0), &near = parts.add_qp(0), &far = parts.add_qp(1);
  Operation operation;
  operation.source = a.number;
  operation.target = far.number;
  EXPECT_EQ(network.travel(operation, a, &far, 0, 100, false).tail, 1100);
  EXPECT_FALSE(operation.local);
  EXPECT_EQ(network.travel(operation, a, &far, 0, 100, false).tail, 1200);
  EXPECT_EQ(network.hop(operation), 1000);
  operation.target = near.number;
  EXPECT_EQ(network.travel(operation, a, &near, 5, 100, false).tail, 12);
  EXPECT_TRUE(operation.local);
  EXPECT_EQ(network.hop(operation), 7);
}

class Movers : public ::testing::Test {
 protected:
  void SetUp() override {
    pd_ = make_domain(parts_.contexts[0], 1);
    mr_ = parts_.regions.add(*pd_, memory_, sizeof memory_, 0, IBV_ACCESS_LOCAL_WRITE);
    operation_.wqe.is_inline = true;
    operation_.wqe.length = 4;
    std::memcpy(operation_.wqe.data, "abcd", 4);
    operation_.receive.count = 1;
    receive_into(8, 16);
  }
  void TearDown() override {
    EXPECT_EQ(parts_.regions.remove(*mr_), 0);
    EXPECT_EQ(destroy_domain(*pd_), 0);
  }
  void receive_into(std::uint64_t address, std::uint32_t length) {
    operation_.receive.first = {address, length, mr_->verbs.lkey};
    operation_.receive.room = length;
  }
  AdapterParts parts_;
  Pd* pd_ = nullptr;
  Mr* mr_ = nullptr;
  char memory_[64] = {};
  DataMover& data_ = parts_.data;
  Operation operation_;
  Completion entry_{};
};

TEST_F(Movers, FillAReceive) {
  data_.to_receive(operation_, entry_);
  EXPECT_EQ(entry_.byte_len, 4U);
  EXPECT_EQ(entry_.status, IBV_WC_SUCCESS);
  EXPECT_STREQ(memory_ + 8, "abcd");
}

TEST_F(Movers, LeaveAReceiveThatIsTooSmallOrNotRegistered) {
  receive_into(8, 3);
  data_.to_receive(operation_, entry_);
  EXPECT_EQ(entry_.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(operation_.status, IBV_WC_REM_INV_REQ_ERR);
  receive_into(62, 16);
  data_.to_receive(operation_, entry_);
  EXPECT_EQ(entry_.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(operation_.status, IBV_WC_REM_OP_ERR);
}

TEST_F(Movers, PlaceAPartOfTheData) {
  data_.place(operation_, reinterpret_cast<std::uint8_t*>(memory_), 2, 4);
  EXPECT_EQ(std::memcmp(memory_, "\0\0cd", 4), 0);
}

TEST_F(Movers, CopyBackWhatWasReadUnlessTheRegionIsGone) {
  operation_.wqe.is_inline = false;
  operation_.wqe.num_sge = 1;
  operation_.wqe.sge[0] = {4, 4, mr_->verbs.lkey};
  operation_.copy = {'w', 'x', 'y', 'z'};
  EXPECT_TRUE(data_.copy_back(operation_));
  EXPECT_STREQ(memory_ + 4, "wxyz");
  operation_.wqe.sge[0].lkey += 1;
  EXPECT_FALSE(data_.copy_back(operation_));
}

}  // namespace
}  // namespace turnout::hca::test
