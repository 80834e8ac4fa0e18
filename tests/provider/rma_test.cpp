// SPDX-License-Identifier: BSD-3-Clause
// Remote memory, its registration, and counters.
#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>

#include <cstring>
#include <string>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

struct Rma : ::testing::Test {
  PairOfNodes pair;
  Node& a = pair.a;
  Node& b = pair.b;
  char memory[64] = "0123456789";
  fid_mr* mr = nullptr;
  int context = 0;

  void SetUp() override {
    ASSERT_EQ(fi_mr_reg(b.domain, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
                        &mr, nullptr),
              0);
  }
  void TearDown() override {
    if (mr != nullptr) {
      EXPECT_EQ(fi_close(&mr->fid), 0);
    }
    EXPECT_EQ(b.core == nullptr ? 0u : b.core->regions(), 0u);
  }
  [[nodiscard]] std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory) + offset;
  }
  void expect_done(std::uint64_t flags) {
    const auto entry = a.next();
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->flags, flags);
    EXPECT_EQ(entry->op_context, &context);
  }
};

TEST_F(Rma, EveryWayToReadAndWrite) {
  const std::uint64_t key = fi_mr_key(mr);
  EXPECT_NE(key, FI_KEY_NOTAVAIL);
  char out[5] = {};
  ASSERT_EQ(fi_read(a.ep, out, 4, nullptr, pair.to_b, at(2), key, &context), 0);
  expect_done(FI_RMA | FI_READ);
  EXPECT_STREQ(out, "2345");
  const iovec halves[2] = {{out, 1}, {out + 1, 3}};
  ASSERT_EQ(fi_readv(a.ep, halves, nullptr, 2, pair.to_b, at(4), key, &context), 0);
  expect_done(FI_RMA | FI_READ);
  EXPECT_STREQ(out, "4567");
  const fi_rma_iov remote{at(0), 4, key};
  fi_msg_rma msg{};
  msg.msg_iov = halves;
  msg.iov_count = 2;
  msg.addr = pair.to_b;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  msg.context = &context;
  msg.data = 11;
  ASSERT_EQ(fi_readmsg(a.ep, &msg, FI_COMPLETION), 0);
  expect_done(FI_RMA | FI_READ);
  EXPECT_STREQ(out, "0123");
  ASSERT_EQ(fi_write(a.ep, "ab", 2, nullptr, pair.to_b, at(0), key, &context), 0);
  expect_done(FI_RMA | FI_WRITE);
  ASSERT_EQ(fi_writev(a.ep, halves, nullptr, 2, pair.to_b, at(6), key, &context), 0);
  expect_done(FI_RMA | FI_WRITE);
  EXPECT_STREQ(memory, "ab23450123");
  ASSERT_EQ(fi_inject_write(a.ep, "XY", 2, pair.to_b, at(2), key), 0);
  EXPECT_EQ(a.next(), nullptr);
  EXPECT_EQ(b.next(), nullptr) << "without data the target learns nothing";
  ASSERT_EQ(fi_writemsg(a.ep, &msg, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE), 0);
  EXPECT_TRUE(a.core->last_delivery_complete);
  expect_done(FI_RMA | FI_WRITE);
  ASSERT_EQ(fi_writedata(a.ep, "cd", 2, nullptr, 22, pair.to_b, at(4), key, &context), 0);
  expect_done(FI_RMA | FI_WRITE);
  ASSERT_EQ(fi_inject_writedata(a.ep, "ef", 2, 33, pair.to_b, at(8), key), 0);
  EXPECT_STREQ(memory, "0123cd01ef");
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const auto arrived = b.next();
    ASSERT_NE(arrived, nullptr);
    EXPECT_EQ(arrived->flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    EXPECT_EQ(arrived->data, 11 * i);
    EXPECT_EQ(arrived->op_context, nullptr);
  }
}

