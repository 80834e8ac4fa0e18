// SPDX-License-Identifier: BSD-3-Clause
// SrqFlowControl: the credits of a shared receive queue: how many messages each peer may send that
// take receives of the queue (Sur, Koop, Panda, SC'06, section 6; reasons and measurements are in
// docs/decisions/012-shared-receive-queue.md).
//
// A peer begins with few credits. They double each time it used its last one, or half of them are
// returned in a message of their own, up to Limits::most. Their sum has no limit until the queue
// has been low, and could not grow, for many times as many messages as it has receives; then it is
// what the queue has or may be given (safe_limit()), and rises slowly while the queue is not low.
// Peers that are out of credits then wait in a queue, and credits of silent peers do not count
// meanwhile. No peer has to ask: one whose last message left its receive is in the queue.
//
// Messages that retain their receives must not hold the last ones: the owner copies them aside
// while receives are scarce.
//
// The owner is the endpoint; its thread calls. The owner keeps one CreditGrant for each peer, at a
// fixed address, and reports credits to the peer when asked to. No errors; allocates only when a
// peer has to wait.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "core/time/clock.h"

namespace turnout {

// One peer's credits. `granted` is the sum of what the peer has, messages under way, messages that
// retain their receive, and `unreported`.
struct CreditGrant {
  std::uint32_t peer = 0;  // for the owner
  std::uint32_t granted = 0;
  std::uint32_t retained = 0;    // of `granted`: messages that keep their receive
  std::uint32_t uncounted = 0;   // of `granted`: not in the sum of all, as the peer was silent
  std::uint32_t unreported = 0;  // the peer has not been told of them
  std::uint32_t sweep = 0;       // number of the last sweep before its last message
  std::uint16_t target = 0;
  bool counted : 1 = false;  // a message arrived: the grant is part of the sum
  bool waiting : 1 = false;  // in the queue of peers that are out of credits
  bool served : 1 = false;   // in the queue of those that got credits while others waited
  bool closed : 1 = false;   // the peer is lost
};
static_assert(sizeof(CreditGrant) == 28);

class SrqFlowControl {
 public:
  // by_demand: as described above. unlimited, safe: faults for tests.
  enum class Rule : std::uint8_t { by_demand, unlimited, safe };
  struct Limits {
    std::uint16_t first = 1;          // credits of a peer at its first message, a power of two
    std::uint16_t most = 1;           // credits of one peer
    std::uint32_t most_receives = 0;  // that the queue may have
    bool retries = true;              // an adapter retries what finds no receive; false: UD
    Rule rule = Rule::by_demand;
  };
  // What the owner knows of the queue. It tells each change before the next call.
  struct Queue {
    std::uint32_t receives = 0;  // buffers in use
    bool may_grow = false;
    bool armed = false;  // the adapter will report the low watermark
  };

  explicit SrqFlowControl(Clock& clock) noexcept : clock_(clock) {}
  void configure(const Limits& limits) noexcept {
    assert(granted_ == 0);
    limits_ = limits;
    if (limits.rule == Rule::safe) grant_limit_ = 0;
  }
  void set_queue(const Queue& queue) noexcept { queue_ = queue; }

