// SPDX-License-Identifier: BSD-3-Clause
// Credits of the shared data receive queue: which peer may send how many messages that take its
// buffers (SC'06, section 6: flow control that knows the queue is shared).
//
// What is lent to all peers together has no limit until the queue has been low, and could not grow,
// for many times as many messages as it has receives. Most programs' peers do not all use what they
// have at once, and a burst is over sooner if its senders' adapters try again than if each of them
// waits for a credit message. Then the limit is what the queue has or may be given
// (safe_to_lend()), so that none can be missing, and goes up slowly while that leaves it not low. A
// peer begins with few credits and gets twice as many each time it used its last one, or half of
// them are given back in a message of their own, up to TURNOUT_CREDITS. At the limit those that
// have nothing left wait in a row. Whoever is first gets as many as it would get without a limit,
// once that many came back: fewer at a time would need a message for each. Nobody has to ask: a
// peer whose last message was taken out of its buffer is in the row.
//
// So messages that keep their receives must not keep the last ones: what waits for its turn, or for
// a receive of the program's, is copied aside while receives are scarce (receives_scarce()).
//
// While somebody waits, credits of peers that are silent do not count, so nobody waits for a
// process that computes. They count again when a message of theirs comes.
//
// Strangers come with their first credits: those of their first messages cannot be bounded. What
// finds no receive is sent again by its sender's adapter, or by the sender over UD.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
// While somebody waits, so many peers are looked at so often. Silent is who has said nothing for
// two of these times: a message of a peer that was just lent more is here in some microseconds.
constexpr Nanoseconds kSweepEvery = 20'000;
constexpr std::size_t kSweep = 128;
constexpr std::uint32_t kSilent = 2;
constexpr std::uint32_t kMostLent = 1u << 24;
// In times the receives there are: messages, with the queue low, after which lending has a limit.
constexpr std::uint32_t kCrowded = 16;
// The limit goes up by that part of what is safe, after so many times as many messages.
constexpr std::uint32_t kCareful = 16;
// One peer gets at most this part of the limit at a time.
constexpr std::uint32_t kBatches = 4;
}  // namespace

std::uint32_t EndpointCore::first_credits() const noexcept {
  return std::bit_floor(
      static_cast<std::uint32_t>(std::min(settings_.credits_first, settings_.credits)));
}

std::uint32_t EndpointCore::safe_to_lend() const noexcept {
  std::uint32_t most = receive_pool_.count();
  if (shared_.may_grow)
    most = std::max(most, static_cast<std::uint32_t>(settings_.receive_buffers));
  // Buffers of one poll are lent again before they are posted again.
  return most - std::min(most / 4, std::uint32_t{kPollBatch});
}

std::uint32_t EndpointCore::lendable() const noexcept {
  return lends_freely_ ? UINT32_MAX : std::max(safe_to_lend(), lend_limit_);
}

// Messages came; while the low watermark is armed, none of them left the queue low.
void EndpointCore::count_calm() noexcept {
  const std::uint32_t receives = receive_pool_.count();
  if (!shared_.armed) {
    ++crowded_;
    return;
  }
  if (++calm_ < (lend_limit_ == UINT32_MAX ? receives : receives * kCareful)) [[likely]]
    return;
  calm_ = crowded_ = 0;
  if (lend_limit_ == UINT32_MAX) return;
  const std::uint32_t safe = safe_to_lend();
  lend_limit_ = std::min(std::max(lend_limit_, safe) + std::max(safe / kCareful, 1u), kMostLent);
}

// Too few receives were left, and there can be no more.
void EndpointCore::count_crowded() noexcept {
  crowded_ += std::exchange(calm_, 0);
  // Over UD who finds no receive waits for a timeout.
  const std::uint32_t most = over_datagrams() ? 0 : receive_pool_.count() * kCrowded;
  if (lend_limit_ != UINT32_MAX || crowded_ >= most) lend_limit_ = 0;
}

// One of its messages has left its buffer.
void EndpointCore::take_back_credit(Peer& peer) {
  if (peer.lost) return;  // forget_credits() has counted it
  Lending& lending = peer.lending;
  know_lending(lending);
  lending.sweep = sweep_;
  if (lending.aside > 0) [[unlikely]]
    count_again(lending);
  if (lending.lent > 0) {  // else it sent more than it may
    --lending.lent;
    --lent_;
  }
  count_calm();
  lend(peer);
  if (!wanting_.empty()) [[unlikely]]
    serve_wanting();
}

