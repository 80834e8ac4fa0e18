// SPDX-License-Identifier: BSD-3-Clause
// Triggered operations and deferred work (fi_trigger(3)).
#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_trigger.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "core/endpoint.h"
#include "provider/info.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

constexpr std::uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER;

fid_cntr* open_counter(fid_domain* domain) {
  fi_cntr_attr attr{};
  fid_cntr* counter = nullptr;
  EXPECT_EQ(fi_cntr_open(domain, &attr, &counter, nullptr), 0);
  return counter;
}

// `a` has the counters, and sends to `b`.
struct Triggers : ::testing::Test {
  Triggers() {
    for (fid_cntr** counter : {&gate, &done, &other}) {
      *counter = open_counter(a.domain);
      a.others.push_back(&(*counter)->fid);
    }
    EXPECT_EQ(fi_mr_reg(b.domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
                        &region, nullptr),
              0);
  }
  ~Triggers() override {
    EXPECT_EQ(fi_close(&region->fid), 0);
    faults().reset();
  }
  static NodeOptions options() {
    NodeOptions options;
    options.caps = kCaps;
    return options;
  }

  [[nodiscard]] fi_triggered_context at(std::size_t threshold) const {
    fi_triggered_context context{};
    context.event_type = FI_TRIGGER_THRESHOLD;
    context.trigger.threshold = {gate, threshold};
    return context;
  }
  // Work that waits for `gate`.
  [[nodiscard]] fi_deferred_work work(fi_op_type type, std::uint64_t threshold) const {
    fi_deferred_work work{};
    work.threshold = threshold;
    work.triggering_cntr = gate;
    work.completion_cntr = done;
    work.op_type = type;
    return work;
  }
  int queue(fi_deferred_work& work) { return fi_control(&a.domain->fid, FI_QUEUE_WORK, &work); }
  [[nodiscard]] fi_rma_iov remote(std::size_t word = 0) const {
    return {reinterpret_cast<std::uint64_t>(memory + word), 8, fi_mr_key(region)};
  }
  [[nodiscard]] fi_rma_ioc remote_element() const {
    return {reinterpret_cast<std::uint64_t>(memory), 1, fi_mr_key(region)};
  }
  // What `b` receives next; empty: nothing is there.
  std::string receive() {
    std::array<char, 64> in{};
    EXPECT_EQ(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, this), 0);
    if (const auto entry = b.next()) return {in.data(), entry->len};
    EXPECT_EQ(fi_cancel(&b.ep->fid, this), 0);
    EXPECT_EQ(b.next_error().err, FI_ECANCELED);
    return "";
  }

  PairOfNodes nodes{options()};
  Node& a = nodes.a;
  Node& b = nodes.b;
  fid_cntr *gate = nullptr, *done = nullptr, *other = nullptr;
  std::uint64_t memory[2] = {10, 20};
  fid_mr* region = nullptr;
};

struct Text {
  explicit Text(std::string what, fi_addr_t to = FI_ADDR_UNSPEC) : text(std::move(what)) {
    iov = {text.data(), text.size()};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to;
  }
  std::string text;
  iovec iov{};
  fi_msg msg{};
};

TEST_F(Triggers, AreOfferedToThoseWhoAsk) {
  Node plain;
  auto context = at(1);
  fi_msg msg{};
  msg.addr = plain.insert(plain);
  msg.context = &context;
  EXPECT_EQ(fi_sendmsg(plain.ep, &msg, FI_TRIGGER), -FI_EBADFLAGS);
  EXPECT_EQ(plain.info->caps & FI_TRIGGER, 0u);
  EXPECT_NE(a.info->caps & FI_TRIGGER, 0u);
  EXPECT_NE(a.info->tx_attr->caps & FI_TRIGGER, 0u);
  EXPECT_NE(a.info->rx_attr->caps & FI_TRIGGER, 0u);
}

