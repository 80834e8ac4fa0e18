// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations between endpoints: every one on every type, refusals, order, little memory and
// few credits, forced changes of channel, peers that go.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/atomic_reference.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

constexpr unsigned kAll = kAccessRemoteRead | kAccessRemoteWrite;

// A request and the memory it needs, whose address stays.
struct Asked {
  AtomicRequest request;
  std::vector<std::byte> operands, compare, result;
  iovec pieces[3]{};

  AtomicRequest& of(AtomicForm form, AtomicOp op, AtomicType type, std::size_t count) {
    const std::size_t bytes = count * size_of(type);
    request = {};
    request.form = form;
    request.op = op;
    request.type = type;
    request.count = count;
    const auto name = [&](std::vector<std::byte>& memory, iovec& of_it, bool needed,
                          std::span<const iovec>& in) {
      memory.assign(needed ? bytes : 0, std::byte{0});
      of_it = piece(memory);
      in = {&of_it, needed ? 1u : 0u};
    };
    name(operands, pieces[0], has_operands(op), request.operands);
    name(compare, pieces[1], form == AtomicForm::compare, request.compare);
    name(result, pieces[2], form != AtomicForm::update, request.result);
    return request;
  }
};

// Words of one endpoint that all may touch.
struct Words {
  TestWorld& world;
  std::size_t owner;
  std::vector<std::uint64_t> words;
  MemoryKey key;

  Words(TestWorld& in, std::size_t at, std::size_t count, unsigned access = kAll)
      : world(in), owner(at), words(count) {
    auto made = world[at].memory().register_memory(words.data(), 8 * count, access);
    EXPECT_TRUE(made.ok());
    key = made.value();
  }
  ~Words() { world[owner].memory().deregister_memory(key); }
  [[nodiscard]] std::uint64_t address(std::size_t i = 0) const {
    return reinterpret_cast<std::uint64_t>(words.data() + i);
  }
  AtomicRequest& ask(Asked& asked, std::size_t from, AtomicForm form, AtomicOp op,
                     std::uint64_t operand, std::size_t at = 0) {
    AtomicRequest& request = asked.of(form, op, AtomicType::uint64, 1);
    if (has_operands(op)) put(operand, asked.operands.data());
    request.peer = world.peer(from, owner);
    request.key = key.remote;
    request.remote_address = address(at);
    request.report = world.report(from, &asked);
    return request;
  }
};

Completion ended(TestWorld& world, std::size_t at) {
  EXPECT_TRUE(world.until([&] { return world.queue(at).size() > 0 || world.queue(at).has_error(); },
                          200000));
  if (world.queue(at).has_error()) {
    ADD_FAILURE() << world.queue(at).pop_error().status.text();
    return {};
  }
  if (world.queue(at).size() == 0) return {};
  return take(world.queue(at));
}

ErrorCompletion failed(TestWorld& world, std::size_t at) {
  EXPECT_TRUE(world.until([&] { return world.queue(at).has_error(); }, 200000));
  EXPECT_EQ(world.queue(at).size(), 0u);
  if (!world.queue(at).has_error()) return {};
  return world.queue(at).pop_error();
}

// A message each way: what chooses and changes channels counts messages.
void chat(TestWorld& world) {
  auto out = pattern(8, 1);
  std::vector<std::byte> in(8);
  const iovec from = piece(out), to = piece(in);
  for (const std::size_t at : {0u, 1u}) {
    const Report mine = world.report(at, nullptr), other = world.report(1 - at, nullptr);
    ASSERT_TRUE(world[1 - at].recv(tagged_recv(world.peer(1 - at, at), to, 1, other)).ok());
    ASSERT_TRUE(world[at].send(tagged_send(world.peer(at, 1 - at), from, 1, mine)).ok());
    (void)ended(world, at);
    (void)ended(world, 1 - at);
  }
}

