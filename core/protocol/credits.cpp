// SPDX-License-Identifier: BSD-3-Clause
// Credits of the shared data receive queue: which peer may send how many messages that take its
// buffers (SC'06, section 6: flow control that knows the queue is shared).
//
// What is lent to all peers together has a limit, at least as many as the queue has or may be given
// (safe_to_lend()), so that none can be missing. Most programs' peers do not all use what they have
// at once: the limit goes up with every queue's worth of messages that did not leave it low, and
// down to what is safe when it was low and could not grow; from then on it goes up 256 times more
// slowly. A peer begins with few credits and gets twice as many each time it used its last one, up
// to TURNOUT_CREDITS. When all are lent, a buffer that comes free is not lent to the peer it came
// from but to the first of those that have nothing left, who wait in a row: an incast slows down
// before it finds no receive. Nobody has to ask: a peer whose last message was taken out of its
// buffer is in the row.
//
// Peers that were silent for a while are asked to hand back what they have (recall, yield). What
// they were lent counts no more from then on, so nobody waits for a process that computes; it
// counts again when a message of theirs comes. Only a peer that handed back all knows that it must
// ask for a credit (want).
//
// Strangers come with their first credits: those of their first messages cannot be bounded. What
// finds no receive is sent again by its sender's adapter, or by the sender over UD.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/endpoint_core.h"