TEST_F(Rma, WhatDoesNotFitIsRefused) {
  const fi_rma_iov remote[2] = {{at(0), 4, fi_mr_key(mr)}, {at(8), 4, fi_mr_key(mr)}};
  char out[8];
  const iovec part{out, 8};
  fi_msg_rma msg{};
  msg.msg_iov = &part;
  msg.iov_count = 1;
  msg.addr = pair.to_b;
  msg.rma_iov = remote;
  msg.rma_iov_count = 2;
  EXPECT_EQ(fi_readmsg(a.ep, &msg, 0), -FI_EINVAL) << "one remote range only";
  msg.rma_iov_count = 1;
  EXPECT_EQ(fi_writemsg(a.ep, &msg, 0), -FI_EINVAL) << "lengths differ";
  msg.iov_count = 9;
  EXPECT_EQ(fi_writemsg(a.ep, &msg, 0), -FI_EINVAL);
  char big[kInjectLimit + 1] = {};
  EXPECT_EQ(fi_inject_write(a.ep, big, sizeof(big), pair.to_b, at(0), 0), -FI_EINVAL);
}

TEST_F(Rma, ABadKeyIsAnErrorEntry) {
  char out[4];
  ASSERT_EQ(fi_read(a.ep, out, 4, nullptr, pair.to_b, at(0), 1, &context), 0);
  const fi_cq_err_entry error = a.next_error();
  EXPECT_EQ(error.err, FI_EACCES);
  EXPECT_EQ(error.flags, FI_RMA | FI_READ);
  EXPECT_EQ(error.op_context, &context);
}

TEST_F(Rma, ARegionIsTheDomainsAndOutlivesItsEndpoints) {
  const std::uint64_t key = fi_mr_key(mr);
  EXPECT_EQ(fi_close(&b.domain->fid), -FI_EBUSY);
  ASSERT_EQ(fi_close(&b.ep->fid), 0);
  b.ep = nullptr;
  b.core = nullptr;
  EXPECT_EQ(fi_mr_key(mr), key);
}