class Atomics : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static Overrides with(Overrides more = {}) {
    const char* const start = getenv("TURNOUT_DEFAULT_TRANSPORT");
    const bool ud = start != nullptr && std::string_view(start) == "ud";
    if (GetParam() == "switching") {
      more.emplace_back("test_switch_every", "1");
    } else if (GetParam() == "start-service") {
      more.emplace_back("policy", ud ? "static:ud-sendrecv" : "static:dc-sendrecv");
    } else if (GetParam() == "rings") {
      more.emplace_back("policy", ud ? "rc-rdma-od" : "dc-rdma-od");
    } else if (GetParam() == "connections") {
      more.emplace_back("policy", ud ? "static:rc-rdma" : "srq");
    }
    return more;
  }
};

TEST_P(Atomics, EveryOperationOnEveryType) {
  TestWorld world(2, with());
  std::mt19937_64 random(3);
  alignas(16) std::byte memory[kAtomicLimit];
  const auto key = world[1].memory().register_memory(memory, sizeof memory, kAll);
  ASSERT_TRUE(key.ok());
  chat(world);
  world.progress_all(2000);
  for_each_atomic_type([&]<class T>(T, AtomicType type) {
    chat(world);
    for (const AtomicForm form : kAtomicForms) {
      for (std::size_t o = 0; o < kAtomicOps; ++o) {
        const auto op = static_cast<AtomicOp>(o);
        if (!exists(form, op, type)) continue;
        const std::size_t count = random() % 2 == 0 ? 1 + random() % 3 : most_elements(form, type);
        Asked asked;
        AtomicRequest& request = asked.of(form, op, type, count);
        std::vector<T> before(count), after(count);
        for (std::size_t i = 0; i < count; ++i) {
          const T operand = random_value<T>(random);
          before[i] = random_value<T>(random);
          const T compare = random() % 2 == 0 ? before[i] : random_value<T>(random);
          after[i] = reference(op, before[i], operand, compare);
          put(before[i], memory + i * sizeof(T));
          if (has_operands(op)) put(operand, asked.operands.data() + i * sizeof(T));
          if (form == AtomicForm::compare) put(compare, asked.compare.data() + i * sizeof(T));
        }
        request.peer = world.peer(0, 1);
        request.key = key.value().remote;
        request.remote_address = reinterpret_cast<std::uint64_t>(memory);
        request.report = world.report(0, &asked);
        ASSERT_TRUE(world[0].atomic(request).ok());
        std::fill(asked.operands.begin(), asked.operands.end(), std::byte{0xee});
        const Completion done = ended(world, 0);
        ASSERT_EQ(done.context, &asked);
        EXPECT_EQ(done.flags, kAtomic | (form == AtomicForm::update ? kRmaWrite : kRmaRead));
        EXPECT_EQ(done.length, count * sizeof(T));
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(get<T>(memory + i * sizeof(T)), after[i])
              << "operation " << o << " on type " << static_cast<int>(type);
          if (form != AtomicForm::update) {
            ASSERT_EQ(get<T>(asked.result.data() + i * sizeof(T)), before[i]);
          }
        }
      }
    }
  });
  EXPECT_EQ(world.queue(1).size(), 0u) << "the target learns nothing";
  const DirectionReport received = world[1].report().peers.at(0).receive;
  EXPECT_GE(received.switches, GetParam() == "switching" ? 10u : 0u);
  EXPECT_EQ(received.switches > 0, GetParam() != "default" && GetParam() != "start-service");
  world[1].memory().deregister_memory(key.value());
}

// Everything in pieces, as a vector of buffers gives it.
TEST_P(Atomics, OperandsAndResultsInPieces) {
  TestWorld world(2, with());
  Words there(world, 1, 4);
  there.words = {10, 20, 30, 40};
  std::uint64_t operands[4] = {1, 2, 3, 4}, compare[4] = {10, 0, 30, 0}, result[4] = {};
  const iovec three[] = {{operands, 8}, {operands + 1, 16}, {operands + 3, 8}};
  const iovec two[] = {{compare, 16}, {compare + 2, 16}};
  const iovec four[] = {{result, 8}, {result + 1, 8}, {result + 2, 12}, {&result[3], 0}};
  Asked asked;
  AtomicRequest& request = there.ask(asked, 0, AtomicForm::compare, AtomicOp::swap_if_equal, 0);
  request.count = 4;
  request.operands = three;
  request.compare = two;
  const iovec tail[] = {four[0], four[1], {result + 2, 16}};
  request.result = tail;
  ASSERT_TRUE(world[0].atomic(request).ok());
  (void)ended(world, 0);
  EXPECT_EQ(there.words, (std::vector<std::uint64_t>{1, 20, 3, 40}));
  EXPECT_EQ((std::vector<std::uint64_t>(result, result + 4)),
            (std::vector<std::uint64_t>{10, 20, 30, 40}));
}