// The core has no room when the threshold is reached.
TEST_F(Triggers, StartThoughTheCounterIsSetBack) {
  auto context = at(2);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  faults().send = {Code::again, "full"};
  ASSERT_EQ(fi_cntr_add(gate, 2), 0);
  faults().send = {Code::again, "full"};
  ASSERT_EQ(fi_cntr_set(gate, 0), 0);
  EXPECT_EQ(fi_cntr_read(gate), 0u);
  EXPECT_EQ(receive(), "hello");
  EXPECT_NE(a.next(), nullptr);
}

TEST_F(Triggers, StartThoughDeferredWorkSetsTheCounterBack) {
  fi_op_cntr op{other, 0};
  auto set = work(FI_OP_CNTR_SET, 1);
  set.completion_cntr = nullptr;
  set.op.cntr = &op;
  ASSERT_EQ(queue(set), 0);
  auto context = at(5);
  context.trigger.threshold.cntr = other;
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  faults().send = {Code::again, "full"};
  ASSERT_EQ(fi_cntr_add(other, 5), 0);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(fi_cntr_read(other), 0u);
  EXPECT_EQ(receive(), "hello");
}

// While something waits, one read of a queue moves all endpoints, but not for each of them.
TEST_F(Triggers, MoveEachEndpointAtMostTwiceARead) {
  auto context = at(1);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  constexpr std::size_t kMany = 8;
  NodeOptions more = options();
  more.domain = a.domain;
  more.tx_bind = more.rx_bind = 0;
  more.before_enable = [&](fid_domain*, fid_ep* ep) {
    ASSERT_EQ(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  };
  std::vector<std::unique_ptr<Node>> others;
  for (std::size_t i = 0; i < kMany; ++i) others.push_back(std::make_unique<Node>(more));
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  for (int read = 0; read < 3; ++read) {
    std::vector<std::size_t> before;
    for (const auto& node : others) before.push_back(node->core->progress_calls);
    EXPECT_EQ(a.next(), nullptr);
    for (std::size_t i = 0; i < kMany; ++i) {
      const std::size_t calls = others[i]->core->progress_calls - before[i];
      EXPECT_GE(calls, 1u);
      EXPECT_LE(calls, 2u);
    }
  }
  others.clear();
}

TEST_F(Triggers, SendWaitsForItsThreshold) {
  auto context = at(2);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  hello.iov = {};  // the list is the program's again
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(a.next(), nullptr);
  EXPECT_EQ(receive(), "");
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(receive(), "hello");
  const auto sent = a.next();
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->op_context, &context);
}

TEST_F(Triggers, SendStartsAtOnceWhereTheCounterIsThere) {
  ASSERT_EQ(fi_cntr_set(gate, 5), 0);
  auto context = at(3);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  EXPECT_EQ(receive(), "hello");
}

TEST_F(Triggers, StartInTheOrderOfTheirThresholds) {
  std::vector<Text> texts;
  std::vector<fi_triggered_context> contexts;
  const std::size_t thresholds[] = {4, 2, 3, 2, 9};
  for (const std::size_t threshold : thresholds) contexts.push_back(at(threshold));
  const char* const names[] = {"four", "two", "three", "two again", "nine"};
  for (const char* name : names) texts.emplace_back(name, nodes.to_b);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i].iov.iov_base = texts[i].text.data();
    texts[i].msg.msg_iov = &texts[i].iov;
    texts[i].msg.context = &contexts[i];
    ASSERT_EQ(fi_sendmsg(a.ep, &texts[i].msg, FI_TRIGGER), 0);
  }
  ASSERT_EQ(fi_cntr_set(gate, 8), 0);  // a jump over all but one
  for (const char* expected : {"two", "two again", "three", "four", ""})
    EXPECT_EQ(receive(), expected);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(receive(), "nine");
}