void EndpointCore::know_lending(Lending& lending) noexcept {
  if (lending.known) [[likely]]
    return;
  lending.known = true;
  lending.target = lending.lent = first_credits();
  lent_ += lending.lent;
}

// A message came that had no credit, see recovery.cpp: one was lent and is used.
void EndpointCore::count_uncredited(Lending& lending) noexcept {
  know_lending(lending);
  ++lending.lent;
  ++lent_;
}

void EndpointCore::count_again(Lending& lending) noexcept {
  lent_ += lending.aside;
  lending.aside = 0;
}

// Up to its target, if nobody waits for what is free; tells it when that is worth a message. If
// that is for half of its credits alone, they are twice as many from then on.
void EndpointCore::lend(Peer& peer) {
  Lending& lending = peer.lending;
  know_lending(lending);  // its first message keeps its buffer
  lend_to_target(peer);
  const bool dry = is_dry(peer);
  if (dry && peer.owed == 0) [[unlikely]]
    want_for(peer);
  const bool half = peer.owed >= std::max(lending.target / 2, 1u);
  if (half && wanting_.empty()) {
    raise_target(lending);
    lend_to_target(peer);
  }
  if (half || (dry && peer.owed > 0)) send_credits(peer);
}

void EndpointCore::lend_to_target(Peer& peer) noexcept {
  Lending& lending = peer.lending;
  const std::uint32_t most = lendable();
  // What it keeps here is beside its target, but part of its share.
  const std::uint32_t share = std::min(lending.target + lending.kept, most_credits());
  if (!wanting_.empty() || lent_ >= most || lending.lent >= share) return;
  give_credits(peer, std::min(share - lending.lent, most - lent_));
}

// It is told with send_credits(), or in the header of a message.
void EndpointCore::give_credits(Peer& peer, std::uint32_t count) noexcept {
  peer.lending.lent += count;
  lent_ += count;
  peer.owed += count;
}

// It has used its last credit: it has more to say than it may.
void EndpointCore::raise_target(Lending& lending) noexcept {
  if (!lending.known) return;
  lending.target = std::min(2 * lending.target, most_credits());
}

// It has nothing but what is here: messages that keep their buffers, and what it was not told of.
bool EndpointCore::is_dry(const Peer& peer) noexcept {
  return peer.lending.lent <= peer.owed + peer.lending.kept;
}

// Unless its own messages fill its share.
void EndpointCore::want_for(Peer& peer) {
  if (peer.lending.wanting || peer.lending.kept >= most_credits()) return;
  peer.lending.wanting = true;
  wanting_.push_back(&peer);
  ++credit_waits_;
  if (next_sweep_ == INT64_MAX) next_sweep_ = clock_.now() + kSweepEvery;
}

// few: perhaps no more come back.
void EndpointCore::serve_wanting(bool few) {
  const std::uint32_t most = lendable();
  while (!wanting_.empty() && lent_ < most) {
    Peer& peer = *wanting_.front();
    Lending& lending = peer.lending;
    const std::uint32_t batch = std::min(lending.target, std::max(most / kBatches, 1u));
    if (most - lent_ < batch && !few) return;
    wanting_.pop_front();
    lending.wanting = false;
    if (peer.lost || !is_dry(peer)) continue;
    give_credits(peer, std::min(batch, most - lent_));
    send_credits(peer);
  }
  if (wanting_.empty()) next_sweep_ = INT64_MAX;
}

// What peers that say nothing hold is lent to others, and what they were not told of.
void EndpointCore::sweep_credits(Nanoseconds now) {
  ++sweep_;
  for (std::size_t n = std::min(kSweep, peers_.size()); n > 0; --n) {
    sweep_at_ = sweep_at_ + 1 < peers_.size() ? sweep_at_ + 1 : 0;
    Peer& peer = *peers_[sweep_at_];
    Lending& lending = peer.lending;
    if (peer.lost || is_dry(peer) || sweep_ - lending.sweep < kSilent) continue;
    count_again(lending);
    lending.target = first_credits();
    const std::uint32_t untold = std::exchange(peer.owed, 0);
    lending.lent -= untold;
    lending.aside = lending.lent - lending.kept;
    lent_ -= untold + lending.aside;
  }
  serve_wanting(true);
  if (!wanting_.empty()) next_sweep_ = now + kSweepEvery;
}

void EndpointCore::forget_credits(Peer& peer) {
  lent_ -= peer.lending.lent - peer.lending.aside;
  peer.lending.lent = peer.lending.aside = 0;
  if (!wanting_.empty()) serve_wanting();
}

}  // namespace turnout