TEST_P(Atomics, WhatTheTargetRefusesIsAnErrorAndThePairGoesOn) {
  TestWorld world(2, with());
  Words there(world, 1, 4), readable(world, 1, 1, kAccessRemoteRead),
      writable(world, 1, 1, kAccessRemoteWrite);
  Asked asked;
  const auto refused = [&](AtomicRequest& request) {
    ASSERT_TRUE(world[0].atomic(request).ok());
    const ErrorCompletion error = failed(world, 0);
    EXPECT_EQ(error.status.code(), Code::permission);
    EXPECT_EQ(error.context, request.inject ? nullptr : &asked);
    EXPECT_NE(error.flags & kAtomic, 0u);
  };
  const auto fetch = AtomicForm::fetch, update = AtomicForm::update;
  AtomicRequest* request = &there.ask(asked, 0, fetch, AtomicOp::sum, 1);
  ++request->key;
  refused(*request);
  request = &there.ask(asked, 0, update, AtomicOp::sum, 1);
  request->remote_address = there.address() - 8;
  refused(*request);
  request = &there.ask(asked, 0, update, AtomicOp::sum, 1);
  request->remote_address = there.address() + 32;
  refused(*request);
  request->remote_address = ~std::uint64_t{7};
  refused(*request);
  request->inject = true;
  request->report.context = nullptr;
  request->report.queue = nullptr;
  refused(*request);
  refused(readable.ask(asked, 0, update, AtomicOp::write, 1));
  refused(readable.ask(asked, 0, fetch, AtomicOp::sum, 1));
  refused(writable.ask(asked, 0, fetch, AtomicOp::read, 1));
  refused(writable.ask(asked, 0, fetch, AtomicOp::sum, 1));
  EXPECT_EQ(there.words, (std::vector<std::uint64_t>(4)));
  ASSERT_TRUE(world[0].atomic(readable.ask(asked, 0, fetch, AtomicOp::read, 0)).ok());
  (void)ended(world, 0);
  ASSERT_TRUE(world[0].atomic(writable.ask(asked, 0, update, AtomicOp::write, 9)).ok());
  (void)ended(world, 0);
  EXPECT_EQ(writable.words[0], 9u);
}

TEST_P(Atomics, WhatCannotBeAskedForIsRefusedAtOnce) {
  TestWorld world(2, with());
  Words there(world, 1, 64);
  Asked asked;
  const auto code = [&](AtomicRequest& request) { return world[0].atomic(request).code(); };
  const auto fresh = [&]() -> AtomicRequest& {
    return there.ask(asked, 0, AtomicForm::fetch, AtomicOp::sum, 1);
  };
  AtomicRequest* request = &fresh();
  request->peer = 77;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->count = 0;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->count = 2;
  EXPECT_EQ(code(*request), Code::invalid) << "more than the operands";
  request = &asked.of(AtomicForm::fetch, AtomicOp::sum, AtomicType::uint64,
                      most_elements(AtomicForm::fetch, AtomicType::uint64) + 1);
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->result = {};
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->compare = request->operands;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->remote_address += 4;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->op = AtomicOp::swap_if_equal;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->op = AtomicOp::bit_or;
  request->type = AtomicType::float64;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->type = static_cast<AtomicType>(kAtomicTypes);
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->has_remote_data = true;
  EXPECT_EQ(code(*request), Code::invalid);
  request = &fresh();
  request->key = std::uint64_t{1} << 32;
  EXPECT_EQ(code(*request), Code::permission);
  world.progress_all(100);
  EXPECT_EQ(world.queue(0).size(), 0u);
  EXPECT_FALSE(world.queue(0).has_error());
}