TEST_F(Rma, EveryWayToRegister) {
  fid_mr* other = nullptr;
  const iovec parts[2] = {{memory, 8}, {memory + 16, 8}};
  ASSERT_EQ(fi_mr_regv(b.domain, parts, 1, FI_REMOTE_READ, 0, 0, 0, &other, nullptr), 0);
  EXPECT_NE(fi_mr_key(other), fi_mr_key(mr));
  EXPECT_NE(fi_mr_desc(other), nullptr);
  EXPECT_EQ(fi_mr_enable(other), 0);
  ASSERT_EQ(fi_mr_bind(other, &b.ep->fid, 0), 0);
  EXPECT_EQ(fi_mr_bind(other, &a.ep->fid, 0), -FI_EDOMAIN);
  EXPECT_EQ(fi_close(&other->fid), 0);
  fi_mr_attr attr{};
  attr.mr_iov = parts;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_WRITE;
  attr.requested_key = 77;
  ASSERT_EQ(fi_mr_regattr(b.domain, &attr, 0, &other), 0);
  EXPECT_NE(fi_mr_key(other), 77u) << "the adapter chooses";
  EXPECT_EQ(fi_close(&other->fid), 0);
  attr.iov_count = 2;
  EXPECT_EQ(fi_mr_regattr(b.domain, &attr, 0, &other), -FI_EINVAL);
  EXPECT_EQ(fi_mr_reg(b.domain, memory, 8, FI_REMOTE_READ, 4, 0, 0, &other, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_mr_reg(b.domain, memory, 8, FI_REMOTE_READ, 0, 0, FI_RMA_PMEM, &other, nullptr),
            -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_reg(b.domain, nullptr, SIZE_MAX, FI_REMOTE_READ, 0, 0, 0, &other, nullptr),
            -FI_EOPNOTSUPP)
      << "the whole address space, as MPICH asks for dynamic windows";
  EXPECT_EQ(fi_mr_reg(b.domain, memory, SIZE_MAX - 8, FI_REMOTE_READ, 0, 0, 0, &other, nullptr),
            -FI_EINVAL);
  faults().registration = Status(Code::over_budget, "no memory for a table of keys");
  EXPECT_EQ(fi_mr_reg(b.domain, memory, 8, FI_REMOTE_READ, 0, 0, 0, &other, nullptr), -FI_ENOMEM);
  EXPECT_EQ(b.core->regions(), 1u);
}

TEST_F(Rma, LocalRegistrationCostsNothing) {
  fid_mr* local = nullptr;
  ASSERT_EQ(fi_mr_reg(b.domain, memory, 8, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 0, 0, &local,
                      nullptr),
            0);
  EXPECT_EQ(b.core->regions(), 1u);
  EXPECT_EQ(fi_close(&local->fid), 0);
}

// As `fi_multi_ep -e rdm` of fabtests and Open MPI's osc rdma over btl ofi ask: one key, whichever
// endpoint of the domain the peer writes to.
TEST(Region, HasOneKeyForAllEndpointsOfItsDomain) {
  NodeOptions options;
  char memory[8] = "abcdefg";
  fid_mr* mr = nullptr;
  InfoPtr hints = hints_for_all(), info;
  ASSERT_EQ(ask(FI_VERSION(1, 17), hints.get(), info), 0);
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  ASSERT_EQ(provider().fabric(info->fabric_attr, &fabric, nullptr), 0);
  ASSERT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_mr_reg(domain, memory, 8, FI_REMOTE_READ, 0, 0, 0, &mr, nullptr), 0)
      << "before there is an endpoint";
  const std::uint64_t key = fi_mr_key(mr);
  {
    options.domain = domain;
    Node first(options), second(options), initiator;
    fid_mr* later = nullptr;
    ASSERT_EQ(fi_mr_reg(domain, memory, 8, FI_REMOTE_READ, 0, 0, 0, &later, nullptr), 0)
        << "with two endpoints";
    EXPECT_EQ(first.core->regions(), 2u);
    EXPECT_EQ(second.core->regions(), 2u);
    ASSERT_EQ(fi_mr_bind(mr, &second.ep->fid, 0), 0);
    EXPECT_EQ(fi_mr_key(mr), key) << "binding it to one takes it from none";
    for (Node* target : {&first, &second}) {
      const fi_addr_t to = initiator.insert(*target);
      for (const std::uint64_t with : {key, fi_mr_key(later)}) {
        char out[8] = {};
        ASSERT_EQ(fi_read(initiator.ep, out, 8, nullptr, to,
                          reinterpret_cast<std::uint64_t>(memory), with, nullptr),
                  0);
        EXPECT_NE(initiator.next(), nullptr);
        EXPECT_STREQ(out, "abcdefg");
      }
    }
    EXPECT_EQ(fi_close(&later->fid), 0);
  }
  EXPECT_EQ(fi_close(&mr->fid), 0);
  EXPECT_EQ(fi_close(&domain->fid), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
  EXPECT_TRUE(LoopbackEndpoint::alive().empty());
}

struct Counting {
  fid_cntr* send = nullptr;
  fid_cntr* recv = nullptr;
  fid_cntr* write = nullptr;
  fid_cntr* remote = nullptr;

  void open(fid_domain* domain, fid_ep* ep) {
    const std::pair<fid_cntr**, std::uint64_t> all[] = {{&send, FI_SEND},
                                                        {&recv, FI_RECV},
                                                        {&write, FI_WRITE | FI_READ},
                                                        {&remote, FI_REMOTE_WRITE}};
    for (const auto& [cntr, flags] : all) {
      fi_cntr_attr attr{};
      ASSERT_EQ(fi_cntr_open(domain, &attr, cntr, nullptr), 0);
      ASSERT_EQ(fi_ep_bind(ep, &(*cntr)->fid, flags), 0);
    }
  }
};

// As Sandia OpenSHMEM does with those of its contexts.
TEST(Counters, MayBeBoundToAnEndpointThatIsEnabled) {
  PairOfNodes pair;
  Counting ca, cb;
  ca.open(pair.a.domain, pair.a.ep);
  cb.open(pair.b.domain, pair.b.ep);
  pair.a.others = {&ca.send->fid, &ca.recv->fid, &ca.write->fid, &ca.remote->fid};
  pair.b.others = {&cb.send->fid, &cb.recv->fid, &cb.write->fid, &cb.remote->fid};
  char in[8] = {};
  ASSERT_EQ(fi_recv(pair.b.ep, in, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_inject(pair.a.ep, "abc", 3, pair.to_b), 0);
  EXPECT_EQ(fi_cntr_read(ca.send), 1u);
  EXPECT_EQ(fi_cntr_read(cb.recv), 1u);
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_reg(pair.b.domain, in, 8, FI_REMOTE_WRITE, 0, 0, 0, &mr, nullptr), 0);
  ASSERT_EQ(fi_inject_writedata(pair.a.ep, "ef", 2, 33, pair.to_b,
                                reinterpret_cast<std::uint64_t>(in), fi_mr_key(mr)),
            0);
  EXPECT_EQ(fi_cntr_read(ca.write), 1u);
  EXPECT_EQ(fi_cntr_read(cb.remote), 1u);
  EXPECT_EQ(fi_close(&mr->fid), 0);
  fid_cq* queue = nullptr;
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  ASSERT_EQ(fi_cq_open(pair.a.domain, &attr, &queue, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(pair.a.ep, &queue->fid, FI_TRANSMIT), -FI_EOPBADSTATE)
      << "queues are bound before";
  EXPECT_EQ(fi_close(&queue->fid), 0);
}

TEST(Counters, CountWhatTheyAreBoundFor) {
  Counting ca, cb;
  NodeOptions options;
  options.before_enable = [&](fid_domain* d, fid_ep* ep) { ca.open(d, ep); };
  Node a(options);
  options.before_enable = [&](fid_domain* d, fid_ep* ep) { cb.open(d, ep); };
  Node b(options);
  a.others = {&ca.send->fid, &ca.recv->fid, &ca.write->fid, &ca.remote->fid};
  b.others = {&cb.send->fid, &cb.recv->fid, &cb.write->fid, &cb.remote->fid};
  const fi_addr_t to_b = a.insert(b);
  char in[8] = {};
  EXPECT_EQ(fi_close(&cb.recv->fid), -FI_EBUSY);
  ASSERT_EQ(fi_recv(b.ep, in, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_inject(a.ep, "abc", 3, to_b), 0);
  EXPECT_EQ(fi_cntr_read(ca.send), 1u) << "injected messages count";
  EXPECT_EQ(fi_cntr_wait(cb.recv, 1, -1), 0);
  EXPECT_EQ(fi_cntr_read(cb.recv), 1u);
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_reg(b.domain, in, 8, FI_REMOTE_WRITE, 0, 0, 0, &mr, nullptr), 0);
  ASSERT_EQ(fi_writedata(a.ep, "x", 1, nullptr, 7, to_b, reinterpret_cast<std::uint64_t>(in),
                         fi_mr_key(mr), nullptr),
            0);
  EXPECT_EQ(fi_cntr_wait(ca.write, 1, -1), 0);
  EXPECT_EQ(fi_cntr_read(cb.remote), 1u);
  // A failure ends the wait for more.
  ASSERT_EQ(fi_write(a.ep, "x", 1, nullptr, to_b, 0, 0, nullptr), 0);
  EXPECT_EQ(fi_cntr_wait(ca.write, 2, -1), -FI_EAVAIL);
  EXPECT_EQ(fi_cntr_readerr(ca.write), 1u);
  EXPECT_EQ(fi_cntr_wait(ca.write, 2, 0), -FI_ETIMEDOUT);
  EXPECT_EQ(fi_cntr_add(ca.write, 5), 0);
  EXPECT_EQ(fi_cntr_read(ca.write), 6u);
  EXPECT_EQ(fi_cntr_set(ca.write, 100), 0);
  EXPECT_EQ(fi_cntr_read(ca.write), 100u);
  EXPECT_EQ(fi_cntr_adderr(ca.write, 1), 0);
  EXPECT_EQ(fi_cntr_readerr(ca.write), 2u);
  EXPECT_EQ(fi_cntr_seterr(ca.write, 0), 0);
  EXPECT_EQ(fi_cntr_readerr(ca.write), 0u);
  EXPECT_EQ(fi_close(&mr->fid), 0);
}

TEST(Counters, ReplaceQueues) {
  Counting counting;
  NodeOptions options;
  options.tx_bind = options.rx_bind = 0;
  options.before_enable = [&](fid_domain* d, fid_ep* ep) { counting.open(d, ep); };
  Node node(options);
  node.others = {&counting.send->fid, &counting.recv->fid, &counting.write->fid,
                 &counting.remote->fid};
  const fi_addr_t self = node.insert(node);
  char in[4] = {};
  ASSERT_EQ(fi_recv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, in), 0);
  ASSERT_EQ(fi_send(node.ep, "abc", 3, nullptr, self, nullptr), 0);
  EXPECT_EQ(fi_cntr_wait(counting.recv, 1, -1), 0);
  EXPECT_STREQ(in, "abc");
  // An error without a queue is counted (and logged), not kept.
  ASSERT_EQ(fi_recv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, in), 0);
  ASSERT_EQ(fi_cancel(&node.ep->fid, in), 0);
  EXPECT_EQ(fi_cntr_wait(counting.recv, 2, 0), -FI_ETIMEDOUT);
  EXPECT_EQ(fi_cntr_readerr(counting.recv), 1u);
}