TEST_F(Triggers, AValueThatWasReachedCountsThoughALowerOneIsSet) {
  auto context = at(1);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_ep_bind(a.ep, &gate->fid, FI_SEND), 0);
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  ASSERT_EQ(fi_inject(a.ep, "first", 5, nodes.to_b), 0);  // counts, and nothing has looked yet
  ASSERT_EQ(fi_cntr_set(gate, 0), 0);
  EXPECT_EQ(receive(), "first");
  EXPECT_EQ(receive(), "hello");
}

TEST_F(Triggers, CompletionsOfTheEndpointTrigger) {
  ASSERT_EQ(fi_ep_bind(a.ep, &gate->fid, FI_RECV), 0);
  auto context = at(1);
  Text answer("answer", nodes.to_b);
  answer.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &answer.msg, FI_TRIGGER), 0);
  char in[8];
  ASSERT_EQ(fi_recv(a.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_inject(b.ep, "ask", 3, nodes.to_a), 0);
  EXPECT_EQ(receive(), "");
  ASSERT_NE(a.next(), nullptr);  // the receive; the progress that found it sends the answer
  EXPECT_EQ(receive(), "answer");
}

TEST_F(Triggers, InjectedDataAreCopied) {
  auto context = at(1);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER | FI_INJECT), 0);
  hello.text.assign(5, 'x');
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(receive(), "hello");
  Text large(std::string(kInjectLimit + 1, 'x'), nodes.to_b);
  large.msg.context = &context;
  EXPECT_EQ(fi_sendmsg(a.ep, &large.msg, FI_TRIGGER | FI_INJECT), -FI_EINVAL);
}

TEST_F(Triggers, ReceivesAndTaggedMessages) {
  auto receives = at(1), sends = at(2);
  char in[8] = {};
  iovec into{in, sizeof in}, from{const_cast<char*>("tag"), 3};
  fi_msg_tagged recv{}, send{};
  recv.msg_iov = &into;
  send.msg_iov = &from;
  recv.iov_count = send.iov_count = 1;
  recv.tag = send.tag = 7;
  recv.addr = FI_ADDR_UNSPEC;
  recv.context = &receives;
  send.addr = a.insert(a);
  send.context = &sends;
  ASSERT_EQ(fi_tsendmsg(a.ep, &send, FI_TRIGGER), 0);
  ASSERT_EQ(fi_trecvmsg(a.ep, &recv, FI_TRIGGER), 0);
  EXPECT_EQ(fi_trecvmsg(a.ep, &recv, FI_TRIGGER | FI_PEEK), -FI_EBADFLAGS);
  ASSERT_EQ(fi_cntr_add(gate, 2), 0);
  std::vector<const void*> contexts;
  while (const auto entry = a.next()) contexts.push_back(entry->op_context);
  ASSERT_EQ(contexts.size(), 2u);
  EXPECT_STREQ(in, "tag");

  auto untagged = at(3);
  fi_msg msg{};
  msg.msg_iov = &into;
  msg.iov_count = 1;
  msg.addr = FI_ADDR_UNSPEC;
  msg.context = &untagged;
  ASSERT_EQ(fi_recvmsg(a.ep, &msg, FI_TRIGGER), 0);
  ASSERT_EQ(fi_inject(b.ep, "msg", 3, nodes.to_a), 0);
  EXPECT_EQ(a.next(), nullptr);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  const auto got = a.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &untagged);
  EXPECT_STREQ(in, "msg");
}

