// SPDX-License-Identifier: BSD-3-Clause
// Startup, ProgressLoop, EndpointReporter and Shutdown, each over components without an endpoint.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/endpoint/endpoint_reporter.h"
#include "core/endpoint/progress_loop.h"
#include "core/endpoint/shutdown.h"
#include "core/endpoint/startup.h"
#include "tests/support/parts_world.h"

namespace turnout {
namespace {

Settings with(std::string_view policy, std::string_view transport) {
  Settings settings = stub_settings();
  settings.policy = policy;
  settings.default_transport = transport;
  return settings;
}

TEST(Startup, MakesTheQueuesOfTheDefaultTransport) {
  PartsWorld world(with("turnout", "ud"));
  const Status status = Startup(world).start();
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_TRUE(world.context.started);
  EXPECT_TRUE(world.context.over_datagrams());
  EXPECT_EQ(world.resources.default_queues, world.resources.queues.size());
  for (const Purpose purpose : {Purpose::data, Purpose::credit, Purpose::establishment})
    EXPECT_GE(world.resources.pool(purpose).size(), 1u);
  EXPECT_TRUE(Address::decode(&world.context.address, sizeof(Address)).ok());
  EXPECT_TRUE(world.context.address.datagrams());
  EXPECT_TRUE(world.context.traits.uses_feedback);
  EXPECT_GT(world.context.account.used(), 0u);
}

TEST(Startup, RefusesABudgetThatIsTooSmallForTheQueues) {
  Settings settings = with("aqps", "ud");
  settings.memory_budget = 64 * 1024;
  PartsWorld world(settings);
  const Status status = Startup(world).start();
  EXPECT_EQ(status.code(), Code::over_budget);
  EXPECT_NE(status.text().find("TURNOUT_MEMORY_BUDGET"), std::string::npos) << status.text();
  EXPECT_FALSE(world.context.started);
  EXPECT_TRUE(world.resources.queues.empty());
}

TEST(Startup, SaysWhichObjectTheDriverRefuses) {
  PartsWorld world(with("aqps", "dc"));  // the library makes no DC queue pairs
  const Status status = Startup(world).start();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_EQ(status.sys_errno(), EOPNOTSUPP);
  EXPECT_NE(status.text().find("mlx5dv_create_qp"), std::string::npos) << status.text();
}

struct LoopWorld : PartsWorld {
  LoopWorld() { make_queues(); }
  ReceiveDispatch dispatch{*this};
  SendCompletions sends{*this};
  EndpointReporter reporter{*this};
  ProgressLoop loop{*this, dispatch, sends, reporter};
};

TEST(ProgressLoop, FindsNothingWhereNothingHappened) {
  LoopWorld world;
  world.resources.to_post.clear();
  EXPECT_FALSE(world.loop.progress_now());
  EXPECT_FALSE(world.context.in_progress);
  EXPECT_EQ(world.context.ticks, 1u);
}

TEST(ProgressLoop, LooksAtTheClockOnceInManyCalls) {
  LoopWorld world;
  world.resources.to_post.clear();
  world.add_peer();
  world.clock.time = 1'000'000'000'000;
  world.channels.keep_alive.begin(0);
  const Nanoseconds due = world.channels.keep_alive.next_keepalive();
  for (int n = 0; n < 63; ++n) (void)world.loop.progress_now();
  EXPECT_EQ(world.channels.keep_alive.next_keepalive(), due);
  (void)world.loop.progress_now();
  EXPECT_GT(world.channels.keep_alive.next_keepalive(), due);
  EXPECT_EQ(world.context.ticks, 0u);
}

TEST(ProgressLoop, SendsControlMessagesOnceThereIsRoom) {
  LoopWorld world;
  world.resources.to_post.clear();
  Peer& peer = world.add_peer();
  RecordedQueue& credit = world.queue(Purpose::credit);
  while (!credit.full()) ASSERT_TRUE(credit.post({}).ok());
  const std::size_t before = credit.posted.size();
  wire::ControlMessage message;
  message.type = wire::Control::credit;
  world.messaging.control.send_control(peer, Purpose::credit, message);
  (void)world.loop.progress_now();
  EXPECT_EQ(credit.posted.size(), before);
  (void)credit.take_all();
  EXPECT_TRUE(world.loop.progress_now());
  EXPECT_EQ(credit.posted.size(), before + 1);
  EXPECT_TRUE(world.messaging.control.pending_control().empty());
}

TEST(EndpointReporter, SaysOfEachPeerWhyItHasItsChannel) {
  PartsWorld world(with("aqps", "auto"));
  Peer& quiet = world.add_peer();
  Peer& judged = world.add_peer();
  Peer& refused = world.add_peer();
  judged.rx.rate = 12;
  refused.change.make().reason = "refused by the peer";
  quiet.tx.carried.count(8);
  const EndpointReport report = EndpointReporter(world).report();
  ASSERT_EQ(report.peers.size(), 3u);
  EXPECT_EQ(report.peers[quiet.id].reason, "no decision yet");
  EXPECT_EQ(report.peers[quiet.id].send.spans.at(0).bytes, 8u);
  EXPECT_NE(report.peers[judged.id].reason.find("12 messages/s"), std::string::npos);
  EXPECT_EQ(report.peers[refused.id].reason, "refused by the peer");
  EXPECT_EQ(report.budget, world.context.account.budget());
  const auto peers = std::find_if(report.memory.begin(), report.memory.end(), [](const auto& line) {
    return line.kind == name(MemoryKind::peers);
  });
  ASSERT_NE(peers, report.memory.end());
  EXPECT_EQ(peers->now, 3 * world.peer_table.record_bytes());
}

struct ShutdownWorld : PartsWorld {
  ShutdownWorld() {
    make_queues();
    context.started = true;
    above.answer = false;  // progress finds nothing
  }
  Shutdown shutdown{*this};
};

TEST(Shutdown, AnEndpointThatDidNotStartIsClosed) {
  PartsWorld world;
  EXPECT_TRUE(Shutdown(world).close());
}

TEST(Shutdown, TellsThePeersThatKnowUs) {
  ShutdownWorld world;
  Peer& known = world.add_peer();
  Peer& unknown = world.add_peer();
  unknown.remote_index = wire::kUnknownIndex;
  EXPECT_FALSE(world.shutdown.close()) << "the message is under way";
  ASSERT_EQ(world.queue(Purpose::credit).posted.size(), 2u);
  const SendRecord& record = world.queue(Purpose::credit).posted[0];
  EXPECT_EQ(record.peer, known.id);
  EXPECT_EQ(PartsWorld::control_in(record).type, wire::Control::shutdown);
  EXPECT_TRUE(record.signalled);
  EXPECT_EQ(world.queue(Purpose::credit).posted[1].dc_key, world.context.address.id) << "a flush";
  (void)world.queue(Purpose::credit).take_all();
  EXPECT_TRUE(world.shutdown.close());
  EXPECT_EQ(world.context.closing_phase, Closing::closed);
}

TEST(Shutdown, WaitsForDataOfLivePeersOnly) {
  ShutdownWorld world;
  Peer& peer = world.add_peer();
  SendRecord record;
  record.kind = SendRecord::Kind::message;
  record.peer = peer.id;
  ASSERT_TRUE(world.queue(Purpose::data).post(record).ok());
  for (int n = 0; n < 3; ++n) EXPECT_FALSE(world.shutdown.close());
  EXPECT_EQ(world.context.closing_phase, Closing::flushing);
  EXPECT_TRUE(world.queue(Purpose::credit).posted.empty());
  peer.lost = true;
  EXPECT_TRUE(world.shutdown.close());
}

TEST(Shutdown, ReceivesAreAbandonedWithoutACompletion) {
  ShutdownWorld world;
  RecvOperation& receive = *world.records.receives.take();
  receive.match.tagged = receive.posted = true;
  receive.report = world.report();
  world.records.matcher.post(&receive);
  EXPECT_TRUE(world.shutdown.close());
  EXPECT_EQ(world.records.matcher.posted(true).first(), nullptr);
  EXPECT_EQ(world.completions.size(), 0u);
  EXPECT_FALSE(world.completions.has_error());
}

}  // namespace
}  // namespace turnout