TEST(Counters, OneThatAnotherReplacedCanBeClosedAfterTheEndpoint) {
  Node node;
  fid_cntr* cntrs[2] = {};
  for (fid_cntr*& cntr : cntrs) {
    fi_cntr_attr attr{};
    ASSERT_EQ(fi_cntr_open(node.domain, &attr, &cntr, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &cntr->fid, FI_SEND), 0);
  }
  ASSERT_EQ(fi_inject(node.ep, "abc", 3, node.insert(node)), 0);
  EXPECT_EQ(fi_cntr_read(cntrs[0]), 0u);
  EXPECT_EQ(fi_cntr_read(cntrs[1]), 1u);
  node.others = {&cntrs[0]->fid, &cntrs[1]->fid};
}

// FI_RMA_EVENT at both ends.
TEST(Counters, CountWhatPeersDoWhereThatIsAskedFor) {
  fid_cntr *reads = nullptr, *writes = nullptr;
  NodeOptions options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
  options.before_enable = [&](fid_domain* domain, fid_ep* ep) {
    fi_cntr_attr attr{};
    ASSERT_EQ(fi_cntr_open(domain, &attr, &reads, nullptr), 0);
    ASSERT_EQ(fi_cntr_open(domain, &attr, &writes, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(ep, &reads->fid, FI_REMOTE_READ), 0);
    ASSERT_EQ(fi_ep_bind(ep, &writes->fid, FI_REMOTE_WRITE), 0);
  };
  Node target(options);
  target.others = {&reads->fid, &writes->fid};
  options.before_enable = nullptr;
  Node initiator(options);
  const fi_addr_t to = initiator.insert(target);
  std::uint64_t memory[2] = {}, word = 7, result = 0;
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_reg(target.domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0,
                      0, &mr, nullptr),
            0);
  const auto at = reinterpret_cast<std::uint64_t>(memory);
  const std::uint64_t key = fi_mr_key(mr);
  ASSERT_EQ(fi_write(initiator.ep, &word, 8, nullptr, to, at, key, nullptr), 0);
  EXPECT_EQ(fi_cntr_read(writes), 1u);
  ASSERT_EQ(fi_read(initiator.ep, &result, 8, nullptr, to, at, key, nullptr), 0);
  EXPECT_EQ(fi_cntr_read(reads), 1u);
  ASSERT_EQ(fi_writedata(initiator.ep, &word, 8, nullptr, 5, to, at, key, nullptr), 0);
  EXPECT_EQ(fi_cntr_read(writes), 2u) << "once, data or not";
  ASSERT_EQ(fi_atomic(initiator.ep, &word, 1, nullptr, to, at, key, FI_UINT64, FI_SUM, nullptr), 0);
  EXPECT_EQ(fi_cntr_read(writes), 3u);
  ASSERT_EQ(fi_fetch_atomic(initiator.ep, &word, 1, nullptr, &result, nullptr, to, at, key,
                            FI_UINT64, FI_SUM, nullptr),
            0);
  EXPECT_EQ(fi_cntr_read(reads), 2u);
  EXPECT_EQ(fi_close(&mr->fid), 0);
}