TEST_F(Triggers, RemoteMemory) {
  auto writes = at(1), reads = at(2);
  std::uint64_t source = 77, result = 0;
  iovec from{&source, 8}, into{&result, 8};
  fi_rma_iov there = remote();
  fi_msg_rma msg{&from, nullptr, 1, nodes.to_b, &there, 1, &writes, 0};
  ASSERT_EQ(fi_writemsg(a.ep, &msg, FI_TRIGGER), 0);
  fi_msg_rma read{&into, nullptr, 1, nodes.to_b, &there, 1, &reads, 0};
  ASSERT_EQ(fi_readmsg(a.ep, &read, FI_TRIGGER), 0);
  EXPECT_EQ(fi_readmsg(a.ep, &read, FI_TRIGGER | FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
  there = {};  // copied
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(memory[0], 77u);
  EXPECT_EQ(a.next()->op_context, &writes);
  EXPECT_EQ(a.next(), nullptr);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(a.next()->op_context, &reads);
  EXPECT_EQ(result, 77u);
}

TEST_F(Triggers, Atomics) {
  fi_triggered_context contexts[] = {at(1), at(2), at(3)};
  std::uint64_t operand = 5, compare = 20, result = 0, fetched = 0;
  fi_ioc operands{&operand, 1}, compares{&compare, 1}, into{&result, 1}, fetch{&fetched, 1};
  const fi_rma_ioc there = remote_element();
  fi_msg_atomic msg{&operands, nullptr,   1,      nodes.to_b,   &there,
                    1,         FI_UINT64, FI_SUM, &contexts[0], 0};
  ASSERT_EQ(fi_atomicmsg(a.ep, &msg, FI_TRIGGER | FI_INJECT), 0);
  operand = 1000;  // was copied
  msg.context = &contexts[1];
  ASSERT_EQ(fi_fetch_atomicmsg(a.ep, &msg, &fetch, nullptr, 1, FI_TRIGGER), 0);
  msg.context = &contexts[2];
  msg.op = FI_CSWAP;
  ASSERT_EQ(fi_compare_atomicmsg(a.ep, &msg, &compares, nullptr, 1, &into, nullptr, 1, FI_TRIGGER),
            0);
  operand = 2;
  ASSERT_EQ(fi_cntr_add(gate, 2), 0);
  EXPECT_EQ(fetched, 15u);
  EXPECT_EQ(memory[0], 17u);
  compare = 17;  // read when it starts
  operand = 3;
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(result, 17u);
  EXPECT_EQ(memory[0], 3u);
  for (auto& context : contexts) EXPECT_EQ(a.next()->op_context, &context);
}

TEST_F(Triggers, WhatIsNotASensibleCondition) {
  Text hello("hello", nodes.to_b);
  EXPECT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), -FI_EINVAL) << "no context";
  auto context = at(1);
  hello.msg.context = &context;
  context.event_type = FI_TRIGGER_XPU;
  EXPECT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), -FI_ENOSYS);
  context.event_type = FI_TRIGGER_THRESHOLD;
  context.trigger.threshold.cntr = nullptr;
  EXPECT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), -FI_EINVAL);
  Node elsewhere(options());
  fid_cntr* foreign = open_counter(elsewhere.domain);
  context.trigger.threshold.cntr = foreign;
  EXPECT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), -FI_EDOMAIN);
  EXPECT_EQ(fi_close(&foreign->fid), 0);
}

TEST_F(Triggers, CancelEndsWithAnErrorEntry) {
  auto context = at(1);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  ASSERT_EQ(fi_cancel(&a.ep->fid, &context), 0);
  const fi_cq_err_entry error = a.next_error();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &context);
  EXPECT_EQ(error.flags, FI_SEND | FI_MSG);
  EXPECT_EQ(fi_cancel(&a.ep->fid, &context), -FI_ENOENT);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(receive(), "");
}

TEST_F(Triggers, AStartThatFailsIsAnErrorEntry) {
  ASSERT_EQ(fi_ep_bind(a.ep, &other->fid, FI_SEND), 0);
  auto context = at(1);
  Text hello("hello", 12345);  // nobody
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  const fi_cq_err_entry error = a.next_error();
  EXPECT_EQ(error.err, FI_EINVAL);
  EXPECT_EQ(error.op_context, &context);
  EXPECT_EQ(fi_cntr_readerr(other), 1u);
}

