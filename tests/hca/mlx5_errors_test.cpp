// SPDX-License-Identifier: BSD-3-Clause
// The emulated mlx5 device where things go wrong: retries, errors and flushes, requests that cannot
// be read, overruns, and the events that tell of all this.
#include <string>
#include <thread>

#include "tests/hca/mlx5_library.h"

namespace turnout::hca::test {
namespace {

class Mlx5Errors : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

constexpr std::size_t kHere = 0, kThere = 32768;

TEST_F(Mlx5Errors, AReceiveThatComesLate) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  l.memory.put(kHere, "in time");
  p.a.post(p.send(kHere, 7));
  // Behind it, and none overtakes.
  p.a.post(
      Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(l.memory.address(kThere), l.mr.rkey).inline_data("w"));
  mlx5_cqe64 e;
  EXPECT_FALSE(p.send_cq.poll(e));
  EXPECT_EQ(l.memory.text(kThere, 1), std::string_view("\0", 1));
  p.b.receive(l.memory.address(kThere + 64), 64, l.mr.lkey);
  EXPECT_EQ(counter_of(p.send_cq.wait()), 0);
  EXPECT_EQ(counter_of(p.send_cq.wait()), 1);
  EXPECT_EQ(opcode_of(p.receive_cq.wait()), MLX5_CQE_RESP_SEND);
  EXPECT_EQ(l.memory.text(kThere + 64, 7), "in time");
}

TEST_F(Mlx5Errors, AReceiveThatDoesNotCome) {
  ConnectOptions connection;
  connection.rnr_retry = 2;
  Mlx5Pair p({}, connection);
  p.a.put(p.send(kHere, 7));
  p.a.post(p.send(kHere, 7));
  mlx5_cqe64 e = p.send_cq.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_REQ_ERR);
  EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(counter_of(e), 0);
  EXPECT_EQ(be32toh(e.sop_drop_qpn), std::uint32_t{MLX5_OPCODE_SEND} << 24 | p.a.number);
  EXPECT_EQ(be32toh(e.srqn_uidx) & 0xff'ffff, p.a.user_index);
  e = p.send_cq.wait();
  EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(counter_of(e), 1);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.b.state(), IBV_QPS_RTS);
}

