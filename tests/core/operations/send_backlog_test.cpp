// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/send_backlog.h"

#include <gtest/gtest.h>

#include "tests/support/component_world.h"

namespace turnout {
namespace {

struct BacklogWorld : ComponentWorld {
  SendOperation& take(Peer& peer) {
    SendOperation& operation = *records.sends.take();
    operation.peer = &peer;
    operation.report = {&completions, &completions, nullptr, &operation};
    return operation;
  }
  CompletionQueue completions;
  SendBacklog backlog{*this};
};

TEST(SendBacklog, FindsAnAnnouncedOperationForItsOwnPeerOnly) {
  BacklogWorld world;
  Peer& peer = world.add_peer();
  Peer& other = world.add_peer();
  SendOperation& operation = world.take(peer);
  world.backlog.await_fin(operation);
  EXPECT_EQ(world.backlog.find_awaiting(peer, operation.id), nullptr);  // the peer cannot know it
  operation.announced = true;
  EXPECT_EQ(world.backlog.find_awaiting(peer, operation.id), &operation);
  EXPECT_EQ(world.backlog.find_awaiting(other, operation.id), nullptr);
  EXPECT_EQ(world.backlog.find_awaiting(peer, operation.id + 1), nullptr);
}

TEST(SendBacklog, NeverFindsALaterOperationByTheIdOfAnEarlierOne) {
  BacklogWorld world;
  Peer& peer = world.add_peer();
  SendOperation& first = world.take(peer);
  world.backlog.await_fin(first);
  const std::uint64_t id = first.id;
  world.backlog.end_send(first, {});
  SendOperation& second = world.take(peer);
  world.backlog.await_fin(second);
  second.announced = true;
  EXPECT_EQ(static_cast<std::uint32_t>(second.id), static_cast<std::uint32_t>(id));  // its slot
  EXPECT_EQ(world.backlog.find_awaiting(peer, id), nullptr);
  EXPECT_EQ(world.backlog.find_awaiting(peer, second.id), &second);
}

TEST(SendBacklog, PutsAnOperationThatCannotBeSentAheadOfTheOthers) {
  BacklogWorld world;
  Peer& peer = world.add_peer();
  SendOperation& later = world.take(peer);
  SendOperation& completion = world.take(peer);
  world.backlog.enqueue(later);
  world.above.answer = false;
  world.backlog.send_before_backlog(completion);
  EXPECT_EQ(peer.state->tx.backlog.first(), &completion);
  EXPECT_EQ(peer.state->tx.backlog.last(), &later);
  EXPECT_EQ(world.backlog.backlogged().size(), 1u);  // listed once
}

TEST(SendBacklog, ReportsNoContextOfAnInjectedMessageThatFailed) {
  BacklogWorld world;
  Peer& peer = world.add_peer();
  for (const std::size_t bytes : {InjectCopy::kMost, InjectCopy::kMost + 1}) {
    const std::uint64_t before = world.context.account.available();
    SendOperation& injected = world.take(peer);
    injected.copy = world.records.take_copy(bytes);
    ASSERT_NE(injected.copy, nullptr);
    injected.iov.total = bytes;
    EXPECT_EQ(world.records.copies.in_use(), bytes <= InjectCopy::kMost ? 1u : 0u);
    world.backlog.end_send(injected, Status{Code::peer_lost, "lost"});
    EXPECT_FALSE(world.completions.has_error());
    EXPECT_EQ(world.records.copies.in_use(), 0u);
    if (bytes > InjectCopy::kMost) {
      EXPECT_EQ(world.context.account.available(), before);
    }
  }
  world.backlog.end_send(world.take(peer), Status{Code::peer_lost, "lost"});
  EXPECT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.records.sends.in_use(), 0u);
}

}  // namespace
}  // namespace turnout