TEST_F(Triggers, BackPressureKeepsTheOrder) {
  auto first = at(1), second = at(2);
  Text one("one", nodes.to_b), two("two", nodes.to_b);
  one.msg.context = &first;
  two.msg.context = &second;
  ASSERT_EQ(fi_sendmsg(a.ep, &two.msg, FI_TRIGGER), 0);
  ASSERT_EQ(fi_sendmsg(a.ep, &one.msg, FI_TRIGGER), 0);
  faults().send = Status{Code::again, "full"};
  ASSERT_EQ(fi_cntr_add(gate, 2), 0);
  EXPECT_EQ(receive(), "");
  EXPECT_NE(a.next(), nullptr);  // progress tries again
  EXPECT_EQ(receive(), "one");
  EXPECT_EQ(receive(), "two");
}

TEST_F(Triggers, FailuresCountForDeferredWorkAlone) {
  auto context = at(1);
  Text triggered("triggered", nodes.to_b), deferred("deferred", nodes.to_b);
  triggered.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &triggered.msg, FI_TRIGGER), 0);
  fi_op_msg op{a.ep, deferred.msg, 0};
  fi_deferred_work send = work(FI_OP_SEND, 1);
  send.op.msg = &op;
  ASSERT_EQ(queue(send), 0);
  ASSERT_EQ(fi_cntr_adderr(gate, 1), 0);
  EXPECT_EQ(receive(), "deferred");
  EXPECT_EQ(receive(), "");
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(receive(), "triggered");
}

TEST_F(Triggers, ACounterWithWaitersStays) {
  auto context = at(1);
  fid_cntr* own = open_counter(a.domain);
  context.trigger.threshold.cntr = own;
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  EXPECT_EQ(fi_close(&own->fid), -FI_EBUSY);
  ASSERT_EQ(fi_cntr_add(own, 1), 0);
  EXPECT_EQ(fi_close(&own->fid), 0);
  EXPECT_EQ(receive(), "hello");
}

TEST_F(Triggers, WhatWaitsTakesASixteenthOfTheBudgetAtMost) {
  const std::string text(kInjectLimit, 'x');
  iovec iov{const_cast<char*>(text.data()), text.size()};
  fi_triggered_context context = at(1);
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = nodes.to_b;
  message.context = &context;
  const auto send = [&] { return fi_sendmsg(a.ep, &message, FI_TRIGGER | FI_INJECT); };
  const std::uint64_t most = provider::process_settings().value().memory_budget / 16;
  std::uint64_t queued = 0;
  ssize_t answer = 0;
  while ((answer = send()) == 0 && queued <= most / kInjectLimit) ++queued;
  EXPECT_EQ(answer, -FI_ENOMEM);
  EXPECT_GT(queued, most / kInjectLimit / 2);
  // What is cancelled gives its part back.
  EXPECT_EQ(fi_cancel(&a.ep->fid, &context), 0);
  EXPECT_EQ(a.next_error().err, FI_ECANCELED);
  EXPECT_EQ(send(), 0);
  EXPECT_EQ(send(), -FI_ENOMEM);
}

TEST_F(Triggers, OfAClosedEndpointAreDropped) {
  auto context = at(1);
  NodeOptions shared = options();
  shared.domain = a.domain;
  {
    Node leaves(shared);
    Text hello("hello", leaves.insert(b));
    hello.msg.context = &context;
    ASSERT_EQ(fi_sendmsg(leaves.ep, &hello.msg, FI_TRIGGER), 0);
    EXPECT_EQ(fi_close(&gate->fid), -FI_EBUSY);
  }
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(receive(), "");
}

