// SPDX-License-Identifier: BSD-3-Clause
// Reliability over UD as the default transport: acknowledgements, timers, retransmission and
// probes, which DC's adapters provide. The state of each peer is UdReliability (ud_reliability.h).
//
// Acknowledgements are piggybacked. A separate one is sent after kAckDelay, or at once for a
// duplicate or out-of-order message, because its sender waits then. Acknowledgements need no data
// send buffer, and control buffers return with the adapter's completion, not with the peer's reply:
// so they can always be sent eventually.
#include "core/messaging/ud_transport.h"
#include "base/log.h"

namespace turnout {
namespace {
// Messages retransmitted at a time; the others follow when the first is acknowledged.
constexpr std::size_t kResendAtOnce = 8;
// Retry time when a queue or pool is full, which drains with the adapter's completions.
constexpr Nanoseconds kSoon = 10'000;
}  // namespace

// A stream message of a peer. False: it was dropped, and its buffer reposted.
bool UdTransport::data_came(Peer& peer, const wire::Header& header, std::uint32_t buffer) {
  wire::Datagram datagram;
  std::memcpy(&datagram, resources_.receive_pool.data(buffer) + wire::kGrhBytes, sizeof datagram);
  bool taken = datagram.sender == peer.address.id;
  if (taken) {
    events_.take_ud_header(peer, datagram);
    taken = !peer.lost;
  }
  if (taken) {
    const bool twice =
        before(header.sequence, peer.rx.sequence) ||
        std::any_of(peer.state->rx.reorder_buffer.begin(), peer.state->rx.reorder_buffer.end(),
                    [&](const auto& message) { return message.sequence == header.sequence; });
    const bool early = header.sequence != peer.rx.sequence;
    owe_ack(peer, twice || early);
    // Out-of-order messages must leave receives for the missing one. Dropped messages were not
    // acknowledged and are retransmitted.
    taken = !twice && !(early && resources_.receives_kept >= resources_.receive_pool.count() / 2);
  }
  if (!taken) post_again(buffer);
  return taken;
}

void UdTransport::stamp(Peer& peer, wire::DatagramKind kind, wire::Datagram* datagram) {
  UdReliability& link = *peer.link;
  datagram->kind = kind;
  datagram->sender = context_.address.id;
  datagram->index = peer.remote_index;
  datagram->data_ack = peer.rx.sequence;
  datagram->sack = 0;
  for (const OutOfOrderMessage& message : peer.state->rx.reorder_buffer) {
    const std::uint32_t ahead = message.sequence - peer.rx.sequence;
    if (ahead < 32) datagram->sack |= 1u << ahead;
  }
  datagram->control_ack = link.control_expected;
  datagram->flags = link.control_gap ? wire::kControlGap : std::uint8_t{0};
  link.control_gap = false;
  link.owes_ack = false;
}

void UdTransport::owe_ack(Peer& peer, bool at_once) {
  UdReliability& link = *peer.link;
  if (link.owes_ack && !at_once) return;
  link.owes_ack = true;
  // "At once" is the end of this round, so one acknowledgement covers the messages of a poll.
  link.ack_at = at_once ? 0 : context_.clock.now() + UdReliability::kAckDelay;
  list_ud(peer, link.ack_at);
}

void UdTransport::send_ack(Peer& peer) {
  wire::Datagram datagram;
  const bool gap = peer.link->control_gap;
  stamp(peer, wire::DatagramKind::ack, &datagram);
  if (control_sender_.post_control(peer, true, {&datagram, nullptr, 0})) return;
  peer.link->owes_ack = true;
  peer.link->control_gap = gap;
  peer.link->ack_at = context_.clock.now() + kSoon;
}

void UdTransport::keep_until_acknowledged(Peer& peer, std::uint32_t sequence,
                                          const SendRecord& record) {
  UdReliability& link = *peer.link;
  KeptBuffer& kept = kept_[record.buffer];
  kept.posted = 1;
  kept.acknowledged = false;
  link.keep({sequence, record.buffer, record.length});
  if (link.due != 0 && link.timed) return;
  const Nanoseconds now = context_.clock.now();
  if (!link.timed) {
    link.timed = true;
    link.timed_sequence = sequence;
    link.timed_at = now;
  }
  if (link.due == 0) arm(peer, now);
}

void UdTransport::retire_kept(std::uint32_t buffer) {
  KeptBuffer& kept = kept_[buffer];
  if (--kept.posted == 0 && kept.acknowledged) resources_.send_pool.give_back(buffer);
}

// Acknowledged by the peer; the adapter may still read it.
void UdTransport::release_kept(std::uint32_t buffer) {
  KeptBuffer& kept = kept_[buffer];
  kept.acknowledged = true;
  if (kept.posted == 0) resources_.send_pool.give_back(buffer);
}

void UdTransport::resend_data(Peer& peer, const UdReliability::Sent& message) {
  MessageQueue& queue = *resources_.pool(Purpose::data)[peer.data_queue];
  if (queue.full()) return;  // the timer retries
  SendRecord record{.kind = SendRecord::Kind::message,
                    .pool = SendRecord::Pool::kept,
                    .peer = peer.id,
                    .buffer = message.buffer};
  // Unchanged, because the adapter may be reading it. Old acknowledgements in it are harmless.
  record.local = reinterpret_cast<std::uint64_t>(resources_.send_pool.data(message.buffer));
  record.lkey = resources_.send_pool.lkey();
  record.length = message.length;
  record.signalled = true;
  resources_.address_data(peer, &record);
  ++kept_[message.buffer].posted;
  context_.profile.count_sent(Traffic::data, record.length);
  context_.charge(Work::post, 1);
  if (Status status = queue.post(record); !status.ok()) {
    --kept_[message.buffer].posted;
    events_.lose_peer(peer, status);
  }
}

void UdTransport::send_control_over_ud(Peer& peer, Purpose purpose,
                                       const wire::ControlMessage& message) {
  UdReliability& link = *peer.link;
  link.control.push_back({message, purpose == Purpose::credit});
  UdReliability::Control& last = link.control[link.control.size() - 1];
  last.message.sequence = link.control_first + static_cast<std::uint32_t>(link.control.size() - 1);
  (void)transmit_control(peer);
}

// Sends as much as window and queues allow. False: a queue is full.
bool UdTransport::transmit_control(Peer& peer) {
  UdReliability& link = *peer.link;
  bool posted = true;
  while (link.control_sent < std::min(link.control.size(), UdReliability::kControlWindow)) {
    posted = post_ud_control(peer, link.control_sent);
    if (!posted || peer.lost) break;
    ++link.control_sent;
  }
  if (peer.lost) return true;
  if (!posted) {
    ud_blocked_ = true;
    context_.pending.add(Pending::datagrams);
    list_ud(peer, context_.clock.now() + kSoon);
  }
  if (link.waits() && link.due == 0) arm(peer, context_.clock.now());
  return posted;
}

bool UdTransport::post_ud_control(Peer& peer, std::size_t at) {
  UdReliability::Control& control = peer.link->control[at];
  control.message.index = peer.remote_index;
  wire::Datagram datagram;
  const bool gap = peer.link->control_gap, owed = peer.link->owes_ack;
  stamp(peer, wire::DatagramKind::control, &datagram);
  if (control_sender_.post_control(peer, control.credit,
                                   {&datagram, &control.message, sizeof control.message})) {
    return true;
  }
  peer.link->control_gap = gap;
  peer.link->owes_ack = owed;
  return false;
}

bool UdTransport::pump_ud_blocked() {
  ud_blocked_ = false;
  bool moved = false;
  for (std::size_t i = 0; i < ud_pending_.size(); ++i) {
    Peer& peer = *ud_pending_[i];
    if (peer.lost || peer.link->control_sent == peer.link->control.size()) continue;
    const std::size_t before = peer.link->control_sent;
    (void)transmit_control(peer);
    moved |= peer.lost || peer.link->control_sent != before;
  }
  return moved;
}

// The peer's process answers when it makes progress.
void UdTransport::send_probe(Peer& peer) {
  UdReliability& link = *peer.link;
  wire::Datagram datagram;
  const bool gap = link.control_gap;
  stamp(peer, wire::DatagramKind::probe, &datagram);
  const wire::WireupRequest wireup{.address = context_.address, .index = peer.id};
  if (!control_sender_.post_control(peer, true, {&datagram, &wireup, sizeof wireup})) {
    link.control_gap = gap;  // the timer retries
  }
  if (peer.lost) return;
  link.probing = true;
  peer.probes = 1;
  if (link.due == 0) arm(peer, context_.clock.now());
}

// Starts the timer.
void UdTransport::arm(Peer& peer, Nanoseconds now) {
  UdReliability& link = *peer.link;
  if (link.backoff == 0) link.silent_since = now;
  link.heard = false;
  link.due = now + link.round_trip.timeout(link.backoff);
  list_ud(peer, link.due);
}

void UdTransport::list_ud(Peer& peer, Nanoseconds at) {
  if (!peer.link->listed) {
    peer.link->listed = true;
    ud_pending_.push_back(&peer);
  }
  next_ud_timer_ = std::min(next_ud_timer_, at);
}

void UdTransport::service_ud_timers(Nanoseconds now) {
  next_ud_timer_ = INT64_MAX;
  Nanoseconds next = INT64_MAX;
  remove_done(ud_pending_, [&](Peer& peer) {
    UdReliability& link = *peer.link;
    if (!peer.lost && link.owes_ack && link.ack_at <= now) send_ack(peer);
    if (!peer.lost && link.due != 0 && link.due <= now) on_ud_timeout(peer, now);
    const bool blocked =
        link.control_sent < std::min(link.control.size(), UdReliability::kControlWindow);
    if (peer.lost || (link.due == 0 && !link.owes_ack && !blocked)) {
      link.listed = false;
      return true;
    }
    if (link.due != 0) next = std::min(next, link.due);
    if (link.owes_ack) next = std::min(next, link.ack_at);
    if (blocked) next = std::min(next, now + kSoon);
    return false;
  });
  next_ud_timer_ = std::min(next_ud_timer_, next);
}

void UdTransport::on_ud_timeout(Peer& peer, Nanoseconds now) {
  UdReliability& link = *peer.link;
  if (link.heard) link.silent_since = now;
  if (now - link.silent_since >= silence_of_the_lost()) {
    events_.lose_peer(peer,
                      Status{Code::peer_lost,
                             fmt::format("{} has not responded for {} ms", peer.address.to_string(),
                                         (now - link.silent_since) / 1'000'000),
                             EHOSTDOWN});
    return;
  }
  ++link.backoff;
  link.timed = false;
  link.resent_data = link.resent_control = false;
  std::size_t resent = 0;
  for (std::size_t i = 0; i < link.sent.size() && resent < kResendAtOnce; ++i) {
    if (link.sent[i].buffer == kNoBuffer) continue;
    ++resent;
    resend_data(peer, link.sent[i]);
    if (peer.lost) return;
  }
  for (std::size_t i = 0; i < link.control_sent && i < kResendAtOnce; ++i) {
    if (!post_ud_control(peer, i)) break;
    if (peer.lost) return;
  }
  // A peer without a free receive for the data has one for a probe.
  if (link.probing || (link.backoff >= 2 && resent > 0)) send_probe(peer);
  if (!peer.lost) arm(peer, now);
}

void UdTransport::drop_ud(Peer& peer) {
  UdReliability& link = *peer.link;
  for (std::size_t i = 0; i < link.sent.size(); ++i) {
    if (link.sent[i].buffer != kNoBuffer) release_kept(link.sent[i].buffer);
  }
  link.sent.clear();
  link.outstanding = 0;
  link.control.clear();
  link.control_sent = 0;
  link.probing = link.owes_ack = false;
  link.due = 0;
  peer.probes = 0;
}

// Everything is acknowledged, except by peers that are closing and may be gone.
bool UdTransport::ud_settled() const noexcept {
  return std::all_of(ud_pending_.begin(), ud_pending_.end(), [](const Peer* peer) {
    return peer->lost || peer->shut_down || peer->link->settled();
  });
}

// The process itself must answer, and may compute for long: RC's timeouts are too short for that.
Nanoseconds UdTransport::silence_of_the_lost() const noexcept {
  if (context_.settings.ud_timeout > 0) return context_.settings.ud_timeout;
  return (Nanoseconds{4096} << context_.settings.ack_timeout) *
         static_cast<Nanoseconds>(context_.settings.retry_count + 1);
}

}  // namespace turnout
