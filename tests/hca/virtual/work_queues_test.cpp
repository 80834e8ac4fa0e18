// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/work_queues.h"

#include <gtest/gtest.h>

#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

class VirtualWorkQueues : public ::testing::Test {
 protected:
  void SetUp() override {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    cq_ = static_cast<VirtualCq*>(Completions::create(parts_.contexts[0], attr));
    qp_.send_cq = qp_.recv_cq = cq_;
  }
  void TearDown() override { EXPECT_EQ(Completions::destroy(*cq_), 0); }
  Operation& post(std::uint64_t id, bool signalled = true) {
    Operation* const operation = parts_.operations.create();
    operation->wqe = SendWqe{};
    operation->wqe.wr_id = id;
    operation->qp = &qp_;
    operation->source = qp_.number;
    operation->signalled = signalled;
    operation->place = Operation::Place::flying;
    qp_.operations.push_back(operation);
    ++qp_.started;
    return *operation;
  }
  void run() {
    for (Event event; parts_.kernel.next(event);) {
      if (event.kind != EventKind::complete) continue;
      auto& operation = *static_cast<Operation*>(event.object);
      --operation.events;
      if (operation.qp != nullptr) queues_.complete(operation);
    }
  }
  // wr_id and status of what has completed.
  std::vector<std::pair<std::uint64_t, int>> completed() {
    std::vector<std::pair<std::uint64_t, int>> all;
    for (Completion out{}; parts_.completions.take(*cq_, out);)
      all.emplace_back(out.wr_id, out.status);
    return all;
  }
  using All = std::vector<std::pair<std::uint64_t, int>>;

  AdapterParts parts_;
  WorkQueues& queues_ = parts_.work_queues;
  VirtualQp& qp_ = parts_.add_qp(0);
  VirtualCq* cq_ = nullptr;
};

TEST_F(VirtualWorkQueues, CompleteInOrderWhicheverWasAnsweredFirst) {
  Operation &one = post(1), &two = post(2, false), &three = post(3);
  queues_.answered(three);
  run();
  EXPECT_EQ(completed(), All{});
  queues_.answered(one);
  queues_.answered(two);
  run();
  EXPECT_EQ(completed(), (All{{1, IBV_WC_SUCCESS}, {3, IBV_WC_SUCCESS}}));
  EXPECT_TRUE(qp_.operations.empty());
  EXPECT_EQ(qp_.started, 0U);
}

TEST_F(VirtualWorkQueues, AFailureFlushesWhatFollows) {
  Operation& one = post(1);
  post(2, false);
  one.status = IBV_WC_REM_ACCESS_ERR;
  queues_.answered(one);
  run();
  EXPECT_EQ(completed(), (All{{1, IBV_WC_REM_ACCESS_ERR}, {2, IBV_WC_WR_FLUSH_ERR}}));
  EXPECT_EQ(qp_.phase, QpPhase::err);
}

TEST_F(VirtualWorkQueues, ADatagramQueuePairOnlyStopsSending) {
  qp_.kind = QpKind::ud;
  Operation& one = post(1);
  one.status = IBV_WC_LOC_LEN_ERR;
  queues_.answered(one);
  run();
  EXPECT_EQ(qp_.phase, QpPhase::sqe);
}

TEST_F(VirtualWorkQueues, WhatIsForgottenCompletesNothing) {
  queues_.answered(post(1));
  post(2);
  queues_.forget(qp_);
  run();
  EXPECT_EQ(completed(), All{});
  EXPECT_EQ(parts_.qps.find(qp_.number), nullptr);
}

}  // namespace
}  // namespace turnout::hca::test
