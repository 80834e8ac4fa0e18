// SPDX-License-Identifier: BSD-3-Clause
// Reliability over UD as the default transport: acknowledgements, timers, retransmission and
// probes, which DC's adapters provide. The state of each peer is UdReliability (ud_reliability.h).
//
// Acknowledgements are piggybacked. A separate one is sent after kAckDelay, or at once for a
// duplicate or out-of-order message, because its sender waits then. Acknowledgements need no data
// send buffer, and control buffers return with the adapter's completion, not with the peer's reply:
// so they can always be sent eventually.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
// Messages retransmitted at a time; the others follow when the first is acknowledged.
constexpr std::size_t kResendAtOnce = 8;
// Retry time when a queue or pool is full, which drains with the adapter's completions.
constexpr Nanoseconds kSoon = 10'000;
}  // namespace

void EndpointCore::on_datagram(bool control, std::uint32_t buffer, std::uint32_t length) {
  const std::byte* const whole =
      control ? control_receive_pool_.data(buffer) : receive_pool_.data(buffer);
  const std::uint32_t size = control ? control_receive_pool_.size() : receive_pool_.size();
  wire::Datagram datagram;
  Status status;
  const std::byte* const bytes = whole + wire::kGrhBytes;
  if (length < wire::kGrhBytes || length > size) [[unlikely]] {
    status = {Code::invalid, "datagram: shorter than the adapter's header"};
  } else {
    length -= wire::kGrhBytes;
    status = wire::parse_datagram(bytes, length, &datagram);
    if (status.ok() && control == (datagram.kind == wire::DatagramKind::data)) [[unlikely]] {
      status = {Code::invalid, "datagram: arrived at the wrong queue pair"};
    }
  }
  if (!status.ok()) {
    TURNOUT_LOG(protocol, error, "receiving a datagram failed: {}; it was dropped", status.text());
    (control ? to_post_control_ : to_post_).push_back(buffer);
    return;
  }
  if (control) {
    on_control_datagram(bytes, length);
    to_post_control_.push_back(buffer);
  } else {
    on_data(buffer, length - static_cast<std::uint32_t>(sizeof datagram));
  }
}

// A stream message of a peer. False: it was dropped, and its buffer reposted.
bool EndpointCore::data_came(Peer& peer, const wire::Header& header, std::uint32_t buffer) {
  wire::Datagram datagram;
  std::memcpy(&datagram, receive_pool_.data(buffer) + wire::kGrhBytes, sizeof datagram);
  bool taken = datagram.sender == peer.address.id;
  if (taken) {
    take_ud_header(peer, datagram);
    taken = !peer.lost;
  }
  if (taken) {
    const bool twice =
        before(header.sequence, peer.receive_sequence) ||
        std::any_of(peer.reorder_buffer.begin(), peer.reorder_buffer.end(),
                    [&](const auto& message) { return message.sequence == header.sequence; });
    const bool early = header.sequence != peer.receive_sequence;
    owe_ack(peer, twice || early);
    // Out-of-order messages must leave receives for the missing one. Dropped messages were not
    // acknowledged and are retransmitted.
    taken = !twice && !(early && receives_kept_ >= receive_pool_.count() / 2);
  }
  if (!taken) to_post_.push_back(buffer);
  return taken;
}

