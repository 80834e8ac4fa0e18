// SPDX-License-Identifier: BSD-3-Clause
// Control messages: wire-up, credits, FIN and CTS, changes of channels.
#include "core/messaging/control_plane.h"
#include "base/log.h"
#include "core/connection/recovery.h"
#include "core/transport/path.h"

namespace turnout {
void ControlPlane::send_control(Peer& peer, Purpose purpose, wire::ControlMessage message,
                                const wire::Detail* detail) {
  // A peer that shut down needs nothing and may be gone; after our own shutdown peers expect
  // nothing.
  if (peer.lost || peer.shut_down) return;
  if (!resources_.shutting_down.empty() &&
      std::find(resources_.shutting_down.begin(), resources_.shutting_down.end(),
                peer.address.id) != resources_.shutting_down.end()) [[unlikely]] {
    return;
  }
  if (context_.closing_phase == Closing::shutting_down && message.type != wire::Control::shutdown)
    return;
  message.index = peer.remote_index;
  message.sender = context_.address.id;
  if (peer.state->tx.private_queue.credits > 0 && wire::serves_large(message.type) &&
      events_.post_private_control(peer, message, detail)) [[unlikely]] {
    return;
  }
  if (peer.link) return ud_.send_control_over_ud(peer, purpose, message);
  PendingControl pending{peer.id, purpose, message, {}};
  if (detail != nullptr) pending.detail = *detail;
  // Establishment messages of a pair are ordered: none overtakes a queued one.
  if (!pending_control_.empty() || !post_control(pending)) {
    pending_control_.push_back(pending);
    context_.pending.add(Pending::control_messages);
  }
}

bool ControlPlane::post_control(const PendingControl& pending) {
  Peer& peer = peer_table_.peers()[pending.peer];
  if (peer.lost) return true;
  return control_sender_.post_control(
      peer, pending.purpose == Purpose::credit,
      ControlBytes{nullptr, &pending.message, sizeof pending.message,
                   has_detail(pending.message.type) ? &pending.detail : nullptr});
}

bool ControlPlane::pump_control() {
  bool moved = false;
  while (!pending_control_.empty()) {
    const PendingControl pending = pending_control_.front();
    if (!post_control(pending)) break;
    pending_control_.pop_front();
    moved = true;
  }
  return moved;
}

void ControlPlane::send_fin(Peer& peer, std::uint64_t operation, const Status& status,
                            Nanoseconds read) {
  send_control(peer, Purpose::credit,
               {.type = wire::Control::fin,
                .ring_address = static_cast<std::uint64_t>(read),
                .operation = operation,
                .status = static_cast<std::uint32_t>(status.code())});
}

}  // namespace turnout
