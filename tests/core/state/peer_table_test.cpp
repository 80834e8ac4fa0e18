// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/peer_table.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/split_mix.h"
#include "tests/support/component_world.h"
#include "tests/support/made_up_address.h"
#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

TEST(PeerTable, FindsASenderByIndexOnlyIfTheIdAgrees) {
  ComponentWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  EXPECT_EQ(world.peers.find_sender(1, second.address.id), &second);
  EXPECT_EQ(world.peers.find_sender(1, first.address.id), nullptr);  // an endpoint that is gone
  EXPECT_EQ(world.peers.find_sender(7, first.address.id), nullptr);
  EXPECT_EQ(world.peers.find_peer(0), &first);
  EXPECT_EQ(world.peers.find_peer(2), nullptr);
}

// No two peers of a small job share an initiator, whatever their ids are.
TEST(PeerTable, PeersTakeInitiatorsInTurnUnderThePolicyTurnout) {
  MessagingWorld world;
  world.context.traits.uses_feedback = true;
  world.context.settings.data_qps = 5;
  world.context.settings.credit_qps = 3;
  SplitMix64 random(1);
  for (unsigned i = 0; i < 10; ++i) {
    Status status;
    Peer* const peer = world.peers.make_peer(testing::made_up(random.next()), &status);
    ASSERT_NE(peer, nullptr) << status.text();
    EXPECT_EQ(peer->data_queue, i % 5);
    EXPECT_EQ(peer->credit_queue, i % 3);
  }
}

TEST(PeerTable, LeavesMemoryForRecordsOfExpectedPeers) {
  ComponentWorld world;
  const std::uint64_t without = world.peers.reserved_headroom();
  world.peers.expect_peers(100);
  EXPECT_EQ(world.peers.reserved_headroom(), without + 100 * world.peers.record_bytes());
}

TEST(PeerTable, RingsAreLargeWhileAQuarterOfTheBudgetHoldsThemAll) {
  ComponentWorld world;
  const auto small = static_cast<std::uint32_t>(world.settings.ring_entry_size);
  EXPECT_EQ(world.peers.ring_shape().entry_size, small);
  const std::uint32_t large = 4 * small;
  world.context.format.large_ring_entry = large;
  world.context.format.large_ring_entries = 32;
  EXPECT_EQ(world.peers.ring_shape().entry_size, large);
  EXPECT_EQ(world.peers.ring_shape().entries, 32u);
  const std::uint64_t most = world.context.account.budget() / 4 / (32 * large);
  world.peers.expect_peers(most);
  EXPECT_EQ(world.peers.ring_shape().entry_size, large);
  world.peers.expect_peers(most + 1);
  EXPECT_EQ(world.peers.ring_shape().entry_size, small);
}

TEST(MessageFormat, HalfOfARingWithLargeEntriesIsEager) {
  constexpr std::uint32_t kHeader = sizeof(wire::Header);
  MessageFormat format{.own_eager_size = 4096, .rendezvous_threshold = 8192};
  const RingShape small{16, 4096}, large{32, 16448};
  EXPECT_EQ(format.most_over(large), 0u);  // this endpoint has none
  format.large_ring_entry = 16448;
  EXPECT_EQ(format.most_over(small), 0u);
  EXPECT_EQ(format.most_over(large), 16 * (16448 - kHeader));
  format.rendezvous_threshold = 0;  // no fragments
  EXPECT_EQ(format.most_over(large), 16448 - kHeader);
}

TEST(PeerTable, RecordsStayWhereTheyAreAndAreFoundByTheirIds) {
  PeerRecords records;
  PeerIndex index;
  EXPECT_EQ(index.find(records, 0), nullptr);
  std::vector<Peer*> added;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Peer& peer = records.add();
    EXPECT_EQ(peer.id, i);
    EXPECT_EQ(peer.rx.grant.peer, i);
    peer.address.id = i * 4096;  // all in one slot at first
    index.add(records, peer.id);
    added.push_back(&peer);
  }
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(index.find(records, i * 4096), added[i]);
    EXPECT_EQ(index.find(records, i * 4096 + 1), nullptr);
  }
  std::size_t seen = 0;
  for (Peer& peer : records) EXPECT_EQ(&peer, added[seen++]);
  EXPECT_EQ(seen, records.size());
}

// What an endpoint of 65,536 processes takes for peers that are idle, measured at the allocator.
// The sanitizers' allocators do not say, and then the difference is 0.
TEST(PeerTable, RecordsOfIdlePeersTakeAtMost256BytesEach) {
  constexpr std::size_t kPeers = 65536;
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  PeerRecords records;
  PeerIndex index;
  for (std::size_t i = 0; i < kPeers; ++i) {
    Peer& peer = records.add();
    peer.address.id = SplitMix64(i).next();
    index.add(records, peer.id);
  }
  EXPECT_LE(mallinfo2().uordblks + mallinfo2().hblkhd - before, kPeers * 256);
}

TEST(PeerTable, PartsOfARecordAreMadeWhenTheyAreWrittenTo) {
  PeerRecords records;
  Peer& peer = records.add();
  EXPECT_EQ(peer.change->request, 0u);
  EXPECT_FALSE(peer.connection->has_rc());
  EXPECT_TRUE(peer.state->loss.ok());
  EXPECT_FALSE(peer.state.made() || peer.change.made() || peer.connection.made());
  ++peer.change.make().request;
  EXPECT_EQ(peer.change->request, 1u);
  EXPECT_EQ(peer.connect().eviction.peer, peer.id);
  EXPECT_FALSE(peer.state.made());
  EXPECT_EQ(records.add().change->request, 0u) << "what others read";
}

TEST(PeerTable, AnAddressIsWholeAgain) {
  Address address;
  address.counts = 2 | 1 << 4 | 1 << 6;
  address.lid = 7;
  address.set_sizes(4096, 16, true);
  address.id = 99;
  address.gid[3] = 5;
  address.pid = 4711;
  address.set_dct_number(1, 0x123456);
  address.seal();
  const RemotePort port{address.lid, address.gid, nullptr};
  Address again = PeerAddress(address, port).whole();
  again.seal();
  EXPECT_EQ(again, address);
}

TEST(PeerTable, AChangeOfChannelBeginsANewCount) {
  PeerRecords records;
  Peer& peer = records.add();
  peer.rx.carried.count(8);
  peer.receive_on(ChannelKind::dc_sendrecv, 10);
  EXPECT_FALSE(peer.state.made()) << "it is on that channel";
  peer.receive_on(ChannelKind::dc_rdma, 20);
  peer.rx.carried.count(16);
  const DirectionReport report = peer.state->rx.past.report(peer.rx.kind, peer.rx.carried);
  ASSERT_EQ(report.spans.size(), 2u);
  EXPECT_EQ(report.switches, 1u);
  EXPECT_EQ(report.spans[0].bytes, 8u);
  EXPECT_EQ(report.spans[1].since, 20);
  EXPECT_EQ(report.spans[1].messages, 1u);
}

}  // namespace
}  // namespace turnout