TEST_F(Mlx5Errors, APeerThatIsDestroyed) {
  ConnectOptions connection;
  connection.timeout = 1;
  connection.retry_cnt = 2;
  Mlx5Pair p({}, connection);
  EXPECT_EQ(p.b.destroy(), 0);
  EXPECT_EQ(p.syndrome(p.send(kHere, 7)), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  EXPECT_EQ(p.syndrome(p.send(kHere, 7)), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

TEST_F(Mlx5Errors, BothQueuesAreFlushed) {
  Mlx5QpOptions options;
  options.receives = 256;
  Mlx5Pair p(options);
  Mlx5Library& l = p.library;
  Mlx5CompletionQueue& cq = p.receive_cq;
  std::uint16_t expected = 0;
  const auto flushed = [&](unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const mlx5_cqe64 e = cq.wait();
      ASSERT_EQ(opcode_of(e), MLX5_CQE_RESP_ERR);
      ASSERT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
      ASSERT_EQ(counter_of(e), expected++);
    }
  };
  for (int i = 0; i < 8; ++i) p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  ASSERT_EQ(p.b.modify(IBV_QPS_ERR), 0);
  flushed(8);
  // What is posted from now on, too: nothing tells the device of it.
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
    flushed(5);
  }
  p.b.put(p.send(kHere, 7));
  p.b.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  for (std::uint16_t i = 0; i < 2; ++i) {
    const mlx5_cqe64 e = p.send_cq.wait();
    EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    EXPECT_EQ(counter_of(e), i);
  }
  // From RESET all begins at 0, and works.
  ASSERT_EQ(p.b.modify(IBV_QPS_RESET), 0);
  ASSERT_EQ(p.a.modify(IBV_QPS_RESET), 0);
  p.a.connect(p.b.number);
  p.b.connect(p.a.number);
  p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  EXPECT_EQ(p.syndrome(p.send(kHere, 7)), 0);
  EXPECT_EQ(counter_of(cq.wait()), 0);
}

// More receives than the device looks ahead, and more than the completion queue could take at once.
TEST_F(Mlx5Errors, ManyReceivesAreFlushed) {
  Mlx5Library l;
  Mlx5CompletionQueue received(l, 2048, 64, -1, false);
  Mlx5QpOptions options;
  options.receives = 1024;
  options.receive_cq = &received;
  Mlx5QueuePair a(l, options), b(l, options);
  a.connect(b.number);
  b.connect(a.number);
  for (int i = 0; i < 1024; ++i) b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  ASSERT_EQ(b.modify(IBV_QPS_ERR), 0);
  for (std::uint16_t i = 0; i < 1024; ++i) {
    const mlx5_cqe64 e = received.wait();
    ASSERT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    ASSERT_EQ(counter_of(e), i);
  }
}

// The device looks at a failed queue pair's receives now and then: they may have gone.
TEST_F(Mlx5Errors, MemoryThatGoesBeforeItsQueuePair) {
  Mlx5Library l;
  Mlx5QueuePair a(l), b(l);
  a.connect(b.number);
  b.connect(a.number);
  ASSERT_EQ(a.modify(IBV_QPS_ERR), 0);
  ASSERT_EQ(b.modify(IBV_QPS_ERR), 0);
  a.drop_memory();
  for (std::uint16_t i = 0; i < 3; ++i) {
    b.receive(l.memory.address(kThere), 64, l.mr.lkey);
    EXPECT_EQ(counter_of(l.cq.front().wait()), i);
  }
  EXPECT_EQ(a.destroy(), 0);
}

TEST_F(Mlx5Errors, WhatMayNotBe) {
  struct Case {
    const char* what;
    std::uint8_t expected;
    std::function<Mlx5Wqe(Mlx5Pair&)> request;
  };
  const auto there = [](Mlx5Pair& p) { return p.library.memory.address(kThere); };
  const auto here = [](Mlx5Pair& p) { return p.library.memory.address(kHere); };
  const std::string kilobyte(1000, 'x');
  const Case cases[] = {
      {"a local key that is none", MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_SEND).data(here(p), 8, p.library.mr.lkey + 1);
       }},
      {"the key of inline data", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [&](Mlx5Pair& p) { return Mlx5Wqe(MLX5_OPCODE_SEND).data(here(p), 8, 0xffff'ffff); }},
      {"behind the region's end", MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_SEND).data(here(p) + (1U << 16) - 7, 8, p.library.mr.lkey);
       }},
      {"a remote key that is none", MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE)
             .remote(there(p), p.library.mr.rkey + 1)
             .inline_data("x");
       }},
      {"an atomic that is not aligned", MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA)
             .remote(there(p) + 4, p.library.mr.rkey)
             .atomic(1)
             .data(here(p), 8, p.library.mr.lkey);
       }},
      {"an atomic of four bytes", MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA)
             .remote(there(p), p.library.mr.rkey)
             .atomic(1)
             .data(here(p), 4, p.library.mr.lkey);
       }},
      {"a read into the send queue", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_RDMA_READ).remote(there(p), p.library.mr.rkey).inline_data("x");
       }},
      {"a read whose end lies in the send queue", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_RDMA_READ)
             .remote(there(p), p.library.mr.rkey)
             .data(here(p), 8, p.library.mr.lkey)
             .inline_data("x");
       }},
      {"no length", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_SEND).says(0); }},
      {"more than was posted", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_SEND).says(9); }},
      {"more than a request may have", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_SEND).says(63); }},
      {"an opcode that is none", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(0x3f).inline_data("x"); }},
      {"an opcode of another device", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_TSO).inline_data("x"); }},
      {"no remote address", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE); }},
      {"no operands", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [&](Mlx5Pair& p) {
         return Mlx5Wqe(MLX5_OPCODE_ATOMIC_CS).remote(there(p), p.library.mr.rkey);
       }},
      {"no window", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_UMR); }},
      {"inline data longer than the request", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [](Mlx5Pair&) {
         Mlx5Wqe wqe(MLX5_OPCODE_SEND);
         wqe.inline_data("twelve bytes");
         const std::uint32_t head = htobe32(0x8000'0000U | 13);
         std::memcpy(wqe.bytes.data() + 16, &head, sizeof head);
         return wqe;
       }},
      {"too many pointers", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [&](Mlx5Pair& p) {
         Mlx5Wqe wqe(MLX5_OPCODE_SEND);
         for (int i = 0; i < 17; ++i) wqe.data(here(p), 1, p.library.mr.lkey);
         return wqe;
       }},
      {"too long a request", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
       [&](Mlx5Pair&) { return Mlx5Wqe(MLX5_OPCODE_SEND).inline_data(kilobyte.substr(0, 1024)); }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Mlx5Pair p;
    p.b.receive(there(p), 1024, p.library.mr.lkey);
    EXPECT_EQ(p.syndrome(one.request(p)), one.expected);
    EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
    // One entry, and what comes is flushed.
    mlx5_cqe64 e;
    EXPECT_FALSE(p.send_cq.poll(e));
    EXPECT_EQ(p.syndrome(Mlx5Wqe(MLX5_OPCODE_NOP)), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  }
}

TEST_F(Mlx5Errors, MorePostedThanThereCanBe) {
  Mlx5Pair p;
  for (const std::uint32_t posted : {17U, 0xffffU, 0x1234'8000U}) {
    p.a.set_posted(posted);
    p.library.store(0x800, 0, p.a.number << 8);
    const mlx5_cqe64 e = p.send_cq.wait();
    EXPECT_EQ(opcode_of(e), MLX5_CQE_REQ_ERR);
    mlx5_cqe64 more;
    EXPECT_FALSE(p.send_cq.poll(more));
  }
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  // Receives that cannot be: the sender hears of it.
  Mlx5Pair q;
  q.b.set_received(17);
  EXPECT_EQ(q.syndrome(q.send(kHere, 7)), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
}

TEST_F(Mlx5Errors, AReceiveThatDoesNotFit) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  p.b.receive(l.memory.address(kThere), 6, l.mr.lkey);
  p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  EXPECT_EQ(p.syndrome(p.send(kHere, 7)), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  mlx5_cqe64 e = p.receive_cq.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_ERR);
  EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
  EXPECT_EQ(counter_of(e), 0);
  EXPECT_EQ(be32toh(e.srqn_uidx) & 0xff'ffff, p.b.user_index);
  e = p.receive_cq.wait();
  EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(counter_of(e), 1);
  // The responder's queue pair heard of it by an event.
  const ib_uverbs_async_event_desc event = l.event();
  EXPECT_EQ(event.event_type, static_cast<std::uint32_t>(IBV_EVENT_QP_REQ_ERR));
  EXPECT_EQ(event.element, address_of(&p.b));
  EXPECT_EQ(p.b.destroy(), 0);
  EXPECT_EQ(p.b.events, 1U);
  EXPECT_EQ(p.a.destroy(), 0);
  EXPECT_EQ(p.a.events, 0U);
}

TEST_F(Mlx5Errors, AnOverrun) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  // 16 entries fit, and none is polled.
  for (int i = 0; i < 16; ++i) p.a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_FALSE(l.has_event());
  p.a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  const ib_uverbs_async_event_desc first = l.event(), second = l.event();
  EXPECT_EQ(first.event_type, static_cast<std::uint32_t>(IBV_EVENT_CQ_ERR));
  EXPECT_EQ(first.element, address_of(&p.send_cq));
  EXPECT_EQ(second.event_type, static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
  EXPECT_EQ(second.element, address_of(&p.a));
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  for (std::uint16_t i = 0; i < 16; ++i) EXPECT_EQ(counter_of(p.send_cq.wait()), i);
  mlx5_cqe64 e;
  EXPECT_FALSE(p.send_cq.poll(e));
  EXPECT_EQ(p.a.destroy(), 0);
  EXPECT_EQ(p.a.events, 1U);
  EXPECT_EQ(p.b.destroy(), 0);
  ib_uverbs_destroy_cq_resp answer{};
  EXPECT_EQ(p.send_cq.destroy(answer), 0);
  EXPECT_EQ(answer.async_events_reported, 1U);
  EXPECT_EQ(answer.comp_events_reported, 0U);
}

TEST_F(Mlx5Errors, AnOverrunThatIsTheProgramsAffair) {
  Mlx5Library l;
  Mlx5CompletionQueue sent(l, 16, 64, -1, true);
  Mlx5QpOptions options;
  options.send_cq = &sent;
  Mlx5QueuePair a(l, options), b(l);
  a.connect(b.number);
  for (int i = 0; i < 40; ++i) a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_FALSE(l.has_event());
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
  sent.consumed = 32;  // the program knows how many there were
  for (std::uint16_t i = 32; i < 40; ++i) EXPECT_EQ(counter_of(sent.wait()), i);
}

TEST_F(Mlx5Errors, ResizedWhileEntriesWait) {
  Mlx5Library l;
  Mlx5CompletionQueue sent(l, 16, 64, -1, false);
  Mlx5QpOptions options;
  options.send_cq = &sent;
  options.sends = 64;
  Mlx5QueuePair a(l, options), b(l);
  a.connect(b.number);
  std::uint16_t expected = 0;
  const auto polled = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(counter_of(sent.wait()), expected++);
    mlx5_cqe64 e;
    ASSERT_FALSE(sent.poll(e));
  };
  const auto post = [&](int count) {
    for (int i = 0; i < count; ++i) a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  };
  post(10);
  ASSERT_EQ(sent.resize(64), 0);
  post(30);
  polled(40);
  ASSERT_EQ(sent.resize(8, 128), 0);
  post(6);
  ASSERT_EQ(sent.resize(8, 64), 0);
  polled(6);
  for (int i = 0; i < 20; ++i) {
    post(7);
    polled(7);
  }
  // More wait than it would hold, or it is full: refused, and nothing is lost (EINVAL of the
  // firmware: too many outstanding entries).
  post(6);
  EXPECT_EQ(sent.resize(4), EINVAL);
  post(2);
  EXPECT_EQ(sent.resize(64), EINVAL);
  polled(8);
  EXPECT_EQ(sent.resize(64), 0);
  post(40);
  polled(40);
}

TEST_F(Mlx5Errors, ArmedForAnyEntry) {
  Mlx5Library l;
  const std::int32_t channel = l.create_channel();
  Mlx5CompletionQueue sent(l, 16, 64, channel, false);
  Mlx5QpOptions options;
  options.send_cq = &sent;
  Mlx5QueuePair a(l, options), b(l);
  a.connect(b.number);
  a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_FALSE(l.has_completion_event(channel));
  // What came before counts.
  sent.arm();
  EXPECT_EQ(l.completion_event(channel), address_of(&sent));
  a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_FALSE(l.has_completion_event(channel));  // once
  for (int i = 0; i < 2; ++i) (void)sent.wait();
  sent.arm();
  EXPECT_FALSE(l.has_completion_event(channel));
  a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_EQ(l.completion_event(channel), address_of(&sent));
  EXPECT_EQ(a.destroy(), 0);
  ib_uverbs_destroy_cq_resp answer{};
  EXPECT_EQ(sent.destroy(answer), 0);
  EXPECT_EQ(answer.comp_events_reported, 2U);
  EXPECT_EQ(mlx5_device().close(channel), 0);
}

TEST_F(Mlx5Errors, ArmedForWhatIsSolicited) {
  Mlx5Library l;
  const std::int32_t channel = l.create_channel();
  Mlx5CompletionQueue received(l, 16, 64, channel, false);
  Mlx5QpOptions options;
  options.receive_cq = &received;
  Mlx5QueuePair a(l), b(l, options);
  a.connect(b.number);
  b.connect(a.number);
  const auto send = [&](std::uint8_t flags) {
    b.receive(l.memory.address(kThere), 64, l.mr.lkey);
    a.post(Mlx5Wqe(MLX5_OPCODE_SEND, 0, flags).inline_data("x"));
  };
  received.arm(true);
  send(0);
  EXPECT_FALSE(l.has_completion_event(channel));
  send(MLX5_WQE_CTRL_SOLICITED);
  EXPECT_EQ(l.completion_event(channel), address_of(&received));
  for (int i = 0; i < 2; ++i) (void)received.wait();
  // It came before; then only one that is not solicited did.
  send(MLX5_WQE_CTRL_SOLICITED);
  send(0);
  received.arm(true);
  EXPECT_EQ(l.completion_event(channel), address_of(&received));
  for (int i = 0; i < 2; ++i) (void)received.wait();
  send(0);
  received.arm(true);
  EXPECT_FALSE(l.has_completion_event(channel));
  // An error counts as solicited.
  b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  ASSERT_EQ(b.modify(IBV_QPS_ERR), 0);
  EXPECT_EQ(l.completion_event(channel), address_of(&received));
  EXPECT_EQ(mlx5_device().close(channel), 0);
}

// Events that nobody has read when their object ends are counted by nobody.
TEST_F(Mlx5Errors, EventsOfWhatIsGone) {
  Mlx5Library l;
  const std::int32_t channel = l.create_channel();
  {
    Mlx5CompletionQueue sent(l, 16, 64, channel, false);
    Mlx5QpOptions options;
    options.send_cq = &sent;
    Mlx5QueuePair a(l, options), b(l);
    a.connect(b.number);
    sent.arm();
    for (int i = 0; i < 17; ++i) a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
    EXPECT_TRUE(l.has_completion_event(channel));
    EXPECT_TRUE(l.has_event());
    EXPECT_EQ(a.destroy(), 0);
    EXPECT_EQ(a.events, 0U);
    ib_uverbs_destroy_cq_resp answer{};
    EXPECT_EQ(sent.destroy(answer), 0);
    EXPECT_EQ(answer.comp_events_reported, 0U);
    EXPECT_EQ(answer.async_events_reported, 0U);
  }
  Mlx5CompletionQueue next(l, 16, 64, channel, false);
  Mlx5QpOptions options;
  options.send_cq = &next;
  Mlx5QueuePair a(l, options), b(l);
  a.connect(b.number);
  next.arm();
  a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_EQ(l.completion_event(channel), address_of(&next));
  EXPECT_EQ(mlx5_device().close(channel), 0);
}

// Another thread reads events while the objects are destroyed: each is counted, none is of one that
// is gone.
TEST_F(Mlx5Errors, EventsWhileTheirObjectsEnd) {
  Mlx5Library l;
  const std::int32_t channel = l.create_channel();
  constexpr std::uint64_t kRounds = 200;
  std::atomic<std::uint64_t> read{0};
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over.load()) {
      if (!readable(channel, 1)) continue;
      ib_uverbs_comp_event_desc event{};
      if (mlx5_device().read(channel, &event, sizeof event) == sizeof event) read.fetch_add(1);
    }
  });
  std::uint64_t told = 0;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    Mlx5CompletionQueue sent(l, 16, 64, channel, false);
    Mlx5QpOptions options;
    options.send_cq = &sent;
    Mlx5QueuePair a(l, options);
    a.connect(1);
    sent.arm();
    a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
    EXPECT_EQ(a.destroy(), 0);
    ib_uverbs_destroy_cq_resp answer{};
    ASSERT_EQ(sent.destroy(answer), 0);
    told += answer.comp_events_reported;
  }
  // A last one, of a queue that lives, so that the reader is not left waiting for one that is gone.
  Mlx5CompletionQueue last(l, 16, 64, channel, false);
  Mlx5QpOptions options;
  options.send_cq = &last;
  Mlx5QueuePair a(l, options);
  a.connect(1);
  last.arm();
  over.store(true);
  a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  reader.join();
  ib_uverbs_destroy_cq_resp answer{};
  EXPECT_EQ(a.destroy(), 0);
  EXPECT_EQ(last.destroy(answer), 0);
  EXPECT_EQ(told + answer.comp_events_reported, read.load());
  EXPECT_EQ(mlx5_device().close(channel), 0);
}

}  // namespace
}  // namespace turnout::hca::test