// The endpoint that moves the counter is not the one whose queue is read.
TEST_F(Triggers, ProgressOfOneEndpointMovesTheOthers) {
  NodeOptions shared = options();
  shared.domain = a.domain;
  auto context = at(1);
  Text hello("hello", nodes.to_b);
  hello.msg.context = &context;
  ASSERT_EQ(fi_sendmsg(a.ep, &hello.msg, FI_TRIGGER), 0);
  Node third(shared);  // comes while something waits
  ASSERT_EQ(fi_ep_bind(third.ep, &gate->fid, FI_RECV), 0);
  char in[8];
  ASSERT_EQ(fi_recv(third.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_inject(b.ep, "go", 2, b.insert(third)), 0);
  static_cast<void>(a.next());
  EXPECT_EQ(receive(), "hello");
}

TEST_F(Triggers, DeferredWorkCountsAndWritesNoEntries) {
  ASSERT_EQ(fi_ep_bind(a.ep, &other->fid, FI_SEND), 0);
  Text quiet("quiet", nodes.to_b), loud("loud", nodes.to_b);
  fi_op_msg quietly{a.ep, quiet.msg, 0}, loudly{a.ep, loud.msg, FI_COMPLETION};
  fi_deferred_work one = work(FI_OP_SEND, 1), two = work(FI_OP_SEND, 2);
  one.op.msg = &quietly;
  two.op.msg = &loudly;
  ASSERT_EQ(queue(two), 0);
  ASSERT_EQ(queue(one), 0);
  EXPECT_EQ(fi_cntr_read(done), 0u);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(fi_cntr_wait(done, 1, 10000), 0);
  EXPECT_EQ(a.next(), nullptr);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(fi_cntr_wait(done, 2, 10000), 0);
  const auto entry = a.next();
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->op_context, &two.context);
  EXPECT_EQ(fi_cntr_read(other), 0u) << "the endpoint's counter";
  EXPECT_EQ(receive(), "quiet");
  EXPECT_EQ(receive(), "loud");
}

// Of every kind, each waiting for the one before.
TEST_F(Triggers, DeferredWorkOfAllKinds) {
  const fi_addr_t to_a = a.insert(a);
  char in[8] = {}, tagged_in[8] = {};
  iovec into{in, sizeof in}, from{const_cast<char*>("msg"), 3};
  iovec tagged_into{tagged_in, sizeof tagged_in}, tagged_from{const_cast<char*>("tag"), 3};
  fi_op_msg recv{a.ep, {&into, nullptr, 1, FI_ADDR_UNSPEC, nullptr, 0}, 0};
  fi_op_msg send{a.ep, {&from, nullptr, 1, to_a, nullptr, 0}, 0};
  fi_op_tagged trecv{a.ep, {&tagged_into, nullptr, 1, FI_ADDR_UNSPEC, 3, 0, nullptr, 0}, 0};
  fi_op_tagged tsend{a.ep, {&tagged_from, nullptr, 1, to_a, 3, 0, nullptr, 0}, 0};
  std::uint64_t word = 30, read_word = 0, operand = 5, fetched = 0, compare = 35, old = 0;
  iovec words{&word, 8}, read_into{&read_word, 8};
  const fi_rma_iov there = remote();
  fi_op_rma write{a.ep, {&words, nullptr, 1, nodes.to_b, &there, 1, nullptr, 0}, 0};
  fi_op_rma read{a.ep, {&read_into, nullptr, 1, nodes.to_b, &there, 1, nullptr, 0}, 0};
  fi_ioc operands{&operand, 1}, fetch{&fetched, 1}, compares{&compare, 1}, olds{&old, 1};
  const fi_rma_ioc element = remote_element();
  const auto atomic = [&](fi_op op) {
    return fi_msg_atomic{&operands, nullptr, 1, nodes.to_b, &element, 1, FI_UINT64, op, nullptr, 0};
  };
  fi_op_atomic sum{a.ep, atomic(FI_SUM), 0};
  fi_op_fetch_atomic fetch_sum{a.ep, atomic(FI_SUM), {&fetch, nullptr, 1}, 0};
  fi_op_compare_atomic swap{
      a.ep, atomic(FI_CSWAP), {&olds, nullptr, 1}, {&compares, nullptr, 1}, 0};
  fi_op_cntr set{other, 100}, add{other, 11};

  // Each counts in `done`, for which the next ones wait. The last ones are queued first.
  std::vector<fi_deferred_work> all;
  const auto with = [&](fi_op_type type, std::uint64_t threshold, auto op) {
    all.push_back(work(type, threshold));
    all.back().triggering_cntr = done;
    std::memcpy(&all.back().op, &op, sizeof op);
  };
  with(FI_OP_CNTR_SET, 9, &set);
  with(FI_OP_CNTR_ADD, 9, &add);
  for (fi_deferred_work& change : all) change.completion_cntr = nullptr;
  with(FI_OP_COMPARE_ATOMIC, 8, &swap);
  with(FI_OP_FETCH_ATOMIC, 7, &fetch_sum);
  with(FI_OP_ATOMIC, 6, &sum);
  with(FI_OP_READ, 5, &read);
  with(FI_OP_WRITE, 4, &write);
  with(FI_OP_TSEND, 2, &tsend);
  with(FI_OP_TRECV, 2, &trecv);
  with(FI_OP_SEND, 0, &send);
  with(FI_OP_RECV, 0, &recv);
  for (fi_deferred_work& one : all) ASSERT_EQ(queue(one), 0);
  ASSERT_EQ(fi_cntr_wait(other, 111, 10000), 0);  // bound to no endpoint
  EXPECT_EQ(fi_cntr_read(done), 9u);
  EXPECT_STREQ(in, "msg");
  EXPECT_STREQ(tagged_in, "tag");
  EXPECT_EQ(read_word, 30u);
  EXPECT_EQ(fetched, 35u);
  EXPECT_EQ(old, 40u);
  EXPECT_EQ(memory[0], 40u) << "the compare value was another";
  EXPECT_EQ(a.next(), nullptr);
}

