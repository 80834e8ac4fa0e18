// SPDX-License-Identifier: BSD-3-Clause
// Questions about the state of one peer that several components ask.
#pragma once

#include <vector>

#include "core/state/endpoint_context.h"
#include "core/state/peer.h"

namespace turnout {

// The path of the data of a large message or a one-sided operation to or from a peer.
enum class DataPath : std::uint8_t { dc, rc, fragments, wait };

// Messages that consume receives use the pair's queue pair; with a ring, these are the messages
// of the rendezvous protocols.
[[nodiscard]] inline bool sends_over_rc(const Peer& peer) noexcept {
  return peer.tx.kind == ChannelKind::rc_srq || peer.state->tx.private_queue.request != 0;
}
// Bytes of a message that both ends' data receives take.
[[nodiscard]] inline std::size_t eager_size(const Peer& peer,
                                            const MessageFormat& format) noexcept {
  return !peer.takes_less ? format.own_eager_size : peer.address.most_received();
}
// Hot path: a message to or from the peer was carried, for the eviction of connections.
inline void count_use(ConnectionEviction& eviction, Peer& peer, bool over_connection) {
  if (eviction.active()) eviction.touch(peer.connect().eviction, over_connection);
}
// Peers may leave the list meanwhile.
template <class GoOn>
inline bool go_on_with_each(std::vector<Peer*>& list, GoOn&& go_on) {
  bool moved = false;
  for (std::size_t i = 0; i < list.size();) {
    Peer& peer = *list[i];
    if (!go_on(peer)) {  // nothing happened, so it is where it was
      ++i;
      continue;
    }
    moved = true;
    if (i < list.size() && list[i] == &peer) ++i;
  }
  return moved;
}
// Removes the peers of which `done` is true; the list may grow meanwhile. The last takes the place
// of a removed one.
template <class Done>
inline void remove_done(std::vector<Peer*>& list, Done&& done) {
  for (std::size_t i = 0; i < list.size();) {
    if (!done(*list[i])) {
      ++i;
      continue;
    }
    list[i] = list.back();
    list.pop_back();
  }
}
// Answers from the peer are pending.
[[nodiscard]] inline bool owes_answers(const Peer& peer) noexcept {
  return peer.state->atomics && !peer.state->atomics->asked.empty();
}
[[nodiscard]] inline bool is_putting(const Peer& peer) noexcept {
  return peer.state->tx.rtrs && peer.state->tx.rtrs->writing > 0;
}
// Deferred messages exist.
[[nodiscard]] inline bool defers(const Peer& peer) noexcept {
  return peer.state->tx.rtrs && peer.state->tx.rtrs->deferring;
}

}  // namespace turnout