  // A message of the peer left its receive. True: report the peer's credits now.
  [[nodiscard]] bool returned(CreditGrant& grant) {
    if (grant.closed) return false;  // forget() has counted it, or will
    count(grant);
    grant.sweep = sweep_;
    if (grant.uncounted > 0) [[unlikely]]
      count_again(grant);
    if (grant.granted > 0) {  // otherwise the peer sent more than it may
      --grant.granted;
      --granted_;
    }
    count_message();
    return grant_more(grant);
  }
  // The peer's message retains its receive, and may have used its last credit. As returned().
  [[nodiscard]] bool retained(CreditGrant& grant) { return is_out(grant) && grant_more(grant); }
  static void retain(CreditGrant& grant) noexcept { ++grant.retained; }
  static void release(CreditGrant& grant) noexcept { --grant.retained; }
  // A message arrived that was sent without a credit (channels/connection_recovery.cpp).
  void count_uncredited(CreditGrant& grant) noexcept {
    count(grant);
    ++grant.granted;
    ++granted_;
  }
  // The sender says that the message used its last credit.
  void used_last_credit(CreditGrant& grant) noexcept {
    if (!grant.counted) return;
    grant.target = grant.target <= limits_.most / 2 ? static_cast<std::uint16_t>(2 * grant.target)
                                                    : limits_.most;
  }
  // Fewer receives than the low watermark are left, and none can be added.
  void low_and_full() noexcept {
    messages_while_low_ += std::exchange(messages_since_low_, 0);
    // Over UD a sender that finds no receive waits for a timeout.
    const std::uint32_t most = limits_.retries ? queue_.receives * kCrowded : 0;
    if (grant_limit_ != UINT32_MAX || messages_while_low_ >= most) grant_limit_ = 0;
  }

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  // The next peer of the queue that got credits, to be reported now; null: none. If `few`, it may
  // get fewer than usual, as no more may be returned.
  [[nodiscard]] CreditGrant* serve(bool few) {
    const std::uint32_t most = limit();
    while (!waiting_.empty() && granted_ < most) {
      CreditGrant& grant = *waiting_.front();
      const std::uint32_t batch =
          std::min<std::uint32_t>(grant.target, std::max(most / kBatches, 1u));
      if (most - granted_ < batch && !few) return nullptr;
      waiting_.pop_front();
      grant.waiting = false;
      if (grant.closed || !is_out(grant)) continue;
      give(grant, std::min(batch, most - granted_));
      watch(grant);
      if (waiting_.empty()) next_sweep_ = INT64_MAX;
      return &grant;
    }
    if (waiting_.empty()) next_sweep_ = INT64_MAX;
    return nullptr;
  }

  // When sweep() is due, ns; INT64_MAX: no peer waits.
  [[nodiscard]] Nanoseconds next_sweep() const noexcept { return next_sweep_; }
  // Reclaims credits of silent peers: of all that were served, and of some of `count` grants,
  // `grant_of` by index, which may have had theirs before. serve(true) follows, then end_sweep().
  template <class GrantOf>
  void sweep(std::size_t count, GrantOf&& grant_of) {
    ++sweep_;
    for (std::size_t n = served_.size(); n > 0; --n) {
      CreditGrant& grant = *served_.front();
      served_.pop_front();
      grant.served = false;
      reclaim(grant);
      if (!grant.closed && !is_out(grant) && grant.uncounted == 0) watch(grant);
    }
    for (std::size_t n = std::min(kSweep, count); n > 0; --n) {
      sweep_at_ = sweep_at_ + 1 < count ? sweep_at_ + 1 : 0;
      reclaim(grant_of(sweep_at_));
    }
  }
  void end_sweep(Nanoseconds now) noexcept {
    next_sweep_ = waiting_.empty() ? INT64_MAX : now + kSweepEvery;
  }

  // The peer is lost: close() at once, forget() when its messages are gone.
  static void close(CreditGrant& grant) noexcept { grant.closed = true; }
  void forget(CreditGrant& grant) noexcept {
    assert(grant.closed);
    granted_ -= grant.granted - grant.uncounted;
    grant.granted = grant.uncounted = 0;
  }

  [[nodiscard]] std::uint32_t first() const noexcept { return limits_.first; }
  // More is granted than the queue has or may be given.
  [[nodiscard]] bool is_overcommitted() const noexcept { return granted_ > safe_limit(); }
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

 private:
  // While a peer waits, a sweep follows the other after this time. A peer is silent that has sent
  // nothing for two of them: a message of a peer that just got credits arrives within microseconds.
  static constexpr Nanoseconds kSweepEvery = 20'000;
  static constexpr std::uint32_t kSilent = 2;
  static constexpr std::uint32_t kMostGranted = 1u << 24;
  // The limit applies after this many messages for each receive while the queue was low.
  static constexpr std::uint32_t kCrowded = 16;
  // The limit rises by this part of what is safe, after this many messages for each receive.
  static constexpr std::uint32_t kCareful = 16;
  // One peer gets at most this part of the limit at a time.
  static constexpr std::uint32_t kBatches = 4;
  // Receives of one poll are granted again before they are posted again.
  static constexpr std::uint32_t kPolled = 16;

  static constexpr std::size_t kSweep = 128;  // grants of one sweep

