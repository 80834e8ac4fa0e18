// SPDX-License-Identifier: BSD-3-Clause
// What the channel selector does with a prediction (policy `turnout`, setting `prediction`): asks
// for the channels that it plans when their sources are heard, and counts what they saved.
#include "base/log.h"
#include "core/channels/channel_selector.h"

namespace turnout {

Status ChannelSelector::predict(LastRun last) {
  if (last.sources.empty()) return {};
  // A plan has no more sources than the run.
  const std::uint64_t bytes = last.sources.size() * std::max(sizeof(LastRun::Source),
                                                             sizeof(selection::Prediction::Source));
  prediction_bytes_ = Reservation::take(context_.account, MemoryKind::statistics, bytes,
                                        peer_table_.reserved_headroom());
  if (!prediction_bytes_) {
    return {Code::over_budget,
            fmt::format("no memory within the budget for {} sources", last.sources.size())};
  }
  last_run_ = std::move(last);
  predicts_ = true;
  outcomes_.call_when_done([this] { ask_predicted(); });
  return {};
}

// When the first address is known: then it is known, too, how many peers are expected, and what is
// left of the budget for channels.
void ChannelSelector::plan_predicted() {
  const LastRun last = std::exchange(last_run_, {});
  prediction_ = {last, context_.age(), context_.costs,
                 static_cast<std::uint32_t>(context_.settings.ring_entries), limits(0)};
  prediction_bytes_ = {};
  if (!prediction_.empty()) {
    prediction_bytes_ =
        Reservation::take(context_.account, MemoryKind::statistics, prediction_.bytes());
  }
  if (!prediction_bytes_) prediction_ = {};
  predicts_ = !prediction_.empty();
  TURNOUT_LOG(selection, info, "the last run predicts channels for {} of {} sources",
              prediction_.sources().size(), last.sources.size());
}

void ChannelSelector::learn(std::span<const Address> addresses) {
  for (const Address& address : addresses) {
    if (!predicts_ || context_.closing) return;
    if (address.magic != 0) learn(address);
  }
}

// Wires up with a process that will send, before it does.
void ChannelSelector::learn(const Address& address) {
  if (address.id == context_.address.id) return;
  if (!last_run_.sources.empty()) plan_predicted();
  if (!prediction_.expect(Address::rank_in(address.id), context_.clock.now())) return;
  const Result<PeerId> peer = peer_table_.peer(address);
  if (!peer) return;  // logged; it is heard when it sends
  Peer& known = peer_table_.peers()[peer.value()];
  if (known.remote_index == wire::kUnknownIndex) {
    sender_.send_wireup(known);
  } else {
    ask_if_predicted(known);
  }
}

void ChannelSelector::ask_if_predicted(Peer& peer) {
  if (peer.self || peer.lost || context_.closing) return;
  if (!last_run_.sources.empty()) plan_predicted();
  if (prediction_.hear(Address::rank_in(peer.address.id), peer.id)) ask_predicted();
}

void ChannelSelector::ask_predicted() {
  using enum selection::Prediction::Asked;
  if (context_.closing || asks_predicted_) return;
  asks_predicted_ = true;
  const Nanoseconds now = context_.clock.now();
  std::size_t under_way = 0;
  for (const auto& source : prediction_.sources()) {
    if (source.asked_rc && peer_table_.peers()[source.peer].rx.state != ReceiveState::steady)
      ++under_way;
  }
  const Nanoseconds since = prediction_.since_start(now - context_.born, context_.delivered > 0);
  prediction_.ask(now, since, under_way, [&](const auto& source, ChannelKind to) {
    Peer& peer = peer_table_.peers()[source.peer];
    if (peer.lost || peer.rx.kind == to || ring_over_connection(peer.rx.kind)) return never;
    if (peer.rx.state != ReceiveState::steady || peer.remote_index == wire::kUnknownIndex ||
        peer.connection->recovery || peer.connection->eviction.disconnecting ||
        peer.connection->eviction.waits_for_slot ||
        (peer.change->refused_until != 0 && now < peer.change->refused_until)) {
      return later;
    }
    peer.change.make().predicted = true;
    peer.change.make().final_channel = context_.default_channel;
    change_channel(peer, to, peer.rx.kind,
                   fmt::format("{}: {} messages then",
                               selection::explain(selection::Reason::predicted), source.messages),
                   (to == ChannelKind::rc_rdma ? source.gain_rc : source.gain_dc) /
                       static_cast<double>(source.messages));
    return peer.rx.state == ReceiveState::steady ? refused : yes;
  });
  asks_predicted_ = false;
}

// What the sources on trust saved since the last decision. One that has repaid, or was to have
// ended by now, is judged by its messages from now on.
void ChannelSelector::count_predicted() {
  const selection::CostModel costs = selection::cost_model(
      context_.costs, static_cast<std::uint32_t>(context_.settings.ring_entries));
  prediction_.repay([&](const selection::Prediction::Source& source) {
    const Peer& peer = peer_table_.peers()[source.peer];
    return over_ring(peer.rx.kind)
               ? peer.rx.window * std::max(outcomes_.saved_by_a_message(peer, costs), 0.0)
               : 0.0;
  });
  const auto since =
      static_cast<double>(prediction_.since_start(context_.age(), context_.delivered > 0));
  for (const auto& source : prediction_.sources()) {
    if (!source.heard || (source.owed > 0 && since < source.last)) continue;
    Peer& peer = peer_table_.peers()[source.peer];
    if (!peer.change->predicted) continue;
    peer.change.ref().predicted = false;
    peer.change.ref().use = {};
  }
}

}  // namespace turnout