TEST_F(Triggers, DeferredWorkThatFailsCounts) {
  Text hello("hello", 12345);  // nobody
  fi_op_msg op{a.ep, hello.msg, 0};
  fi_deferred_work send = work(FI_OP_SEND, 0);
  send.op.msg = &op;
  ASSERT_EQ(queue(send), 0);
  EXPECT_EQ(fi_cntr_readerr(done), 1u);
  const fi_cq_err_entry error = a.next_error();
  EXPECT_EQ(error.err, FI_EINVAL);
  EXPECT_EQ(error.op_context, &send.context);
  std::uint64_t word = 0;  // refused by the target, after the start
  iovec words{&word, 8};
  fi_rma_iov there = remote();
  there.key += 1000;
  fi_op_rma rma{a.ep, {&words, nullptr, 1, nodes.to_b, &there, 1, nullptr, 0}, 0};
  fi_deferred_work write = work(FI_OP_WRITE, 0);
  write.op.rma = &rma;
  ASSERT_EQ(queue(write), 0);
  EXPECT_EQ(fi_cntr_wait(done, 1, 10000), -FI_EAVAIL);
  EXPECT_EQ(fi_cntr_readerr(done), 2u);
}

TEST_F(Triggers, CancelAndFlushOfDeferredWork) {
  Text hello("hello", nodes.to_b);
  fi_op_msg op{a.ep, hello.msg, 0};
  fi_op_cntr add{other, 1};
  fi_deferred_work send = work(FI_OP_SEND, 1), count = work(FI_OP_CNTR_ADD, 1);
  send.op.msg = &op;
  count.op.cntr = &add;
  count.completion_cntr = nullptr;
  const auto control = [&](int command, void* argument) {
    return fi_control(&a.domain->fid, command, argument);
  };
  ASSERT_EQ(queue(send), 0);
  ASSERT_EQ(queue(count), 0);
  EXPECT_EQ(fi_close(&gate->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&other->fid), -FI_EBUSY) << "it would be counted there";
  ASSERT_EQ(control(FI_CANCEL_WORK, &count), 0);
  EXPECT_EQ(control(FI_CANCEL_WORK, &count), -FI_ENOENT);
  ASSERT_EQ(fi_cntr_add(gate, 1), 0);
  EXPECT_EQ(fi_cntr_read(other), 0u);
  EXPECT_EQ(receive(), "hello");
  EXPECT_EQ(control(FI_CANCEL_WORK, &send), -FI_ENOENT) << "it has started";

  count.threshold = send.threshold = 5;
  count.triggering_cntr = done;
  auto context = at(5);
  Text triggered("triggered", nodes.to_b);
  triggered.msg.context = &context;
  ASSERT_EQ(queue(send), 0);
  ASSERT_EQ(queue(count), 0);
  ASSERT_EQ(fi_sendmsg(a.ep, &triggered.msg, FI_TRIGGER), 0);
  ASSERT_EQ(control(FI_FLUSH_WORK, &gate->fid), 0) << "what waits for this counter";
  EXPECT_EQ(control(FI_CANCEL_WORK, &send), -FI_ENOENT);
  EXPECT_EQ(control(FI_CANCEL_WORK, &count), 0);
  ASSERT_EQ(queue(send), 0);
  ASSERT_EQ(queue(count), 0);
  ASSERT_EQ(control(FI_FLUSH_WORK, nullptr), 0);
  ASSERT_EQ(fi_cntr_add(gate, 5), 0);
  ASSERT_EQ(fi_cntr_add(done, 5), 0);
  EXPECT_EQ(fi_cntr_read(other), 0u);
  EXPECT_EQ(receive(), "triggered") << "no deferred work";
  EXPECT_EQ(receive(), "");
  EXPECT_EQ(control(FI_FLUSH_WORK, &a.cq->fid), -FI_EINVAL);
  EXPECT_EQ(control(FI_CANCEL_WORK, nullptr), -FI_EINVAL);
  EXPECT_EQ(control(FI_GETWAIT, nullptr), -FI_ENOSYS);
}