TEST_P(Atomics, OnItself) {
  TestWorld world(1, with({{"credits", "2"}, {"credits_first", "1"}}));
  Words here(world, 0, 1);
  std::deque<Asked> all(300);
  for (Asked& asked : all) {
    const AtomicRequest& request = here.ask(asked, 0, AtomicForm::fetch, AtomicOp::sum, 1);
    ASSERT_TRUE(world.until([&] { return world[0].atomic(request).ok(); }));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(ended(world, 0).context, &all[i]);
    EXPECT_EQ(get<std::uint64_t>(all[i].result.data()), i);
  }
  EXPECT_EQ(here.words[0], all.size());
}

TEST_P(Atomics, TheTargetIsToldOfRemoteData) {
  TestWorld world(2, with());
  Words there(world, 1, 1);
  int context = 0;
  world[1].set_remote_access({.writes = world.report(1, &context)});
  Asked asked;
  AtomicRequest& request = there.ask(asked, 0, AtomicForm::update, AtomicOp::sum, 5);
  request.has_remote_data = true;
  request.remote_data = 0x123456789abcdef;
  ASSERT_TRUE(world[0].atomic(request).ok());
  (void)ended(world, 0);
  const Completion told = ended(world, 1);
  EXPECT_EQ(told.flags, kAtomic | kRemoteWrite | kRemoteData);
  EXPECT_EQ(told.data, request.remote_data);
  EXPECT_EQ(told.length, 8u);
  EXPECT_EQ(told.context, &context);
  EXPECT_EQ(told.source, world.peer(1, 0));
  request.key ^= 1;
  ASSERT_TRUE(world[0].atomic(request).ok());
  (void)failed(world, 0);
  EXPECT_EQ(world.queue(1).size(), 0u) << "it was not carried out";
}

// Operations that do not commute, without waiting for one of them.
TEST_P(Atomics, OfOneInitiatorAreInOrder) {
  TestWorld world(2, with({{"credits", "4"}}));
  Words there(world, 1, 1);
  chat(world);
  std::mt19937_64 random(11);
  std::deque<Asked> all(500);
  std::vector<std::uint64_t> expected;
  std::uint64_t value = 0;
  for (Asked& asked : all) {
    const AtomicOp ops[] = {AtomicOp::sum,     AtomicOp::prod, AtomicOp::write, AtomicOp::bit_xor,
                            AtomicOp::bit_and, AtomicOp::max,  AtomicOp::read};
    const AtomicOp op = ops[random() % 7];
    const std::uint64_t operand = random();
    expected.push_back(value);
    value = reference<std::uint64_t>(op, value, operand, 0);
    const AtomicRequest& request = there.ask(asked, 0, AtomicForm::fetch, op, operand);
    ASSERT_TRUE(world.until([&] { return world[0].atomic(request).ok(); }));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    (void)ended(world, 0);
    if (testing::Test::HasFailure()) return;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(get<std::uint64_t>(all[i].result.data()), expected[i]) << i;
  }
  EXPECT_EQ(there.words[0], value);
}

