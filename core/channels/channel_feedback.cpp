// SPDX-License-Identifier: BSD-3-Clause
// Sender feedback: what the sender of a direction reports to the receiver, who chooses the channel
// (policy `turnout`). At most one small message to a peer in an interval.
#include "core/channels/channel_selector.h"

namespace turnout {

// At the end of an interval, or when enough was sent: how busy we are must not be told of a moment.
void ChannelSelector::report_feedback(Nanoseconds now_is) {
  constexpr std::uint64_t kMostBackoffs = 16;
  const std::uint64_t received = context_.delivered - reported_at_;
  const std::uint64_t least = account_ + 4 * peer_table_.peers().size();
  if (report_after_ == UINT64_MAX) report_after_ = least;
  if (now_is < next_decision_ && context_.feedback.sent() + received < least) return;
  context_.feedback.end_interval(context_.costs, received, static_cast<double>(now_is - reported_));
  reported_ = now_is;
  reported_at_ = context_.delivered;
  bool told = false;
  Feedback now;
  now.busy = context_.feedback.busy_thousandths();
  now.active_rc = std::min(rc_.active_rc(), wire::kMostQueuePairs);
  now.full = !eviction_.active() && peer_table_.room_for_channels() < context_.rc_bytes;
  std::map<NodeKey, std::uint32_t> on_node;  // processes that we sent to
  if (xrc_nodes_.may_use_xrc()) {
    for (Peer& peer : peer_table_.peers()) {
      if (peer.tx.sent.sent > 0 && !peer.lost && !peer.self)
        ++on_node[{peer.address.port->lid, peer.address.port->gid}];
    }
  }
  for (Peer& peer : peer_table_.peers()) {
    const bool silent = peer.tx.sent.sent == 0;
    now.switched = FeedbackCounter::take_switched(peer.tx.sent);
    if (silent || peer.lost || peer.self || peer.remote_index == wire::kUnknownIndex) continue;
    const auto node = on_node.find({peer.address.port->lid, peer.address.port->gid});
    // One process alone shares nothing.
    const std::uint32_t here = node == on_node.end() || node->second < 2 ? 0 : node->second;
    now.here = static_cast<std::uint16_t>(std::min<std::uint32_t>(here, UINT16_MAX));
    if (!FeedbackCounter::changes(peer.tx.reported.unpacked(), now)) continue;
    peer.tx.reported = PackedFeedback(now);
    told = true;
    control_.send_control(peer, Purpose::credit,
                          {.type = wire::Control::feedback,
                           .refusal = now.full ? wire::Refusal::budget : wire::Refusal::none,
                           .qp_id = now.here,
                           .ring_entries = now.active_rc,
                           .credits = now.busy,
                           .ring_credits = now.switched});
  }
  report_after_ = told ? least : std::min(2 * report_after_, kMostBackoffs * least);
}

void ChannelSelector::on_feedback(Peer& peer, const wire::ControlMessage& message) noexcept {
  peer.rx.feedback = PackedFeedback(
      {.busy = message.credits,
       .switched = message.ring_credits,
       .active_rc = message.ring_entries,
       .here = static_cast<std::uint16_t>(std::min<std::uint32_t>(message.qp_id, UINT16_MAX)),
       .full = message.refusal == wire::Refusal::budget});
}

}  // namespace turnout
