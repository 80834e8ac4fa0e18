// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/keep_alive.h"
#include "base/log.h"

namespace turnout {
namespace {
// Minimum number of peers probed in one keep-alive round. With a round every quarter of the
// setting, a process with n peers detects a silent one within keepalive * (1 + n / (4 *
// kProbesPerRound)) + the retries.
constexpr std::size_t kProbesPerRound = 16;
}  // namespace

// A zero-length RDMA write: the peer's adapter acknowledges it without its CPU.
template <class Queue>
void KeepAlive::post_probe(Peer& peer, Queue& queue) {
  if (queue.full()) return;
  SendRecord record{.kind = SendRecord::Kind::probe,
                    .opcode = IBV_WR_RDMA_WRITE,
                    .peer = peer.id,
                    .dct = number_of(peer.address.dct[0]),
                    .ah = peer.address.port->handle.get(),
                    .dc_key = peer.address.id};
  ++peer.probes;
  context_.profile.count_sent(Traffic::control, 0);
  if (Status status = queue.post(record); !status.ok()) {
    --peer.probes;
    events_.lose_peer(peer, status);
  }
}

// Over UD its process must answer, see ud_transport.cpp.
void KeepAlive::probe(Peer& peer, MessageQueue& queue) {
  if (peer.link) {
    ud_.send_probe(peer);
  } else {
    post_probe(peer, queue);
  }
}

void KeepAlive::probe_over_rc(Peer& peer) {
  post_probe(peer, *peer.connection->rc);
}

// Probes silent peers from which something is expected or that have an idle connection, so that a
// dead peer does not keep its slot. Returns credits that were too few for a message of their own,
// and ends operations that a peer which shut down will not answer.
void KeepAlive::keep_alive(Nanoseconds now) {
  next_keepalive_ = now + std::max<Nanoseconds>(context_.settings.keepalive / 4, 1);
  bool wildcards = unexpected_.matched_outside();
  bool awaited_from_any = wildcards;  // a multi-receive does not expect a message
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = records_.matcher.posted(tagged).first(); r != nullptr; r = r->next) {
      if (r->match.peer != kAnyPeer) continue;
      wildcards = true;
      awaited_from_any = awaited_from_any || !r->multi;
    }
  }
  xrc_nodes_.look_after_xrc_connections(now);
  std::size_t probed = 0;
  for (std::size_t n = peer_table_.peers().size(); n > 0; --n) {
    keepalive_at_ = keepalive_at_ + 1 < peer_table_.peers().size() ? keepalive_at_ + 1 : 0;
    Peer& peer = peer_table_.peers()[keepalive_at_];
    if (peer.lost) {
      if (peer.state->loss_unreported) events_.reject(peer);
      continue;
    }
    if (peer.self) {
      unexpected_.look_after_retained(peer, awaited_from_any, now);
      continue;
    }
    if (peer.heard_since_tick) {
      peer.heard = now;
      peer.heard_since_tick = false;
    }
    if (peer.tx.state == SendState::flushing) sender_.post_flush(peer);
    credits_.send_credits(peer);
    if (peer.state->rx.private_queue.unreported > 0) private_receives_.send_private_credits(peer);
    unexpected_.look_after_retained(peer, awaited_from_any, now);
    if (peer.lost) continue;
    if (peer.shut_down && has_last_message(peer) && has_last_control(peer)) {
      events_.lose_peer(
          peer, Status{Code::peer_lost,
                       fmt::format("{} closed its endpoint", peer.address.to_string()), ESHUTDOWN});
      continue;
    }
    const bool expected =
        peer.rx.directed_receives > 0 || peer.tx.awaiting_fin > 0 || peer.rx.incoming_large > 0 ||
        owes_answers(peer) || (peer.state->atomics && peer.state->atomics->listed) ||
        !peer.state->tx.backlog.empty() || peer.rx.state != ReceiveState::steady ||
        peer.tx.state != SendState::steady || peer.connection->eviction.disconnecting ||
        peer.connection->recovery || (wildcards && peer.remote_index != wire::kUnknownIndex);
    const bool idle =
        !expected &&
        ((peer.connection->rc && peer.connection->rc->connected_to() != 0) || peer.connection->xrc);
    if ((!expected && !idle) || peer.probes > 0 || now - peer.heard < context_.settings.keepalive)
      continue;
    if (probed == std::max(kProbesPerRound, peer_table_.peers().size() / 16)) continue;
    ++probed;
    if (idle && peer.connection->rc && peer.connection->rc->connected_to() != 0) {
      probe_over_rc(peer);
    } else {
      probe(peer, *resources_.pool(Purpose::credit)[peer.credit_queue]);
    }
  }
}

}  // namespace turnout