// All add to all the others' words, with messages between, more than there is room for anywhere:
// nobody's requests may wait for somebody's answers. Every sum is fetched once.
void play(unsigned seed, const Overrides& settings, std::size_t endpoints, std::size_t each) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  TestWorld world(endpoints, settings, seed % 2);
  std::deque<Words> words;
  for (std::size_t i = 0; i < endpoints; ++i) words.emplace_back(world, i, 1);
  struct Adder {
    std::deque<Asked> asked;
    std::vector<std::size_t> to;
    std::size_t ended = 0;
  };
  std::vector<Adder> adders(endpoints);
  std::vector<std::byte> out = pattern(3000, seed), in(3000);
  std::size_t sent = 0, received = 0, expected = 0;
  const auto drain = [&](std::size_t at) {
    CompletionQueue& queue = world.queue(at);
    ASSERT_FALSE(queue.has_error()) << queue.pop_error().status.text();
    while (queue.size() > 0) {
      const Completion c = take(queue);
      if ((c.flags & kAtomic) != 0) {
        // Answers of one target come in the order of its requests, those of several mixed.
        ++adders[at].ended;
      } else if ((c.flags & kRecv) != 0) {
        ++received;
      } else {
        ++sent;
      }
    }
  };
  std::size_t total = 0;
  const std::size_t all = endpoints * each;
  for (int step = 0; total < all || sent < expected || received < expected; ++step) {
    ASSERT_LT(step, 3'000'000) << "hangs";
    const std::size_t at = random() % endpoints, to = random() % endpoints;
    Adder& adder = adders[at];
    if (adder.asked.size() < each) {
      Asked& asked = adder.asked.emplace_back();
      AtomicRequest& request = words[to].ask(asked, at, AtomicForm::fetch, AtomicOp::sum, 1);
      const Status status = world[at].atomic(request);
      if (status.ok()) {
        adder.to.push_back(to);
      } else {
        ASSERT_EQ(status.code(), Code::again) << status.text();
        adder.asked.pop_back();
      }
      if (random() % 8 == 0) {
        const iovec from = piece(out), into = piece(in);
        if (world[at]
                .send(tagged_send(world.peer(at, to), from, 1, world.report(at, nullptr)))
                .ok()) {
          ASSERT_TRUE(
              world[to].recv(tagged_recv(kAnyPeer, into, 1, world.report(to, nullptr))).ok());
          ++expected;
        }
      }
    }
    for (auto n = random() % 6; n > 0; --n) world[at].progress();
    world.clock().advance(static_cast<Nanoseconds>(random() % 20000));
    drain(at);
    if (testing::Test::HasFatalFailure()) return;
    total = 0;
    for (const Adder& a : adders) total += a.ended;
  }
  // Each word's sums were fetched once, and those of one initiator in the order it asked.
  for (std::size_t w = 0; w < endpoints; ++w) {
    std::vector<std::uint64_t> seen;
    for (const Adder& adder : adders) {
      std::uint64_t last = 0;
      for (std::size_t i = 0; i < adder.to.size(); ++i) {
        if (adder.to[i] != w) continue;
        const auto value = get<std::uint64_t>(adder.asked[i].result.data());
        if (!seen.empty() && last != 0) {
          EXPECT_GT(value, last);
        }
        last = value;
        seen.push_back(value);
      }
    }
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(words[w].words[0], seen.size());
    for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
  }
  for (std::size_t i = 0; i < endpoints; ++i) {
    const EndpointReport report = world[i].report();
    EXPECT_LE(report.peak, report.budget);
  }
}

TEST_P(Atomics, AllAtOnceWithFewCreditsAndBuffers) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    play(seed,
         with({{"credits", "2"},
               {"credits_first", "1"},
               {"send_buffers", "8"},
               {"ring_entries", "2"},
               {"unexpected_memory", "4KiB"}}),
         2 + seed % 3, 150);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(Atomics, AllAtOnceWithTheDefaults) {
  for (unsigned seed = 11; seed <= 13; ++seed) play(seed, with(), 3, 300);
}

// The receiver's program waits for its own operation while messages that nobody waits for have
// taken all that their sender may send: the answer comes all the same.
TEST_P(Atomics, AnswersComeBehindMessagesNobodyWaitsFor) {
  TestWorld world(2,
                  with({{"credits", "4"}, {"unexpected_memory", "4KiB"}, {"keepalive", "10ms"}}));
  Words there(world, 1, 1);
  auto out = pattern(2000, 1);
  const iovec from = piece(out);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(
        world[1].send(tagged_send(world.peer(1, 0), from, 1, world.report(1, nullptr))).ok());
  }
  world.progress_all(2000);
  EXPECT_LT(world.queue(1).size(), 60u) << "they fill what there is";
  Asked asked;
  ASSERT_TRUE(world[0].atomic(there.ask(asked, 0, AtomicForm::fetch, AtomicOp::sum, 3)).ok());
  EXPECT_EQ(ended(world, 0).context, &asked);
  EXPECT_EQ(there.words[0], 3u);
}

