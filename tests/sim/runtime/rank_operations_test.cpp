// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_operations.h"

#include <gtest/gtest.h>

#include "tests/provider/loopback_endpoint.h"
#include "tests/sim/runtime/fake_world.h"

namespace turnout::sim {
namespace {

// Two ranks with endpoints of the double; their ids are their ranks.
class RankOperationsTest : public ::testing::Test {
 protected:
  struct Side {
    explicit Side(Job& job)
        : id(static_cast<std::uint32_t>(endpoint.address().id)), operations(job, id) {
      operations.use(endpoint);
      job.addresses.resize(id + 1);
      job.addresses[id] = endpoint.address();
      job.memories.resize(id + 1);
      job.memories[id] = std::make_unique<OneSidedMemory>(
          id, job.cells, [this](void* memory, std::uint64_t bytes) {
            return endpoint.memory().register_memory(memory, bytes,
                                                     kAccessRemoteRead | kAccessRemoteWrite);
          });
    }
    testing::LoopbackEndpoint endpoint{{}};
    std::uint32_t id;
    RankOperations operations;
  };

  RankOperationsTest() {
    options_.ranks = receiver_.id + 1;
    options_.ranks_per_node = options_.ranks;
    options_.keep_partners = true;
  }
  Request start(Side& side, OperationKind kind, std::uint32_t peer, std::uint64_t bytes,
                std::uint64_t tag, std::uint64_t value = 0) {
    Rank::StartAwaiter operation{nullptr, peer, bytes, tag, kind, {}, value};
    EXPECT_TRUE(side.operations.try_start(operation));
    return operation.request;
  }
  Received finish(Side& side, Request request) {
    for (int i = 0; i < 3 && !side.operations.requests().is_done(request); ++i) {
      sender_.endpoint.progress();
      receiver_.endpoint.progress();
      sender_.operations.drain();
      receiver_.operations.drain();
    }
    return side.operations.requests().take(request);
  }

  Options options_;
  FakeWorld world_;
  Job job_{.options = options_, .world = world_};
  Side sender_{job_}, receiver_{job_};
};

TEST_F(RankOperationsTest, AMessageArrivesAndIsCounted) {
  const Request receive = start(receiver_, OperationKind::receive, sender_.id, 1000, 7);
  const Request send = start(sender_, OperationKind::send, receiver_.id, 1000, 7);
  world_.time = 400;
  const Received received = finish(receiver_, receive);
  EXPECT_EQ(received.source, sender_.id);
  EXPECT_EQ(received.tag, 7u);
  EXPECT_EQ(received.bytes, 1000u);
  (void)finish(sender_, send);
  EXPECT_EQ(job_.messages, 1u);
  EXPECT_EQ(job_.bytes, 1000u);
  EXPECT_EQ(job_.latencies.take_sorted(), std::vector<Picoseconds>{400});
  EXPECT_EQ(sender_.operations.partners(), std::vector<std::uint32_t>{receiver_.id});
  EXPECT_TRUE(receiver_.operations.partners().empty());
}

TEST_F(RankOperationsTest, ASendIsStartedAgainWhenThereIsNoRoom) {
  testing::faults().send = {Code::again, "no room"};
  Rank::StartAwaiter operation{nullptr, receiver_.id, 8, 7, OperationKind::send, {}};
  EXPECT_FALSE(sender_.operations.try_start(operation));
  EXPECT_TRUE(sender_.operations.try_start(operation));
  testing::faults().send = {Code::peer_lost, "gone"};
  EXPECT_THROW((void)sender_.operations.try_start(operation), OperationError);
  EXPECT_EQ(job_.messages, 1u);
}

TEST_F(RankOperationsTest, PutsAndGetsAreCheckedAtBothEnds) {
  for (const OperationKind kind : {OperationKind::put, OperationKind::get}) {
    EXPECT_NO_THROW((void)finish(sender_, start(sender_, kind, receiver_.id, 5000, 0)));
  }
}

TEST_F(RankOperationsTest, AnAdditionGivesWhatWasThere) {
  job_.cells.keep(4);
  const auto add = [&] {
    return finish(sender_, start(sender_, OperationKind::add, receiver_.id, 8, 3, 5)).tag;
  };
  EXPECT_EQ(add(), 0u);
  EXPECT_EQ(add(), 5u);
  EXPECT_EQ(sender_.operations.add_in_node(receiver_.id, 3, 1), 10u);
  EXPECT_EQ(add(), 11u);
}

TEST_F(RankOperationsTest, WithoutACheckContentIsNeitherWrittenNorLimitedToABuffer) {
  options_.check_content = false;
  const Request receive = start(receiver_, OperationKind::receive, kAnySource, 1 << 20, kAnyTag);
  const Request send = start(sender_, OperationKind::send, receiver_.id, 1 << 20, 7);
  EXPECT_EQ(finish(receiver_, receive).bytes, std::uint64_t{1} << 20);
  EXPECT_TRUE(sender_.operations.requests().entry(send).content.buffer.empty());
  Rank::StartAwaiter large{nullptr, receiver_.id,        std::uint64_t{1} << 30,
                           7,       OperationKind::send, {}};
  EXPECT_THROW((void)sender_.operations.try_start(large), SimulationError);
}

TEST_F(RankOperationsTest, OperationsWithRanksThatAreNoneAreRefused) {
  for (const OperationKind kind : {OperationKind::send, OperationKind::put, OperationKind::add}) {
    Rank::StartAwaiter operation{nullptr, options_.ranks, 8, 0, kind, {}};
    EXPECT_THROW((void)sender_.operations.try_start(operation), SimulationError);
  }
}

}  // namespace
}  // namespace turnout::sim
