// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/peer.h"

#include "core/connection/xrc_connection.h"

namespace turnout {

PeerConnection::PeerConnection() = default;
PeerConnection::~PeerConnection() = default;
Peer::Peer() = default;
Peer::~Peer() = default;

void ChannelHistory::change(ChannelKind kind, std::int64_t now) {
  if (kind == current_.channel) return;
  past_.push_back(current_);
  if (past_.size() >= DirectionReport::kMaxSpans) {
    // Fold the third oldest into the oldest of its kind: counts stay exact, only its time is lost.
    const ChannelSpan folded = past_[2];
    past_.erase(past_.begin() + 2);
    ChannelSpan& into = past_[1].channel == folded.channel ? past_[1] : past_[0];
    into.messages += folded.messages;
    into.bytes += folded.bytes;
  }
  current_ = ChannelSpan{kind, now, 0, 0};
  ++switches_;
}

DirectionReport ChannelHistory::report() const {
  DirectionReport report;
  report.spans = past_;
  report.spans.push_back(current_);
  report.switches = switches_;
  return report;
}

}  // namespace turnout