// Of two regions, one has counters.
TEST(Counters, OfARegionCountWhatPeersDoThere) {
  NodeOptions options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
  Node target(options), initiator(options);
  const fi_addr_t to = initiator.insert(target);
  std::uint64_t memory[2] = {}, word = 7, result = 0;
  fid_mr *counted = nullptr, *other = nullptr;
  ASSERT_EQ(fi_mr_reg(target.domain, memory, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0,
                      FI_RMA_EVENT, &counted, nullptr),
            0);
  ASSERT_EQ(fi_mr_reg(target.domain, memory + 1, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
                      &other, nullptr),
            0);
  fi_cntr_attr attr{};
  fid_cntr *writes = nullptr, *reads = nullptr;
  ASSERT_EQ(fi_cntr_open(target.domain, &attr, &writes, nullptr), 0);
  ASSERT_EQ(fi_cntr_open(target.domain, &attr, &reads, nullptr), 0);
  ASSERT_EQ(fi_mr_bind(counted, &writes->fid, FI_REMOTE_WRITE), 0);
  ASSERT_EQ(fi_mr_bind(counted, &reads->fid, FI_REMOTE_READ), 0);
  EXPECT_EQ(fi_mr_bind(counted, &reads->fid, 0), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_bind(counted, &reads->fid, FI_SEND), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_bind(counted, &target.cq->fid, FI_REMOTE_READ), -FI_ENOSYS);
  EXPECT_EQ(fi_close(&writes->fid), -FI_EBUSY);

  const auto access = [&](std::size_t place, fid_mr* mr) {
    const auto at = reinterpret_cast<std::uint64_t>(memory + place);
    const std::uint64_t key = fi_mr_key(mr);
    ASSERT_EQ(fi_write(initiator.ep, &word, 8, nullptr, to, at, key, nullptr), 0);
    ASSERT_EQ(fi_writedata(initiator.ep, &word, 8, nullptr, 5, to, at, key, nullptr), 0);
    ASSERT_EQ(fi_read(initiator.ep, &result, 8, nullptr, to, at, key, nullptr), 0);
    ASSERT_EQ(fi_atomic(initiator.ep, &word, 1, nullptr, to, at, key, FI_UINT64, FI_SUM, nullptr),
              0);
    ASSERT_EQ(fi_fetch_atomic(initiator.ep, &word, 1, nullptr, &result, nullptr, to, at, key,
                              FI_UINT64, FI_SUM, nullptr),
              0);
  };
  access(1, other);
  EXPECT_EQ(fi_cntr_read(writes), 0u);
  access(0, counted);
  const std::size_t before = target.core->progress_calls;
  EXPECT_EQ(fi_cntr_read(writes), 3u);
  EXPECT_GT(target.core->progress_calls, before) << "no endpoint is bound to it";
  EXPECT_EQ(fi_cntr_read(reads), 2u);

  ASSERT_EQ(fi_mr_bind(counted, &reads->fid, FI_REMOTE_WRITE), 0) << "another one";
  EXPECT_EQ(fi_close(&writes->fid), 0);
  EXPECT_EQ(fi_close(&counted->fid), 0);
  EXPECT_EQ(fi_close(&reads->fid), 0);
  EXPECT_EQ(fi_close(&other->fid), 0);
}

