// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/atomic_engine.h"

#include <gtest/gtest.h>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

struct AtomicWorld : OperationsWorld {
  // Adds 5 to the peer's value, and fetches it.
  [[nodiscard]] Status fetch_and_add(std::uint64_t address = 0x1000) {
    const iovec operand{&five, sizeof five}, result{&fetched, sizeof fetched};
    AtomicRequest request;
    request.peer = peer.id;
    request.form = AtomicForm::fetch;
    request.count = 1;
    request.operands = {&operand, 1};
    request.result = {&result, 1};
    request.remote_address = address;
    request.key = 3;
    request.report = report(&fetched);
    const Status status = atomic_engine.atomic_now(request);
    complete(data);
    return status;
  }
  void take_answer(std::uint32_t number, Code code, std::int64_t value) {
    wire::Header header;
    header.type = wire::Type::answer;
    header.tag = number;
    header.data = static_cast<std::uint64_t>(code);
    header.length = code == Code::ok ? sizeof value : 0;
    atomic_engine.on_answer(peer, header, reinterpret_cast<const std::byte*>(&value));
  }
  // The peer's request: the same for our value.
  void take_request(std::uint64_t key) {
    std::array<std::byte, sizeof(wire::Atomic) + sizeof five> bytes;
    wire::Atomic request;
    request.address = reinterpret_cast<std::uint64_t>(&value);
    request.rkey = static_cast<std::uint32_t>(key);
    request.number = next_number++;
    request.count = 1;
    request.form = AtomicForm::fetch;
    request.op = AtomicOp::sum;
    request.type = AtomicType::int64;
    std::memcpy(bytes.data(), &request, sizeof request);
    std::memcpy(bytes.data() + sizeof request, &five, sizeof five);
    wire::Header header;
    header.type = wire::Type::atomic;
    header.length = bytes.size();
    ASSERT_TRUE(atomic_engine.may_answer(peer));
    atomic_engine.on_request(peer, header, bytes.data());
  }

  Peer& peer = add_known_peer(100);
  std::int64_t five = 5, fetched = 0, value = 30;
  std::uint32_t next_number = 7;
};

TEST(AtomicEngine, HasABoundedNumberOfRequestsWithoutAnAnswer) {
  AtomicWorld world;
  for (std::uint32_t i = 0; i < kAtomicWindow + 3; ++i) EXPECT_TRUE(world.fetch_and_add().ok());
  EXPECT_EQ(world.data.posted.size(), kAtomicWindow);
  EXPECT_EQ(world.peer.state->tx.backlog.first() != nullptr, true);
  EXPECT_EQ(world.records.atomics.in_use(), kAtomicWindow + 3);
}

TEST(AtomicEngine, StoresWhatTheAnswerFetched) {
  AtomicWorld world;
  EXPECT_TRUE(world.fetch_and_add().ok());
  world.take_answer(0, Code::ok, 77);
  EXPECT_EQ(world.fetched, 77);
  EXPECT_EQ(world.next_completion().context, &world.fetched);
  EXPECT_FALSE(owes_answers(world.peer));
}

TEST(AtomicEngine, ReportsThatTheTargetDeniedTheOperation) {
  AtomicWorld world;
  EXPECT_TRUE(world.fetch_and_add().ok());
  world.take_answer(0, Code::permission, 77);
  EXPECT_EQ(world.fetched, 0);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::permission);
}

TEST(AtomicEngine, LosesAPeerWhoseAnswerIsNotToTheOldestRequest) {
  AtomicWorld world;
  world.take_answer(0, Code::ok, 77);  // to nothing
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_TRUE(world.fetch_and_add().ok());
  EXPECT_TRUE(world.fetch_and_add().ok());
  world.take_answer(1, Code::ok, 77);
  EXPECT_EQ(world.above.count("lose_peer"), 2u);
  EXPECT_EQ(world.completions.size(), 0u);
}

TEST(AtomicEngine, RefusesAnAddressThatIsNotAligned) {
  AtomicWorld world;
  EXPECT_EQ(world.fetch_and_add(0x1004).code(), Code::invalid);
  EXPECT_EQ(world.records.atomics.in_use(), 0u);
}

TEST(AtomicEngine, CarriesARequestOutOnceAndAnswersWhenItCan) {
  AtomicWorld world;
  const std::uint64_t key = world.context.domain
                                ->register_memory(&world.value, sizeof world.value,
                                                  kAccessRemoteRead | kAccessRemoteWrite)
                                .value()
                                .remote;
  world.peer.tx.credits = 0;
  world.take_request(key);
  EXPECT_EQ(world.value, 35);
  EXPECT_FALSE(world.atomic_engine.pump_answers());
  world.peer.tx.credits = 1;
  EXPECT_TRUE(world.atomic_engine.pump_answers());
  EXPECT_FALSE(world.atomic_engine.pump_answers());
  EXPECT_EQ(world.value, 35);
  ASSERT_EQ(world.data.posted.size(), 1u);
  const wire::Header header = MessagingWorld::header_in(world.data.posted[0]);
  EXPECT_EQ(header.type, wire::Type::answer);
  EXPECT_EQ(header.tag, 7u);
  EXPECT_EQ(header.data, 0u);
  std::int64_t before = 0;
  std::memcpy(&before,
              reinterpret_cast<const std::byte*>(world.data.posted[0].local) + sizeof header,
              sizeof before);
  EXPECT_EQ(before, 30);
}

TEST(AtomicEngine, ChangesNoMemoryThatTheKeyDoesNotAllow) {
  AtomicWorld world;
  const std::uint64_t key =
      world.context.domain->register_memory(&world.value, sizeof world.value, kAccessRemoteRead)
          .value()
          .remote;
  world.take_request(key);
  EXPECT_EQ(world.value, 30);
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::header_in(world.data.posted[0]).data,
            static_cast<std::uint64_t>(Code::permission));
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
}

}  // namespace
}  // namespace turnout
