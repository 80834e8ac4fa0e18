// SPDX-License-Identifier: BSD-3-Clause
// KeepAlive: probes peers that something is awaited of and that have been silent.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Times are nanoseconds.
#pragma once

#include "core/channels/xrc_connections.h"
#include "core/operations/unexpected_messages.h"

namespace turnout {

class KeepAlive : MessagingUser {
 public:
  KeepAlive(EndpointState& state, Messaging& messaging, UnexpectedMessages& unexpected,
            XrcConnections& xrc_nodes)
      : MessagingUser(state, messaging), unexpected_(unexpected), xrc_nodes_(xrc_nodes) {}

  void begin(Nanoseconds now) noexcept { next_keepalive_ = now + context_.settings.keepalive / 4; }
  // A round, at next_keepalive().
  void keep_alive(Nanoseconds now);
  void probe_over_rc(Peer& peer);
  [[nodiscard]] Nanoseconds next_keepalive() const noexcept { return next_keepalive_; }

 private:
  void probe(Peer& peer, MessageQueue& queue);
  template <class Queue>
  void post_probe(Peer& peer, Queue& queue);

  UnexpectedMessages& unexpected_;
  XrcConnections& xrc_nodes_;

  Nanoseconds next_keepalive_ = 0;
  std::size_t keepalive_at_ = 0;
};

}  // namespace turnout