  [[nodiscard]] std::uint32_t safe_limit() const noexcept {
    std::uint32_t most = queue_.receives;
    if (queue_.may_grow) most = std::max(most, limits_.most_receives);
    return most - std::min(most / 4, kPolled);
  }
  [[nodiscard]] std::uint32_t limit() const noexcept {
    return limits_.rule == Rule::unlimited ? UINT32_MAX : std::max(safe_limit(), grant_limit_);
  }
  void count(CreditGrant& grant) noexcept {
    if (grant.counted) [[likely]]
      return;
    grant.counted = true;
    grant.granted = grant.target = limits_.first;
    granted_ += grant.granted;
  }
  // While the low watermark is armed, no message left the queue low.
  void count_message() noexcept {
    if (!queue_.armed) {
      ++messages_while_low_;
      return;
    }
    const std::uint32_t receives = queue_.receives;
    if (++messages_since_low_ < (grant_limit_ == UINT32_MAX ? receives : receives * kCareful))
        [[likely]]
      return;
    messages_since_low_ = messages_while_low_ = 0;
    if (grant_limit_ == UINT32_MAX) return;
    const std::uint32_t safe = safe_limit();
    grant_limit_ =
        std::min(std::max(grant_limit_, safe) + std::max(safe / kCareful, 1u), kMostGranted);
  }
  void count_again(CreditGrant& grant) noexcept {
    granted_ += grant.uncounted;
    grant.uncounted = 0;
  }
  void give(CreditGrant& grant, std::uint32_t credits) noexcept {
    grant.granted += credits;
    granted_ += credits;
    grant.unreported += credits;
  }
  void grant_to_target(CreditGrant& grant) noexcept {
    const std::uint32_t most = limit();
    // What it retains is beside its target, but part of its share.
    const std::uint32_t share =
        std::min<std::uint32_t>(grant.target + grant.retained, limits_.most);
    if (!waiting_.empty() || granted_ >= most || grant.granted >= share) return;
    give(grant, std::min(share - grant.granted, most - granted_));
  }
  // Up to the peer's target, unless others wait for what is free. True if it is worth a message. If
  // that is for half of its credits, they double from then on.
  [[nodiscard]] bool grant_more(CreditGrant& grant) {
    count(grant);  // its first message retains its receive
    grant_to_target(grant);
    const bool out = is_out(grant);
    if (out && grant.unreported == 0) [[unlikely]]
      wait(grant);
    const bool half = grant.unreported >= std::max(grant.target / 2u, 1u);
    if (half && waiting_.empty()) {
      used_last_credit(grant);
      grant_to_target(grant);
    }
    return half || (out && grant.unreported > 0);
  }
  // Unless its own messages fill its share.
  void wait(CreditGrant& grant) {
    if (grant.waiting || grant.retained >= limits_.most) return;
    grant.waiting = true;
    waiting_.push_back(&grant);
    ++waits_;
    if (next_sweep_ == INT64_MAX) next_sweep_ = clock_.now() + kSweepEvery;
  }
  // The next sweep looks at it, however many peers there are.
  void watch(CreditGrant& grant) {
    if (grant.served) return;
    grant.served = true;
    served_.push_back(&grant);
  }
  // What it has not used, and what it was not told of.
  void reclaim(CreditGrant& grant) noexcept {
    if (grant.closed || is_out(grant) || sweep_ - grant.sweep < kSilent) return;
    count_again(grant);
    grant.target = limits_.first;
    const std::uint32_t unreported = std::exchange(grant.unreported, 0);
    grant.granted -= unreported;
    grant.uncounted = grant.granted - grant.retained;
    granted_ -= unreported + grant.uncounted;
  }
  [[nodiscard]] static bool is_out(const CreditGrant& grant) noexcept {
    return grant.granted <= grant.unreported + grant.retained;
  }

  Clock& clock_;
  Limits limits_;
  Queue queue_;
  std::uint32_t granted_ = 0;               // to all peers
  std::uint32_t grant_limit_ = UINT32_MAX;  // at least what is safe
  std::uint32_t messages_since_low_ = 0;    // since the low watermark was armed
  std::uint32_t messages_while_low_ = 0;    // since the queue was last not low
  std::deque<CreditGrant*> waiting_;        // out of credits, in the order of service
  std::deque<CreditGrant*> served_;         // have credits, which may be reclaimed
  std::size_t sweep_at_ = 0;
  std::uint32_t sweep_ = 0;  // the number of the last one
  Nanoseconds next_sweep_ = INT64_MAX;
  std::uint64_t waits_ = 0;
};

}  // namespace turnout
