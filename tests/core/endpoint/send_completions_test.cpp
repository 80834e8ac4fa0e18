// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/send_completions.h"

#include <gtest/gtest.h>

#include "tests/support/parts_world.h"

namespace turnout {
namespace {

struct SendWorld : PartsWorld {
  SendWorld() { make_queues(); }
  void post(const Peer& peer, std::uint32_t buffer) {
    SendRecord record;
    record.kind = SendRecord::Kind::message;
    record.pool = SendRecord::Pool::data;
    record.peer = peer.id;
    record.buffer = buffer;
    EXPECT_TRUE(queue(Purpose::data).post(record).ok());
  }
  // Of the data queue's request number `n`, of its first epoch.
  void complete_data(std::uint32_t n, ibv_wc_status status) { complete(n, status); }
  // Buffers that can be taken.
  std::size_t free_buffers() {
    std::vector<std::uint32_t> taken;
    for (std::uint32_t b; (b = resources.send_pool.take()) != kNoBuffer;) taken.push_back(b);
    for (const std::uint32_t b : taken) resources.send_pool.give_back(b);
    return taken.size();
  }
  SendCompletions completions{*this};
};

TEST(SendCompletions, ASignalledRequestRetiresThoseBeforeIt) {
  SendWorld world;
  Peer& peer = world.add_peer();
  for (int n = 0; n < 3; ++n) world.post(peer, world.resources.send_pool.take());
  EXPECT_EQ(world.free_buffers(), PartsWorld::kBuffers - 3);
  EXPECT_FALSE(world.completions.poll_send_queue());
  world.complete_data(1, IBV_WC_SUCCESS);
  EXPECT_TRUE(world.completions.poll_send_queue());
  EXPECT_EQ(world.free_buffers(), PartsWorld::kBuffers - 1);
}

TEST(SendCompletions, AFailedRequestLosesItsPeerAndThoseOfOthersArePostedAgain) {
  SendWorld world;
  Peer& gone = world.add_peer();
  Peer& other = world.add_peer();
  world.post(gone, world.resources.send_pool.take());
  world.post(other, world.resources.send_pool.take());
  world.post(gone, world.resources.send_pool.take());
  world.complete_data(0, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(world.completions.poll_send_queue());
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.above.loss.code(), Code::peer_lost);
  ASSERT_EQ(world.queue(Purpose::data).posted.size(), 4u);
  EXPECT_EQ(world.queue(Purpose::data).posted[3].peer, other.id);
  EXPECT_EQ(world.free_buffers(), PartsWorld::kBuffers - 1);
  world.complete_data(1, IBV_WC_WR_FLUSH_ERR);  // of the earlier epoch
  EXPECT_TRUE(world.completions.poll_send_queue());
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
}

// A key that is refused ends one receive; but a peer that learnt of its loss ended its sends.
TEST(SendCompletions, AReadThatALostPeerRefusesEndsWithTheReasonOfTheLoss) {
  for (const bool lost : {false, true}) {
    SendWorld world;
    Peer& peer = world.add_peer();
    Transfer& transfer = *world.records.transfers.take();
    transfer.kind = Transfer::Kind::read;
    transfer.peer = &peer;
    transfer.total = transfer.posted = 8;
    transfer.in_flight = 1;
    transfer.report = world.report();
    SendRecord record;
    record.kind = SendRecord::Kind::transfer;
    record.opcode = IBV_WR_RDMA_READ;
    record.peer = peer.id;
    record.transfer = &transfer;
    ASSERT_TRUE(world.queue(Purpose::data).post(record).ok());
    if (lost) {
      peer.lost = true;
      peer.state.make().loss = Status{Code::peer_lost, "its messages fill the budget"};
    }
    world.complete_data(0, IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(world.completions.poll_send_queue());
    CompletionQueue& reported = world.PartsWorld::completions;
    ASSERT_TRUE(reported.has_error());
    EXPECT_EQ(reported.pop_error().status.code(), lost ? Code::peer_lost : Code::permission);
    EXPECT_EQ(world.records.transfers.in_use(), 0u);
  }
}

TEST(SendCompletions, CompletionsOfUnknownQueuesAreIgnored) {
  SendWorld world;
  PartsWorld::complete(std::uint64_t{99} << 40, IBV_WC_SUCCESS);
  EXPECT_TRUE(world.completions.poll_send_queue());
}

TEST(SendCompletions, AProbeThatWasAcknowledgedIsASignOfLife) {
  SendWorld world;
  Peer& peer = world.add_peer();
  peer.probes = 1;
  SendRecord probe;
  probe.kind = SendRecord::Kind::probe;
  probe.peer = peer.id;
  world.completions.retire(probe);
  EXPECT_EQ(peer.probes, 0u);
  EXPECT_TRUE(peer.heard_since_tick);
}

TEST(SendCompletions, AChangeWaitsForItsLastFlush) {
  SendWorld world;
  Peer& peer = world.add_peer();
  peer.state.make().tx.flushes = 2;
  peer.tx.state = SendState::flushing;
  peer.change.make().answer.kind = ChannelKind::dc_rdma;
  SendRecord flush;
  flush.kind = SendRecord::Kind::flush;
  flush.peer = peer.id;
  world.completions.retire(flush);
  EXPECT_EQ(peer.tx.kind, ChannelKind::dc_sendrecv);
  world.completions.retire(flush);
  EXPECT_EQ(peer.tx.kind, ChannelKind::dc_rdma);
}

}  // namespace
}  // namespace turnout