void EndpointCore::on_control_datagram(const std::byte* bytes, std::uint32_t length) {
  wire::Datagram datagram;
  std::memcpy(&datagram, bytes, sizeof datagram);
  bytes += sizeof datagram;
  length -= static_cast<std::uint32_t>(sizeof datagram);
  Peer* const peer = find_sender(datagram.index, datagram.sender);
  if (peer == nullptr && datagram.kind == wire::DatagramKind::probe) {
    wire::WireupRequest wireup;
    std::memcpy(&wireup, bytes, sizeof wireup);
    answer_unknown_peer(wireup);
    return;
  }
  if (peer == nullptr || peer->lost) {
    TURNOUT_LOG(connection, debug, "dropped a datagram of {:016x}", datagram.sender);
    // It has shut down and waits for our acknowledgement.
    if (peer != nullptr && peer->shut_down && datagram.kind != wire::DatagramKind::ack) {
      send_ack(*peer);
    }
    // It continues to probe: the rejection was lost.
    if (peer != nullptr && peer->given_up != Code::ok) peer->loss_unreported = true;
    return;
  }
  peer->heard_since_tick = true;
  take_ud_header(*peer, datagram);
  if (peer->lost || datagram.kind == wire::DatagramKind::ack) return;
  if (datagram.kind == wire::DatagramKind::probe) {
    owe_ack(*peer, true);
    return;
  }
  wire::ControlMessage message;
  wire::Detail detail;  // types with a detail are not sent over UD
  if (Status status = wire::parse_control(bytes, length, &message, &detail); !status.ok()) {
    TURNOUT_LOG(connection, error, "receiving a datagram failed: {}; it was dropped",
                status.text());
    return;
  }
  if (datagram.kind == wire::DatagramKind::reject) {
    if (message.type == wire::Control::reject) handle_control(*peer, message, detail);
    return;
  }
  UdReliability& link = *peer->link;
  if (message.sequence != link.control_expected) {
    link.control_gap |= before(link.control_expected, message.sequence);
    owe_ack(*peer, true);
    return;
  }
  ++link.control_expected;
  owe_ack(*peer, false);
  handle_control(*peer, message, detail);
  // It waits for the acknowledgement, and this process may exit before its next timer.
  if (message.type == wire::Control::shutdown) send_ack(*peer);
}

void EndpointCore::take_ud_header(Peer& peer, const wire::Datagram& datagram) {
  UdReliability& link = *peer.link;
  link.heard = true;
  link.probing = false;
  peer.probes = 0;
  bool moved = link.take_data_ack(datagram, peer.send_sequence,
                                  [this](std::uint32_t buffer) { release_kept(buffer); });
  moved |= link.take_control_ack(datagram.control_ack);
  if (link.timed && before(link.timed_sequence, datagram.data_ack)) {
    link.timed = false;
    link.round_trip.sample(clock_.now() - link.timed_at);
  }
  if (moved || !link.waits()) {
    link.backoff = 0;
    link.due = 0;
    if (link.waits()) arm(peer, clock_.now());
  }
  // Later messages arrived: retransmit the first missing one, once for each.
  if (datagram.sack > 1 && (datagram.sack & 1u) == 0 && !link.sent.empty()) {
    const UdReliability::Sent& missing = link.sent[0];
    if (missing.sequence == datagram.data_ack && missing.buffer != kNoBuffer &&
        !(link.resent_data && link.resent_sequence == missing.sequence)) {
      link.resent_data = true;
      link.resent_sequence = missing.sequence;
      link.timed = false;
      resend_data(peer, missing);
    }
  }
  if ((datagram.flags & wire::kControlGap) != 0 && link.control_sent > 0 &&
      datagram.control_ack == link.control_first &&
      !(link.resent_control && link.resent_control_sequence == link.control_first)) {
    link.resent_control = true;
    link.resent_control_sequence = link.control_first;
    for (std::size_t i = 0; i < link.control_sent && !peer.lost; ++i) {
      if (!post_ud_control(peer, i)) break;
    }
  }
  if (!peer.lost && link.control_sent < link.control.size()) (void)transmit_control(peer);
}

void EndpointCore::stamp(Peer& peer, wire::DatagramKind kind, wire::Datagram* datagram) {
  UdReliability& link = *peer.link;
  datagram->kind = kind;
  datagram->sender = address_.id;
  datagram->index = peer.remote_index;
  datagram->data_ack = peer.receive_sequence;
  datagram->sack = 0;
  for (const OutOfOrderMessage& message : peer.reorder_buffer) {
    const std::uint32_t ahead = message.sequence - peer.receive_sequence;
    if (ahead < 32) datagram->sack |= 1u << ahead;
  }
  datagram->control_ack = link.control_expected;
  datagram->flags = link.control_gap ? wire::kControlGap : std::uint8_t{0};
  link.control_gap = false;
  link.owes_ack = false;
}

