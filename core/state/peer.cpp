// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/peer.h"

#include "core/connection/xrc_connection.h"

namespace turnout {

PeerConnection::PeerConnection(PeerId peer) {
  eviction.peer = peer;
}
PeerConnection::~PeerConnection() = default;
Peer::Peer() = default;
Peer::~Peer() = default;

void Peer::send_on(ChannelKind kind, Nanoseconds now) {
  if (kind == tx.kind) return;
  state.make().tx.past.end(tx.kind, &tx.carried, now);
  tx.kind = kind;
}

void Peer::receive_on(ChannelKind kind, Nanoseconds now) {
  if (kind == rx.kind) return;
  state.make().rx.past.end(rx.kind, &rx.carried, now);
  rx.kind = kind;
}

void PastChannels::end(ChannelKind kind, ChannelCount* carried, std::int64_t now) {
  spans_.push_back({kind, since_, carried->messages, carried->bytes});
  if (spans_.size() >= DirectionReport::kMaxSpans) {
    // Fold the third oldest into the oldest of its kind: counts stay exact, only its time is lost.
    const ChannelSpan folded = spans_[2];
    spans_.erase(spans_.begin() + 2);
    ChannelSpan& into = spans_[1].channel == folded.channel ? spans_[1] : spans_[0];
    into.messages += folded.messages;
    into.bytes += folded.bytes;
  }
  *carried = {};
  since_ = now;
  ++switches_;
}

DirectionReport PastChannels::report(ChannelKind kind, const ChannelCount& carried) const {
  DirectionReport report;
  report.spans = spans_;
  report.spans.push_back({kind, since_, carried.messages, carried.bytes});
  report.switches = switches_;
  return report;
}

Address PeerAddress::whole() const noexcept {
  Address address;
  address.counts = counts;
  address.lid = port->lid;
  address.sizes = sizes;
  address.id = id;
  address.gid = port->gid;
  address.pid = pid;
  address.dct = dct;
  return address;
}

}  // namespace turnout