namespace turnout {
namespace {
// While somebody waits: how often peers are looked at that hold credits and say nothing, and how
// many of them. Twice as seldom each time it was no use, up to 128 times.
constexpr Nanoseconds kSweepEvery = 100'000;
constexpr std::size_t kSweep = 64;
constexpr unsigned kMostBackoff = 7;
constexpr std::uint32_t kMostLent = 1u << 24;
// Once too much was lent: steps that much smaller, after that many times as many messages.
constexpr std::uint32_t kCareful = 16;
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
  if (lends_freely_) return UINT32_MAX;
  return std::max(safe_to_lend(), lend_limit_);
}

// Many messages came, and enough receives were left all the time.
void EndpointCore::raise_lend_limit() noexcept {
  calm_ = 0;
  const std::uint32_t safe = safe_to_lend();
  const std::uint32_t step = lent_too_much_ ? std::max(safe / kCareful, 1u) : safe;
  lend_limit_ = std::min(std::max(lend_limit_, safe) + step, kMostLent);
}

// Too few receives were left, and there can be no more.
void EndpointCore::lower_lend_limit() noexcept {
  lend_limit_ = 0;
  lent_too_much_ = true;
  calm_ = 0;
}

// One of its messages has left its buffer.
void EndpointCore::take_back_credit(Peer& peer) {
  if (peer.lost) return;  // forget_credits() has counted it
  Lending& lending = peer.lending;
  know_lending(lending);
  lending.lately = true;
  if (lending.aside > 0) [[unlikely]]
    count_again(lending);
  if (lending.lent > 0) {  // else it sent more than it may
    --lending.lent;
    --lent_;
  }
  if (++calm_ >= receive_pool_.count() * (lent_too_much_ ? kCareful : 1u)) [[unlikely]]
    raise_lend_limit();
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

// Up to its target, if nobody waits for what is free; tells it when that is worth a message.
void EndpointCore::lend(Peer& peer) {
  Lending& lending = peer.lending;
  know_lending(lending);  // its first message keeps its buffer
  const std::uint32_t most = lendable();
  // What it keeps here is beside its target, but part of its share.
  const std::uint32_t share = std::min(lending.target + lending.kept, most_credits());
  if (wanting_.empty() && lent_ < most && lending.lent < share) {
    const std::uint32_t more = std::min(share - lending.lent, most - lent_);
    lending.lent += more;
    lent_ += more;
    peer.owed += more;
  }
  const bool dry = is_dry(peer);
  if (dry && peer.owed == 0) [[unlikely]]
    want_for(peer);
  if (peer.owed >= std::max(lending.target / 2, 1u) || (dry && peer.owed > 0)) send_credits(peer);
}

// It has used its last credit: it has more to say than it may.
void EndpointCore::raise_target(Lending& lending) noexcept {
  if (!lending.known || !wanting_.empty()) return;
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
  if (next_sweep_ == INT64_MAX) {
    sweep_backoff_ = 0;
    next_sweep_ = clock_.now() + kSweepEvery;
  }
}

void EndpointCore::serve_wanting() {
  const std::uint32_t most = lendable();
  while (!wanting_.empty() && lent_ < most) {
    Peer& peer = *wanting_.front();
    const std::uint32_t share = (most - lent_) / static_cast<std::uint32_t>(wanting_.size());
    wanting_.pop_front();
    Lending& lending = peer.lending;
    lending.wanting = false;
    if (peer.lost || !is_dry(peer)) continue;
    const std::uint32_t given = std::clamp(share, 1u, first_credits());
    lending.lent += given;
    lent_ += given;
    peer.owed += given;
    send_credits(peer);
  }
  if (wanting_.empty()) next_sweep_ = INT64_MAX;
}

// Looks for peers that hold credits and do not use them.
void EndpointCore::sweep_credits(Nanoseconds now) {
  bool gained = false;
  for (std::size_t n = std::min(kSweep, peers_.size()); n > 0; --n) {
    sweep_at_ = sweep_at_ + 1 < peers_.size() ? sweep_at_ + 1 : 0;
    Peer& peer = *peers_[sweep_at_];
    Lending& lending = peer.lending;
    if (peer.lost || lending.recalled || is_dry(peer)) continue;
    if (lending.lately) {
      lending.lately = false;
      gained = true;  // perhaps next time
      continue;
    }
    lending.recalled = true;
    lending.target = first_credits();
    lending.aside = lending.lent - peer.owed - lending.kept;
    lent_ -= lending.aside;
    ++credit_recalls_;
    gained = true;
    if (peer.said_bye) continue;  // it sends no more, and answers nothing
    wire::ControlMessage message;
    message.type = wire::Control::recall;
    send_control(peer, Purpose::credit, message);
  }
  serve_wanting();
  if (wanting_.empty()) return;
  sweep_backoff_ = gained ? 0 : std::min(sweep_backoff_ + 1, kMostBackoff);
  next_sweep_ = now + (kSweepEvery << sweep_backoff_);
}

// At the source. What waits to be sent needs its credits.
void EndpointCore::on_recall(Peer& peer) {
  wire::ControlMessage answer;
  answer.type = wire::Control::yield;
  if (peer.backlog.empty() && peer.credits > 0) {
    answer.credits = static_cast<std::uint16_t>(peer.credits);
    peer.credits = 0;
    peer.must_ask = true;
  }
  send_control(peer, Purpose::credit, answer);
}

void EndpointCore::on_yield(Peer& peer, std::uint32_t credits) {
  Lending& lending = peer.lending;
  if (!lending.recalled || credits > lending.lent) {
    lose_peer(peer, Status{Code::invalid,
                           fmt::format("{}: returns {} credits of {}{}", peer.address.to_string(),
                                       credits, lending.lent,
                                       lending.recalled ? "" : "; they were not reclaimed")});
    return;
  }
  lending.recalled = false;
  count_again(lending);
  lending.lent -= credits;
  lent_ -= credits;
  if (is_dry(peer)) {
    // Whether it will ask is known only if nothing came since: credits it was told of after its
    // answer, and has used, made it forget that it must.
    const bool asks = credits > 0 && !lending.lately;
    if (peer.owed > 0 && !asks) {
      send_credits(peer);
    } else if (peer.owed > 0) {  // nobody's otherwise: it was not told of them
      const std::uint32_t untold = std::min(peer.owed, lending.lent);
      lending.lent -= untold;
      lent_ -= untold;
      peer.owed -= untold;
    } else if (!asks) {
      want_for(peer);
    }
  }
  if (!wanting_.empty()) serve_wanting();
}

// At the source: it has nothing, and nothing will come unasked.
void EndpointCore::ask_for_credit(Peer& peer) {
  peer.must_ask = false;
  wire::ControlMessage message;
  message.type = wire::Control::want;
  send_control(peer, Purpose::credit, message);
}

void EndpointCore::on_want(Peer& peer) {
  if (!is_dry(peer)) return;  // a message of its is on its way, and brings it what is left
  if (peer.owed > 0) {
    send_credits(peer);
    return;
  }
  want_for(peer);
  serve_wanting();
}

void EndpointCore::forget_credits(Peer& peer) {
  lent_ -= peer.lending.lent - peer.lending.aside;
  peer.lending.lent = peer.lending.aside = 0;
  if (!wanting_.empty()) serve_wanting();
}

}  // namespace turnout
