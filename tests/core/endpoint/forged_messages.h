// SPDX-License-Identifier: BSD-3-Clause
// What no endpoint of ours would do by itself, for tests of what its peers make of it: control
// messages out of their turn, a queue pair put into the error state, a channel that no policy asked
// for.
#pragma once

#include "core/endpoint/endpoint_core.h"
#include "tests/support/test_world.h"

namespace turnout {

struct ForgedMessages {
  [[nodiscard]] static Peer* peer_of(TestWorld& world, std::size_t at, std::size_t of) {
    return static_cast<EndpointCore&>(world[at]).components().peer_table.find_peer(
        world.peer(at, of));
  }
  static void send(TestWorld& world, std::size_t from, std::size_t to,
                   const wire::ControlMessage& message) {
    auto& core = static_cast<EndpointCore&>(world[from]);
    core.components().messaging.control.send_control(*peer_of(world, from, to),
                                                     Purpose::establishment, message);
  }
  // The direction from `of` shall take that channel.
  static void ask_for(TestWorld& world, std::size_t at, std::size_t of, ChannelKind to) {
    auto& core = static_cast<EndpointCore&>(world[at]);
    if (over_xrc(to)) {
      ASSERT_TRUE(core.components().channels.xrc_nodes.has_xrc());
    }
    core.components().channels.selector.change_channel(
        *peer_of(world, at, of), to, core.components().context.default_channel, "a test asks", 0);
  }
  [[nodiscard]] static bool is_steady(TestWorld& world, std::size_t at, std::size_t of) {
    const Peer& peer = *peer_of(world, at, of);
    return peer.rx.state == ReceiveState::steady && peer.tx.state == SendState::steady;
  }
  // `at` has said yes to a channel that `of` asked for, and waits for its word.
  [[nodiscard]] static bool was_accepted(TestWorld& world, std::size_t at, std::size_t of) {
    return peer_of(world, at, of)->tx.state == SendState::accepted;
  }
  // The queue pair of their connection at the end of `at`; 0: there is none.
  [[nodiscard]] static std::uint32_t queue_pair(TestWorld& world, std::size_t at, std::size_t of) {
    const Peer& peer = *peer_of(world, at, of);
    return peer.connection->rc ? peer.connection->rc->qp_id() : 0;
  }
  // The connection of these two, at the end of `at`; over XRC that to the node of `of`. False:
  // there is none now.
  [[nodiscard]] static bool fail_queue_pair(TestWorld& world, std::size_t at, std::size_t of) {
    const Peer& peer = *peer_of(world, at, of);
    RcQueue* queue = peer.connection->rc.get();
    if (peer.connection->xrc && peer.connection->xrc->link != nullptr)
      queue = peer.connection->xrc->link->queue.get();
    return queue != nullptr && queue->fail().ok();
  }
};

}  // namespace turnout
