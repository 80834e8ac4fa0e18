// SPDX-License-Identifier: BSD-3-Clause
// ChannelWorld: ComponentWorld with the components of core/messaging, core/operations and
// core/channels.
//
// Queue pairs are made by no adapter: make_rc() gives a peer one, and jobs in the background do not
// run until the test says how they ended. The pool of control messages has no buffers, so every one
// that is sent stays in the ControlPlane's list, where sent() finds it.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/channels/channels.h"
#include "tests/support/component_world.h"

namespace turnout {

// Jobs that were started; none runs.
class HeldJobs final : public Background {
 public:
  void start(std::unique_ptr<Job> job) override { held.push_back(std::move(job)); }
  [[nodiscard]] std::unique_ptr<Job> done() override {
    if (ended.empty()) return nullptr;
    auto job = std::move(ended.front());
    ended.pop_front();
    return job;
  }
  [[nodiscard]] SetupJob& first() { return static_cast<SetupJob&>(*held.front()); }
  // The first job has run, and ended so.
  void end_first(Status status = {}) {
    first().status = std::move(status);
    ended.push_back(std::move(held.front()));
    held.pop_front();
  }

  std::deque<std::unique_ptr<Job>> held, ended;
};

// Gives an RcQueue a queue pair that accepts every call and does nothing.
struct IdleQueuePair : RcQueue {
  static void give(RcQueue& queue, std::uint32_t number) {
    static ibv_context context = [] {
      ibv_context made{};
      made.ops.post_send = [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return 0; };
      // The functions that a loaded library would set.
      auto& verbs = const_cast<verbs::Functions&>(verbs::functions());
      verbs.ibv_modify_qp_fn = [](ibv_qp*, ibv_qp_attr*, int) { return 0; };
      verbs.ibv_destroy_qp_fn = [](ibv_qp* qp) {
        delete qp;
        return 0;
      };
      verbs.ibv_wc_status_str_fn = [](ibv_wc_status) { return "failed"; };
      return made;
    }();
    auto qp = std::make_unique<ibv_qp>();
    qp->context = &context;
    qp->qp_num = number;
    (queue.*(&IdleQueuePair::qp_)).reset(qp.release());
  }
};

struct WithHeldJobs {
  HeldJobs* const jobs = new HeldJobs;  // RcPool's
};

class ChannelWorld : public ComponentWorld,
                     public WithHeldJobs,
                     public Messaging,
                     public Operations,
                     public Channels {
 public:
  explicit ChannelWorld(const Settings& wanted = Settings::defaults())
      : ComponentWorld(wanted),
        Messaging{static_cast<EndpointState&>(*this)},
        Operations{*this, *this},
        Channels{*this, *this, *this, std::unique_ptr<Background>(jobs)} {
    add_queue(Purpose::data, kQueueDepth);
    add_queue(Purpose::credit, kQueueDepth);
    add_queue(Purpose::establishment, kQueueDepth);
    context.rc_bytes = 4096;
    eviction.set_setup_time(1000);
  }

  // It has answered the wire-up request, and has one target for each purpose.
  Peer& add_peer() {
    Peer& peer = ComponentWorld::add_peer();
    peer.address.counts = 1 | 1 << 4 | 1 << 6;
    return peer;
  }
  // A queue pair of the peer's own that is not connected.
  RcQueue& make_rc(Peer& peer) {
    peer.connect().rc = make_queue();
    return *peer.connection->rc;
  }
  // One that is kept for reuse.
  void add_pooled_rc() {
    resources.rc_pool.push_back(make_queue());
    rc.count_inactive();
  }
  // A steady connection of that direction, made now.
  void connect(Peer& peer) {
    make_rc(peer);
    peer.rx.kind = ChannelKind::rc_srq;
    eviction.made(peer.connect().eviction, clock.time);
  }
  // Connections are evicted for others, the least recently used one first.
  void limit_connections(std::uint64_t slots) {
    context.settings.max_active_rc = context.settings.rc_pool = slots;
    eviction.configure(VictimOrder::lru, slots);
  }

  // Control messages of that type to the peer, oldest first.
  [[nodiscard]] std::vector<wire::ControlMessage> sent(const Peer& to, wire::Control type) {
    std::vector<wire::ControlMessage> all;
    for (const PendingControl& pending : control.pending_control()) {
      if (pending.peer == to.id && pending.message.type == type) all.push_back(pending.message);
    }
    return all;
  }
  [[nodiscard]] static wire::ControlMessage message(wire::Control type, std::uint32_t request = 0,
                                                    ChannelKind kind = ChannelKind::dc_sendrecv) {
    wire::ControlMessage made;
    made.type = type;
    made.request = request;
    made.kind = static_cast<std::uint8_t>(kind);
    return made;
  }

 private:
  [[nodiscard]] std::unique_ptr<RcQueue> make_queue() {
    RcJob job;
    EXPECT_TRUE(rc.reserve_rc());
    rc.add_queue(&job);
    IdleQueuePair::give(*job.queue, 100 + job.queue->id());
    return std::move(job.queue);
  }
};

}  // namespace turnout