TEST_F(Triggers, WorkThatCannotBeQueued) {
  Text hello("hello", nodes.to_b);
  fi_op_msg op{a.ep, hello.msg, 0};
  fi_deferred_work send = work(FI_OP_SEND, 1);
  send.op.msg = &op;
  const auto answer = [&](auto&& change) {
    fi_deferred_work changed = send;
    change(changed);
    return queue(changed);
  };
  EXPECT_EQ(answer([](auto& w) { w.triggering_cntr = nullptr; }), -FI_EINVAL);
  EXPECT_EQ(answer([](auto& w) { w.op.msg = nullptr; }), -FI_EINVAL);
  EXPECT_EQ(answer([](auto& w) { w.op_type = static_cast<fi_op_type>(15); }), -FI_ENOSYS);
  fi_op_cntr add{other, 1};
  EXPECT_EQ(answer([&](auto& w) {
              w.op_type = FI_OP_CNTR_ADD;
              w.op.cntr = &add;
            }),
            -FI_EINVAL)
      << "a change of a counter has no completion";
  op.flags = FI_MULTI_RECV;
  EXPECT_EQ(queue(send), -FI_EBADFLAGS);
  op.flags = 0;
  Node elsewhere(options());
  op.ep = elsewhere.ep;
  EXPECT_EQ(queue(send), -FI_EDOMAIN);
  NodeOptions without;
  without.domain = a.domain;
  Node plain(without);
  op.ep = plain.ep;
  EXPECT_EQ(queue(send), -FI_ENOSYS) << "FI_TRIGGER was not asked for";
  op.ep = nullptr;
  EXPECT_EQ(queue(send), -FI_EINVAL);
  EXPECT_EQ(fi_control(&a.domain->fid, FI_QUEUE_WORK, nullptr), -FI_EINVAL);
  fid_ep* early = nullptr;
  ASSERT_EQ(fi_endpoint(a.domain, a.info.get(), &early, nullptr), 0);
  op.ep = early;
  EXPECT_EQ(queue(send), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(&early->fid), 0);
}

}  // namespace
}  // namespace turnout::testing
