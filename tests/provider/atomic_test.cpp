// SPDX-License-Identifier: BSD-3-Clause
// The atomic calls: every way to make one, what is answered about them, what does not fit.
#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

struct Atomics : ::testing::Test {
  PairOfNodes pair;
  Node& a = pair.a;
  Node& b = pair.b;
  std::array<std::int64_t, 8> memory{10, 20, 30, 40, 50, 60, 70, 80};
  fid_mr* mr = nullptr;
  int context = 0;

  void SetUp() override {
    ASSERT_EQ(fi_mr_reg(b.domain, memory.data(), sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE,
                        0, 0, 0, &mr, nullptr),
              0);
  }
  void TearDown() override { EXPECT_EQ(fi_close(&mr->fid), 0); }
  [[nodiscard]] std::uint64_t at(std::size_t i) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + i);
  }
  [[nodiscard]] std::uint64_t key() const { return fi_mr_key(mr); }
  void expect_done(std::uint64_t access) {
    const auto entry = a.next();
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->flags, FI_ATOMIC | access);
    EXPECT_EQ(entry->op_context, &context);
  }
  fi_msg_atomic message(const fi_ioc* iov, std::size_t count, const fi_rma_ioc* remote, fi_op op) {
    fi_msg_atomic msg{};
    msg.msg_iov = iov;
    msg.iov_count = count;
    msg.addr = pair.to_b;
    msg.rma_iov = remote;
    msg.rma_iov_count = 1;
    msg.datatype = FI_INT64;
    msg.op = op;
    msg.context = &context;
    msg.data = 77;
    return msg;
  }
};