// `dies`: without a word.
void lose_target(const Overrides& settings, bool dies) {
  TestWorld world(3, settings);
  Words beside(world, 2, 1);
  auto gone = std::make_unique<Words>(world, 1, 1);
  Asked first;
  ASSERT_TRUE(world[0].atomic(gone->ask(first, 0, AtomicForm::fetch, AtomicOp::sum, 1)).ok());
  (void)ended(world, 0);
  std::deque<Asked> all(3 * kAtomicWindow);
  for (Asked& asked : all) {
    ASSERT_TRUE(world[0].atomic(gone->ask(asked, 0, AtomicForm::fetch, AtomicOp::sum, 1)).ok());
  }
  const PeerId lost = world.peer(0, 1);
  gone.reset();
  if (dies) world[1].abandon();
  world.close(1);
  for (const Asked& asked : all) {
    ASSERT_TRUE(world.until(
        [&] {
          world.clock().advance(1'000'000);
          return world.queue(0).has_error();
        },
        2'000'000));
    const ErrorCompletion error = world.queue(0).pop_error();
    EXPECT_EQ(error.context, &asked);
    EXPECT_EQ(error.status.code(), Code::peer_lost);
    EXPECT_EQ(error.flags, kAtomic | kRmaRead);
  }
  AtomicRequest& more = beside.ask(first, 0, AtomicForm::fetch, AtomicOp::sum, 1);
  ASSERT_TRUE(world[0].atomic(more).ok()) << "others go on";
  EXPECT_EQ(ended(world, 0).context, &first);
  more.peer = lost;
  EXPECT_EQ(world[0].atomic(more).code(), Code::peer_lost);
}

TEST_P(Atomics, EndWithErrorsWhenTheirTargetGoes) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies);
    // The adapter gives up after some 4 us x 2^8 x 2.
    lose_target(with({{"ud_timeout", "200ms"},
                      {"keepalive", "50ms"},
                      {"ack_timeout", "8"},
                      {"retry_count", "1"}}),
                dies);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Atomics,
                         testing::Values("default", "switching", "start-service", "rings",
                                         "connections"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return c == ':' || c == '-'; });
                           return name;
                         });

// A budget with no room for a peer's answers stops that peer's stream until there is; nothing is
// carried out before.
TEST(AtomicsScarcity, NoRoomForAnswersHoldsRequestsUp) {
  TestWorld world(3, {{"receive_buffers", "32"},
                      {"control_buffers", "32"},
                      {"send_buffers", "16"},
                      {"rc_pool", "1"},
                      {"max_active_rc", "1"},
                      {"memory_budget", "1250KiB"}});
  Words there(world, 2, 1);
  auto out = pattern(2000, 3);
  std::vector<std::byte> in(2000);
  const iovec from = piece(out), to = piece(in);
  // The second one is known there.
  ASSERT_TRUE(world[2].recv(tagged_recv(world.peer(2, 1), to, 9, world.report(2, nullptr))).ok());
  ASSERT_TRUE(world[1].send(tagged_send(world.peer(1, 2), from, 9, world.report(1, nullptr))).ok());
  (void)ended(world, 1);
  (void)ended(world, 2);
  std::size_t sent = 0;
  // The third one's memory is full of what the first one sends.
  for (int i = 0; i < 5000; ++i) {
    while (world[0].send(tagged_send(world.peer(0, 2), from, 1, world.report(0, nullptr))).ok()) {
      ++sent;
    }
    world.progress_all();
  }
  Asked asked;
  ASSERT_TRUE(world[1].atomic(there.ask(asked, 1, AtomicForm::fetch, AtomicOp::sum, 1)).ok());
  world.progress_all(3000);
  EXPECT_EQ(world.queue(1).size(), 0u);
  EXPECT_EQ(there.words[0], 0u);
  for (std::size_t i = 0; i < sent; ++i) {
    ASSERT_TRUE(world[2].recv(tagged_recv(world.peer(2, 0), to, 1, world.report(2, nullptr))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(2).size() == 1; })) << i;
    take(world.queue(2));
  }
  EXPECT_EQ(ended(world, 1).context, &asked);
  EXPECT_EQ(there.words[0], 1u);
  EXPECT_LE(world[2].report().peak, world[2].report().budget);
}

}  // namespace
}  // namespace turnout