TEST(Counters, OfARegionNeedRemoteEvents) {
  Node node;
  Node elsewhere;
  std::uint64_t word = 0;
  fid_mr* mr = nullptr;
  fi_cntr_attr attr{};
  fid_cntr *own = nullptr, *foreign = nullptr;
  ASSERT_EQ(fi_mr_reg(node.domain, &word, 8, FI_REMOTE_WRITE, 0, 0, 0, &mr, nullptr), 0);
  ASSERT_EQ(fi_cntr_open(node.domain, &attr, &own, nullptr), 0);
  ASSERT_EQ(fi_cntr_open(elsewhere.domain, &attr, &foreign, nullptr), 0);
  EXPECT_EQ(fi_mr_bind(mr, &own->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
  EXPECT_EQ(fi_mr_bind(mr, &foreign->fid, FI_REMOTE_WRITE), -FI_EDOMAIN);
  for (fid* one : {&mr->fid, &own->fid, &foreign->fid}) EXPECT_EQ(fi_close(one), 0);
}

TEST(Counters, RemoteReadsAreNotSeen) {
  NodeOptions options;
  options.before_enable = [](fid_domain* domain, fid_ep* ep) {
    fi_cntr_attr attr{};
    fid_cntr* cntr = nullptr;
    ASSERT_EQ(fi_cntr_open(domain, &attr, &cntr, nullptr), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cntr->fid, FI_REMOTE_READ), -FI_ENOSYS);
    EXPECT_EQ(fi_ep_bind(ep, &cntr->fid, FI_ATOMIC), -FI_EBADFLAGS);
    EXPECT_EQ(fi_close(&cntr->fid), 0);
  };
  Node node(options);
}

}  // namespace
}  // namespace turnout::testing