void EndpointCore::owe_ack(Peer& peer, bool at_once) {
  UdReliability& link = *peer.link;
  if (link.owes_ack && !at_once) return;
  link.owes_ack = true;
  // "At once" is the end of this round, so one acknowledgement covers the messages of a poll.
  link.ack_at = at_once ? 0 : clock_.now() + UdReliability::kAckDelay;
  list_ud(peer, link.ack_at);
}

void EndpointCore::send_ack(Peer& peer) {
  wire::Datagram datagram;
  const bool gap = peer.link->control_gap;
  stamp(peer, wire::DatagramKind::ack, &datagram);
  if (post_control(peer, true, {&datagram, nullptr, 0})) return;
  peer.link->owes_ack = true;
  peer.link->control_gap = gap;
  peer.link->ack_at = clock_.now() + kSoon;
}

// A probe of a peer without a record. If the reply cannot be sent, it probes again.
void EndpointCore::answer_unknown_peer(const wire::WireupRequest& wireup) {
  auto address = Address::decode(&wireup.address, sizeof(Address));
  if (!address || !address.value().datagrams()) return;
  Status status;
  ibv_ah* const ah = address_handle(address.value(), &status);
  if (ah == nullptr) return;
  wire::Datagram datagram;
  datagram.sender = address_.id;
  datagram.index = wireup.index;
  (void)post_control(*pool(Purpose::credit).front(), kAnyPeer, address.value(), ah,
                     address.value().data_qps(), {&datagram, nullptr, 0}, &status);
}

void EndpointCore::keep_until_acknowledged(Peer& peer, std::uint32_t sequence,
                                           const SendRecord& record) {
  UdReliability& link = *peer.link;
  KeptBuffer& kept = kept_[record.buffer];
  kept.posted = 1;
  kept.acknowledged = false;
  link.keep({sequence, record.buffer, record.length});
  if (link.due != 0 && link.timed) return;
  const Nanoseconds now = clock_.now();
  if (!link.timed) {
    link.timed = true;
    link.timed_sequence = sequence;
    link.timed_at = now;
  }
  if (link.due == 0) arm(peer, now);
}

// Acknowledged by the peer; the adapter may still read it.
void EndpointCore::release_kept(std::uint32_t buffer) {
  KeptBuffer& kept = kept_[buffer];
  kept.acknowledged = true;
  if (kept.posted == 0) send_pool_.give_back(buffer);
}

void EndpointCore::resend_data(Peer& peer, const UdReliability::Sent& message) {
  MessageQueue& queue = *pool(Purpose::data)[peer.data_queue];
  if (queue.full()) return;  // the timer retries
  SendRecord record;
  record.kind = SendRecord::Kind::message;
  record.pool = SendRecord::Pool::kept;
  record.peer = peer.id;
  record.buffer = message.buffer;
  // Unchanged, because the adapter may be reading it. Old acknowledgements in it are harmless.
  record.local = reinterpret_cast<std::uint64_t>(send_pool_.data(message.buffer));
  record.lkey = send_pool_.lkey();
  record.length = message.length;
  record.signalled = true;
  address_data(peer, &record);
  ++kept_[message.buffer].posted;
  profile_.count_sent(Traffic::data, record.length);
  charge(Work::post, 1);
  if (Status status = queue.post(record); !status.ok()) {
    --kept_[message.buffer].posted;
    lose_peer(peer, status);
  }
}

void EndpointCore::send_control_over_ud(Peer& peer, Purpose purpose,
                                        const wire::ControlMessage& message) {
  UdReliability& link = *peer.link;
  link.control.push_back({message, purpose == Purpose::credit});
  UdReliability::Control& last = link.control[link.control.size() - 1];
  last.message.sequence = link.control_first + static_cast<std::uint32_t>(link.control.size() - 1);
  (void)transmit_control(peer);
}

// Sends as much as window and queues allow. False: a queue is full.
bool EndpointCore::transmit_control(Peer& peer) {
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
    list_ud(peer, clock_.now() + kSoon);
  }
  if (link.waits() && link.due == 0) arm(peer, clock_.now());
  return posted;
}