TEST_F(Atomics, EveryWayToUpdate) {
  std::int64_t one[2] = {1, 2};
  ASSERT_EQ(fi_atomic(a.ep, one, 2, nullptr, pair.to_b, at(0), key(), FI_INT64, FI_SUM, &context),
            0);
  expect_done(FI_WRITE);
  EXPECT_EQ(memory[0], 11);
  EXPECT_EQ(memory[1], 22);
  const fi_ioc halves[2] = {{one, 1}, {one + 1, 1}};
  ASSERT_EQ(
      fi_atomicv(a.ep, halves, nullptr, 2, pair.to_b, at(0), key(), FI_INT64, FI_PROD, &context),
      0);
  expect_done(FI_WRITE);
  EXPECT_EQ(memory[0], 11);
  EXPECT_EQ(memory[1], 44);
  ASSERT_EQ(fi_inject_atomic(a.ep, one, 1, pair.to_b, at(2), key(), FI_INT64, FI_SUM), 0);
  EXPECT_EQ(a.next(), nullptr);
  EXPECT_EQ(memory[2], 31);
  const fi_rma_ioc remote{at(3), 2, key()};
  const fi_msg_atomic msg = message(halves, 2, &remote, FI_ATOMIC_WRITE);
  ASSERT_EQ(fi_atomicmsg(a.ep, &msg, FI_INJECT | FI_DELIVERY_COMPLETE), 0);
  expect_done(FI_WRITE);
  EXPECT_EQ(memory[3], 1);
  EXPECT_EQ(memory[4], 2);
  EXPECT_EQ(b.next(), nullptr) << "without data the target learns nothing";
  ASSERT_EQ(fi_atomicmsg(a.ep, &msg, FI_REMOTE_CQ_DATA), 0);
  expect_done(FI_WRITE);
  const auto told = b.next();
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(told->flags, FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(told->data, 77u);
}

TEST_F(Atomics, EveryWayToFetch) {
  std::int64_t one[2] = {1, 2}, result[2] = {};
  ASSERT_EQ(fi_fetch_atomic(a.ep, one, 2, nullptr, result, nullptr, pair.to_b, at(0), key(),
                            FI_INT64, FI_SUM, &context),
            0);
  expect_done(FI_READ);
  EXPECT_EQ(result[0], 10);
  EXPECT_EQ(result[1], 20);
  EXPECT_EQ(memory[1], 22);
  fi_ioc results[2] = {{result + 1, 1}, {result, 1}};
  const fi_ioc operands{one, 2};
  ASSERT_EQ(fi_fetch_atomicv(a.ep, &operands, nullptr, 1, results, nullptr, 2, pair.to_b, at(0),
                             key(), FI_INT64, FI_ATOMIC_WRITE, &context),
            0);
  expect_done(FI_READ);
  EXPECT_EQ(result[1], 11);
  EXPECT_EQ(result[0], 22);
  EXPECT_EQ(memory[0], 1);
  // There are no operands to read with.
  ASSERT_EQ(fi_fetch_atomic(a.ep, nullptr, 2, nullptr, result, nullptr, pair.to_b, at(2), key(),
                            FI_INT64, FI_ATOMIC_READ, &context),
            0);
  expect_done(FI_READ);
  EXPECT_EQ(result[0], 30);
  EXPECT_EQ(result[1], 40);
  const fi_rma_ioc remote{at(4), 2, key()};
  fi_msg_atomic msg = message(nullptr, 0, &remote, FI_ATOMIC_READ);
  ASSERT_EQ(fi_fetch_atomicmsg(a.ep, &msg, results, nullptr, 2, 0), 0);
  expect_done(FI_READ);
  EXPECT_EQ(result[1], 50);
  EXPECT_EQ(result[0], 60);
  EXPECT_EQ(fi_fetch_atomicmsg(a.ep, &msg, results, nullptr, 2, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
  // What is passed for operands is not looked at.
  const auto* nowhere = reinterpret_cast<const fi_ioc*>(sizeof(fi_ioc));
  msg = message(nowhere, 2, &remote, FI_ATOMIC_READ);
  ASSERT_EQ(fi_fetch_atomicmsg(a.ep, &msg, results, nullptr, 2, 0), 0);
  expect_done(FI_READ);
  ASSERT_EQ(fi_fetch_atomicv(a.ep, nowhere, nullptr, 2, results, nullptr, 2, pair.to_b, at(4),
                             key(), FI_INT64, FI_ATOMIC_READ, &context),
            0);
  expect_done(FI_READ);
}

TEST_F(Atomics, EveryWayToCompare) {
  std::int64_t operand[2] = {1, 2}, compare[2] = {10, 0}, result[2] = {};
  ASSERT_EQ(fi_compare_atomic(a.ep, operand, 2, nullptr, compare, nullptr, result, nullptr,
                              pair.to_b, at(0), key(), FI_INT64, FI_CSWAP, &context),
            0);
  expect_done(FI_READ);
  EXPECT_EQ(memory[0], 1);
  EXPECT_EQ(memory[1], 20);
  EXPECT_EQ(result[0], 10);
  EXPECT_EQ(result[1], 20);
  const fi_ioc operands{operand, 2}, compares[2] = {{compare, 1}, {compare + 1, 1}};
  fi_ioc results{result, 2};
  ASSERT_EQ(fi_compare_atomicv(a.ep, &operands, nullptr, 1, compares, nullptr, 2, &results, nullptr,
                               1, pair.to_b, at(0), key(), FI_INT64, FI_CSWAP_LE, &context),
            0);
  expect_done(FI_READ);
  EXPECT_EQ(memory[0], 1) << "10 <= 1 does not hold";
  EXPECT_EQ(memory[1], 2) << "0 <= 20 does";
  const fi_rma_ioc remote{at(2), 2, key()};
  fi_msg_atomic msg = message(&operands, 1, &remote, FI_MSWAP);
  compare[0] = 0xf;
  ASSERT_EQ(
      fi_compare_atomicmsg(a.ep, &msg, compares, nullptr, 2, &results, nullptr, 1, FI_COMPLETION),
      0);
  expect_done(FI_READ);
  EXPECT_EQ(memory[2], 0x11);
  EXPECT_EQ(memory[3], 40);
}

TEST_F(Atomics, WhatDoesNotFitIsRefused) {
  std::array<std::int64_t, 33> many{};
  std::int64_t result[2];
  EXPECT_EQ(
      fi_atomic(a.ep, many.data(), 33, nullptr, pair.to_b, at(0), key(), FI_INT64, FI_SUM, nullptr),
      -FI_EINVAL);
  EXPECT_EQ(
      fi_atomic(a.ep, many.data(), 0, nullptr, pair.to_b, at(0), key(), FI_INT64, FI_SUM, nullptr),
      -FI_EINVAL);
  EXPECT_EQ(
      fi_atomic(a.ep, many.data(), 1, nullptr, pair.to_b, at(0), key(), FI_DOUBLE, FI_BOR, nullptr),
      -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_fetch_atomic(a.ep, many.data(), 1, nullptr, result, nullptr, pair.to_b, at(0), key(),
                            FI_INT64, FI_CSWAP, nullptr),
            -FI_EOPNOTSUPP);
  const fi_ioc two{many.data(), 2}, huge[2] = {{many.data(), SIZE_MAX}, {many.data(), 2}};
  fi_ioc one{result, 1};
  EXPECT_EQ(fi_fetch_atomicv(a.ep, &two, nullptr, 1, &one, nullptr, 1, pair.to_b, at(0), key(),
                             FI_INT64, FI_SUM, nullptr),
            -FI_EINVAL)
      << "a result of another length";
  EXPECT_EQ(fi_compare_atomicv(a.ep, &two, nullptr, 1, &one, nullptr, 1, &one, nullptr, 1,
                               pair.to_b, at(0), key(), FI_INT64, FI_CSWAP, nullptr),
            -FI_EINVAL);
  EXPECT_EQ(fi_atomicv(a.ep, huge, nullptr, 2, pair.to_b, at(0), key(), FI_INT64, FI_SUM, nullptr),
            -FI_EINVAL);
  EXPECT_EQ(fi_atomicv(a.ep, huge, nullptr, 9, pair.to_b, at(0), key(), FI_INT64, FI_SUM, nullptr),
            -FI_EINVAL);
  const fi_rma_ioc remote[2] = {{at(0), 1, key()}, {at(1), 1, key()}};
  fi_msg_atomic msg = message(&two, 1, remote, FI_SUM);
  EXPECT_EQ(fi_atomicmsg(a.ep, &msg, 0), -FI_EINVAL) << "lengths differ";
  msg.rma_iov_count = 2;
  EXPECT_EQ(fi_atomicmsg(a.ep, &msg, 0), -FI_EINVAL) << "one remote range only";
  EXPECT_EQ(fi_atomicmsg(a.ep, &msg, FI_FENCE), -FI_EBADFLAGS);
  EXPECT_EQ(a.next(), nullptr);
}

TEST_F(Atomics, ABadKeyIsAnErrorEntry) {
  std::int64_t one = 1;
  ASSERT_EQ(fi_atomic(a.ep, &one, 1, nullptr, pair.to_b, at(0), 1, FI_INT64, FI_SUM, &context), 0);
  const fi_cq_err_entry error = a.next_error();
  EXPECT_EQ(error.err, FI_EACCES);
  EXPECT_EQ(error.flags, FI_ATOMIC | FI_WRITE);
  EXPECT_EQ(error.op_context, &context);
}

TEST_F(Atomics, ValidAndQueryAgreeForEveryTypeAndOperation) {
  std::size_t supported = 0;
  for (int type = 0; type < FI_DATATYPE_LAST + 2; ++type) {
    for (int op = 0; op < FI_ATOMIC_OP_LAST; ++op) {
      const auto t = static_cast<fi_datatype>(type);
      const auto o = static_cast<fi_op>(op);
      std::size_t count = 0;
      const auto same = [&](int valid, std::uint64_t flags) {
        fi_atomic_attr attr{};
        EXPECT_EQ(fi_query_atomic(a.domain, t, o, &attr, flags), valid);
        if (valid != 0) {
          EXPECT_EQ(valid, -FI_EOPNOTSUPP);
          return;
        }
        ++supported;
        EXPECT_EQ(attr.count, count);
        EXPECT_GE(count, 4u);
        EXPECT_LE(count * attr.size, kAtomicLimit);
      };
      same(fi_atomicvalid(a.ep, t, o, &count), 0);
      same(fi_fetch_atomicvalid(a.ep, t, o, &count), FI_FETCH_ATOMIC);
      same(fi_compare_atomicvalid(a.ep, t, o, &count), FI_COMPARE_ATOMIC);
    }
  }
  EXPECT_EQ(supported, 2u * (8 * 11 + 3 * 8 + 3 * 6) + 14 + 8 * 7 + 3 * 6 + 3 * 2);
  fi_atomic_attr attr{};
  EXPECT_EQ(fi_query_atomic(a.domain, FI_INT64, FI_SUM, &attr, 0), 0);
  EXPECT_EQ(attr.size, 8u);
  EXPECT_EQ(attr.count, 32u);
  EXPECT_EQ(fi_query_atomic(a.domain, FI_INT64, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
  EXPECT_EQ(attr.count, 16u);
  EXPECT_EQ(
      fi_query_atomic(a.domain, FI_INT64, FI_CSWAP, &attr, FI_COMPARE_ATOMIC | FI_FETCH_ATOMIC),
      -FI_EBADFLAGS);
  EXPECT_EQ(fi_query_atomic(a.domain, FI_INT64, FI_SUM, &attr, FI_TAGGED), -FI_EBADFLAGS);
}

TEST(AtomicCapability, WithoutItThereAreNone) {
  NodeOptions options;
  options.caps = FI_MSG | FI_RMA;
  Node node(options);
  std::size_t count = 0;
  std::int64_t x = 0;
  fi_atomic_attr attr{};
  EXPECT_EQ(fi_atomicvalid(node.ep, FI_INT64, FI_SUM, &count), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_query_atomic(node.domain, FI_INT64, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_atomic(node.ep, &x, 1, nullptr, 0, 0, 0, FI_INT64, FI_SUM, nullptr), -FI_EOPNOTSUPP);
}

TEST(AtomicCapability, BeforeTheEndpointIsEnabledOnlyQuestionsAreAnswered) {
  NodeOptions options;
  options.before_enable = [](fid_domain*, fid_ep* ep) {
    std::size_t count = 0;
    std::int64_t x = 0;
    EXPECT_EQ(fi_atomicvalid(ep, FI_INT64, FI_SUM, &count), 0);
    EXPECT_EQ(fi_atomic(ep, &x, 1, nullptr, 0, 0, 0, FI_INT64, FI_SUM, nullptr), -FI_EOPBADSTATE);
  };
  Node node(options);
}

// Updates count as writes, fetches as reads; the target counts what came with data.
TEST(AtomicCounters, CountWhatTheyAreBoundFor) {
  struct Bound {
    fid_cntr* reads = nullptr;
    fid_cntr* writes = nullptr;
    fid_cntr* remote = nullptr;
    void open(fid_domain* domain, fid_ep* ep) {
      for (const auto& [cntr, flags] : {std::pair<fid_cntr**, std::uint64_t>{&reads, FI_READ},
                                        {&writes, FI_WRITE},
                                        {&remote, FI_REMOTE_WRITE}}) {
        fi_cntr_attr attr{};
        ASSERT_EQ(fi_cntr_open(domain, &attr, cntr, nullptr), 0);
        ASSERT_EQ(fi_ep_bind(ep, &(*cntr)->fid, flags), 0);
      }
    }
  } bound;
  NodeOptions options;
  options.tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
  options.before_enable = [&](fid_domain* domain, fid_ep* ep) { bound.open(domain, ep); };
  Node node(options);
  node.others = {&bound.reads->fid, &bound.writes->fid, &bound.remote->fid};
  const fi_addr_t self = node.insert(node);
  std::int64_t word = 5, one = 1, result = 0;
  fid_mr* mr = nullptr;
  ASSERT_EQ(
      fi_mr_reg(node.domain, &word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, nullptr), 0);
  const auto address = reinterpret_cast<std::uint64_t>(&word);
  ASSERT_EQ(
      fi_atomic(node.ep, &one, 1, nullptr, self, address, fi_mr_key(mr), FI_INT64, FI_SUM, nullptr),
      0);
  ASSERT_EQ(fi_inject_atomic(node.ep, &one, 1, self, address, fi_mr_key(mr), FI_INT64, FI_SUM), 0);
  ASSERT_EQ(fi_fetch_atomic(node.ep, &one, 1, nullptr, &result, nullptr, self, address,
                            fi_mr_key(mr), FI_INT64, FI_SUM, nullptr),
            0);
  EXPECT_EQ(fi_cntr_wait(bound.writes, 2, -1), 0);
  EXPECT_EQ(fi_cntr_read(bound.reads), 1u);
  EXPECT_EQ(fi_cntr_read(bound.remote), 0u);
  EXPECT_EQ(result, 7);
  EXPECT_EQ(node.next(), nullptr) << "completions were not asked for";
  const fi_ioc operand{&one, 1};
  const fi_rma_ioc remote{address, 1, fi_mr_key(mr)};
  fi_msg_atomic msg{};
  msg.msg_iov = &operand;
  msg.iov_count = 1;
  msg.addr = self;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  msg.datatype = FI_INT64;
  msg.op = FI_SUM;
  msg.context = &one;
  ASSERT_EQ(fi_atomicmsg(node.ep, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA), 0);
  EXPECT_EQ(fi_cntr_wait(bound.writes, 3, -1), 0);
  EXPECT_EQ(fi_cntr_read(bound.remote), 1u);
  for (const std::uint64_t access : {FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, FI_WRITE}) {
    const auto entry = node.next();
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->flags, FI_ATOMIC | access);
  }
  EXPECT_EQ(fi_close(&mr->fid), 0);
}

}  // namespace
}  // namespace turnout::testing
