// SPDX-License-Identifier: BSD-3-Clause
// SrqFlowControl: the credits of a shared receive queue: how many messages each peer may send that
// take receives of the queue (Sur, Koop, Panda, SC'06, section 6; reasons and measurements are in
// docs/decisions/012-shared-receive-queue.md).
//
// A peer begins with few credits. They double each time it used its last one, or half of them are
// returned in a message of their own, up to Limits::most. Their sum has no limit until the queue has
// been low, and could not grow, for many times as many messages as it has receives; then it is what
// the queue has or may be given (safe_limit()), and rises slowly while the queue is not low. Peers
// that are out of credits then wait in a queue, and credits of silent peers do not count meanwhile.
// No peer has to ask: one whose last message left its receive is in the queue.
//
// Messages that retain their receives must not hold the last ones: the owner copies them aside while
// receives are scarce.
//
// The owner is the endpoint; its thread calls. The owner keeps one CreditGrant for each peer, at a
// fixed address, and reports credits to the peer when asked to. No errors; allocates only when a
// peer has to wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

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
  void configure(const Limits& limits) noexcept;
  void set_queue(const Queue& queue) noexcept { queue_ = queue; }

  // A message of the peer left its receive. True: report the peer's credits now.
  [[nodiscard]] bool returned(CreditGrant& grant);
  // The peer's message retains its receive, and may have used its last credit. As returned().
  [[nodiscard]] bool retained(CreditGrant& grant);
  static void retain(CreditGrant& grant) noexcept { ++grant.retained; }
  static void release(CreditGrant& grant) noexcept { --grant.retained; }
  // A message arrived that was sent without a credit (channels/connection_recovery.cpp).
  void count_uncredited(CreditGrant& grant) noexcept;
  // The sender says that the message used its last credit.
  void used_last_credit(CreditGrant& grant) noexcept;
  // Fewer receives than the low watermark are left, and none can be added.
  void low_and_full() noexcept;

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  // The next peer of the queue that got credits, to be reported now; null: none. If `few`, it may
  // get fewer than usual, as no more may be returned.
  [[nodiscard]] CreditGrant* serve(bool few);

  // When sweep() is due, ns; INT64_MAX: no peer waits.
  [[nodiscard]] Nanoseconds next_sweep() const noexcept { return next_sweep_; }
  // Looks at some of `count` grants, `grant_of` by index, and reclaims credits of silent peers.
  // serve(true) follows, then end_sweep().
  template <class GrantOf>
  void sweep(std::size_t count, GrantOf&& grant_of) {
    ++sweep_;
    for (std::size_t n = std::min(kSweep, count); n > 0; --n) {
      sweep_at_ = sweep_at_ + 1 < count ? sweep_at_ + 1 : 0;
      reclaim(grant_of(sweep_at_));
    }
  }
  void end_sweep(Nanoseconds now) noexcept;

  // The peer is lost: close() at once, forget() when its messages are gone.
  static void close(CreditGrant& grant) noexcept { grant.closed = true; }
  void forget(CreditGrant& grant) noexcept;

  [[nodiscard]] std::uint32_t first() const noexcept { return limits_.first; }
  // More is granted than the queue has or may be given.
  [[nodiscard]] bool is_overcommitted() const noexcept { return rput_sends_ > safe_limit(); }
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

 private:
  static constexpr std::size_t kSweep = 128;  // grants of one sweep

  [[nodiscard]] std::uint32_t safe_limit() const noexcept;
  [[nodiscard]] std::uint32_t limit() const noexcept;
  void count(CreditGrant& grant) noexcept;
  void count_message() noexcept;
  void count_again(CreditGrant& grant) noexcept;
  void give(CreditGrant& grant, std::uint32_t credits) noexcept;
  void grant_to_target(CreditGrant& grant) noexcept;
  [[nodiscard]] bool grant_more(CreditGrant& grant);
  void wait(CreditGrant& grant);
  void reclaim(CreditGrant& grant) noexcept;
  [[nodiscard]] static bool is_out(const CreditGrant& grant) noexcept {
    return grant.granted <= grant.unreported + grant.retained;
  }

  Clock& clock_;
  Limits limits_;
  Queue queue_;
  std::uint32_t rput_sends_ = 0;            // to all peers
  std::uint32_t grant_limit_ = UINT32_MAX;  // at least what is safe
  std::uint32_t messages_since_low_ = 0;    // since the low watermark was armed
  std::uint32_t messages_while_low_ = 0;    // since the queue was last not low
  std::deque<CreditGrant*> waiting_;        // out of credits, in the order of service
  std::size_t sweep_at_ = 0;
  std::uint32_t sweep_ = 0;  // the number of the last one
  Nanoseconds next_sweep_ = INT64_MAX;
  std::uint64_t waits_ = 0;
};

}  // namespace turnout