bool EndpointCore::post_ud_control(Peer& peer, std::size_t at) {
  UdReliability::Control& control = peer.link->control[at];
  control.message.index = peer.remote_index;
  wire::Datagram datagram;
  const bool gap = peer.link->control_gap, owed = peer.link->owes_ack;
  stamp(peer, wire::DatagramKind::control, &datagram);
  if (post_control(peer, control.credit, {&datagram, &control.message, sizeof control.message})) {
    return true;
  }
  peer.link->control_gap = gap;
  peer.link->owes_ack = owed;
  return false;
}

bool EndpointCore::pump_ud_blocked() {
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
void EndpointCore::send_probe(Peer& peer) {
  UdReliability& link = *peer.link;
  wire::Datagram datagram;
  const bool gap = link.control_gap;
  stamp(peer, wire::DatagramKind::probe, &datagram);
  wire::WireupRequest wireup;
  wireup.address = address_;
  wireup.index = peer.id;
  if (!post_control(peer, true, {&datagram, &wireup, sizeof wireup})) {
    link.control_gap = gap;  // the timer retries
  }
  if (peer.lost) return;
  link.probing = true;
  peer.probes = 1;
  if (link.due == 0) arm(peer, clock_.now());
}

// Starts the timer.
void EndpointCore::arm(Peer& peer, Nanoseconds now) {
  UdReliability& link = *peer.link;
  if (link.backoff == 0) link.silent_since = now;
  link.heard = false;
  link.due = now + link.round_trip.timeout(link.backoff);
  list_ud(peer, link.due);
}

void EndpointCore::list_ud(Peer& peer, Nanoseconds at) {
  if (!peer.link->listed) {
    peer.link->listed = true;
    ud_pending_.push_back(&peer);
  }
  next_ud_timer_ = std::min(next_ud_timer_, at);
}

void EndpointCore::service_ud_timers(Nanoseconds now) {
  next_ud_timer_ = INT64_MAX;
  Nanoseconds next = INT64_MAX;
  for (std::size_t i = 0; i < ud_pending_.size();) {
    Peer& peer = *ud_pending_[i];
    UdReliability& link = *peer.link;
    if (!peer.lost && link.owes_ack && link.ack_at <= now) send_ack(peer);
    if (!peer.lost && link.due != 0 && link.due <= now) on_ud_timeout(peer, now);
    const bool blocked =
        link.control_sent < std::min(link.control.size(), UdReliability::kControlWindow);
    if (peer.lost || (link.due == 0 && !link.owes_ack && !blocked)) {
      link.listed = false;
      ud_pending_[i] = ud_pending_.back();
      ud_pending_.pop_back();
      continue;
    }
    if (link.due != 0) next = std::min(next, link.due);
    if (link.owes_ack) next = std::min(next, link.ack_at);
    if (blocked) next = std::min(next, now + kSoon);
    ++i;
  }
  next_ud_timer_ = std::min(next_ud_timer_, next);
}

void EndpointCore::on_ud_timeout(Peer& peer, Nanoseconds now) {
  UdReliability& link = *peer.link;
  if (link.heard) link.silent_since = now;
  if (now - link.silent_since >= silence_of_the_lost()) {
    lose_peer(peer, Status{Code::peer_lost,
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

void EndpointCore::drop_ud(Peer& peer) {
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
bool EndpointCore::ud_settled() const noexcept {
  return std::all_of(ud_pending_.begin(), ud_pending_.end(), [](const Peer* peer) {
    return peer->lost || peer->shut_down || peer->link->settled();
  });
}

// The process itself must answer, and may compute for long: RC's timeouts are too short for that.
Nanoseconds EndpointCore::silence_of_the_lost() const noexcept {
  if (settings_.ud_timeout > 0) return settings_.ud_timeout;
  return (Nanoseconds{4096} << settings_.ack_timeout) *
         static_cast<Nanoseconds>(settings_.retry_count + 1);
}

}  // namespace turnout
