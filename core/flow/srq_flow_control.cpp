// SPDX-License-Identifier: BSD-3-Clause
#include "core/flow/srq_flow_control.h"

#include <cassert>
#include <utility>

namespace turnout {
namespace {
// While a peer waits, a sweep follows the other after this time. A peer is silent that has sent
// nothing for two of them: a message of a peer that just got credits arrives within microseconds.
constexpr Nanoseconds kSweepEvery = 20'000;
constexpr std::uint32_t kSilent = 2;
constexpr std::uint32_t kMostGranted = 1u << 24;
// The limit applies after this many messages for each receive while the queue was low.
constexpr std::uint32_t kCrowded = 16;
// The limit rises by this part of what is safe, after this many messages for each receive.
constexpr std::uint32_t kCareful = 16;
// One peer gets at most this part of the limit at a time.
constexpr std::uint32_t kBatches = 4;
// Receives of one poll are granted again before they are posted again.
constexpr std::uint32_t kPolled = 16;
}  // namespace

void SrqFlowControl::configure(const Limits& limits) noexcept {
  assert(rput_sends_ == 0);
  limits_ = limits;
  if (limits.rule == Rule::safe) grant_limit_ = 0;
}

std::uint32_t SrqFlowControl::safe_limit() const noexcept {
  std::uint32_t most = queue_.receives;
  if (queue_.may_grow) most = std::max(most, limits_.most_receives);
  return most - std::min(most / 4, kPolled);
}

std::uint32_t SrqFlowControl::limit() const noexcept {
  return limits_.rule == Rule::unlimited ? UINT32_MAX : std::max(safe_limit(), grant_limit_);
}

// While the low watermark is armed, no message left the queue low.
void SrqFlowControl::count_message() noexcept {
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

void SrqFlowControl::low_and_full() noexcept {
  messages_while_low_ += std::exchange(messages_since_low_, 0);
  // Over UD a sender that finds no receive waits for a timeout.
  const std::uint32_t most = limits_.retries ? queue_.receives * kCrowded : 0;
  if (grant_limit_ != UINT32_MAX || messages_while_low_ >= most) grant_limit_ = 0;
}

bool SrqFlowControl::returned(CreditGrant& grant) {
  if (grant.closed) return false;  // forget() has counted it, or will
  count(grant);
  grant.sweep = sweep_;
  if (grant.uncounted > 0) [[unlikely]]
    count_again(grant);
  if (grant.granted > 0) {  // otherwise the peer sent more than it may
    --grant.granted;
    --rput_sends_;
  }
  count_message();
  return grant_more(grant);
}

bool SrqFlowControl::retained(CreditGrant& grant) {
  return is_out(grant) && grant_more(grant);
}

void SrqFlowControl::count(CreditGrant& grant) noexcept {
  if (grant.counted) [[likely]]
    return;
  grant.counted = true;
  grant.granted = grant.target = limits_.first;
  rput_sends_ += grant.granted;
}

void SrqFlowControl::count_uncredited(CreditGrant& grant) noexcept {
  count(grant);
  ++grant.granted;
  ++rput_sends_;
}

void SrqFlowControl::count_again(CreditGrant& grant) noexcept {
  rput_sends_ += grant.uncounted;
  grant.uncounted = 0;
}

// Up to the peer's target, unless others wait for what is free. True if it is worth a message. If
// that is for half of its credits, they double from then on.
bool SrqFlowControl::grant_more(CreditGrant& grant) {
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

void SrqFlowControl::grant_to_target(CreditGrant& grant) noexcept {
  const std::uint32_t most = limit();
  // What it retains is beside its target, but part of its share.
  const std::uint32_t share = std::min<std::uint32_t>(grant.target + grant.retained, limits_.most);
  if (!waiting_.empty() || rput_sends_ >= most || grant.granted >= share) return;
  give(grant, std::min(share - grant.granted, most - rput_sends_));
}

void SrqFlowControl::give(CreditGrant& grant, std::uint32_t credits) noexcept {
  grant.granted += credits;
  rput_sends_ += credits;
  grant.unreported += credits;
}

void SrqFlowControl::used_last_credit(CreditGrant& grant) noexcept {
  if (!grant.counted) return;
  grant.target = grant.target <= limits_.most / 2 ? static_cast<std::uint16_t>(2 * grant.target)
                                                  : limits_.most;
}

// Unless its own messages fill its share.
void SrqFlowControl::wait(CreditGrant& grant) {
  if (grant.waiting || grant.retained >= limits_.most) return;
  grant.waiting = true;
  waiting_.push_back(&grant);
  ++waits_;
  if (next_sweep_ == INT64_MAX) next_sweep_ = clock_.now() + kSweepEvery;
}

CreditGrant* SrqFlowControl::serve(bool few) {
  const std::uint32_t most = limit();
  while (!waiting_.empty() && rput_sends_ < most) {
    CreditGrant& grant = *waiting_.front();
    const std::uint32_t batch =
        std::min<std::uint32_t>(grant.target, std::max(most / kBatches, 1u));
    if (most - rput_sends_ < batch && !few) return nullptr;
    waiting_.pop_front();
    grant.waiting = false;
    if (grant.closed || !is_out(grant)) continue;
    give(grant, std::min(batch, most - rput_sends_));
    if (waiting_.empty()) next_sweep_ = INT64_MAX;
    return &grant;
  }
  if (waiting_.empty()) next_sweep_ = INT64_MAX;
  return nullptr;
}

// What it has not used, and what it was not told of.
void SrqFlowControl::reclaim(CreditGrant& grant) noexcept {
  if (grant.closed || is_out(grant) || sweep_ - grant.sweep < kSilent) return;
  count_again(grant);
  grant.target = limits_.first;
  const std::uint32_t unreported = std::exchange(grant.unreported, 0);
  grant.granted -= unreported;
  grant.uncounted = grant.granted - grant.retained;
  rput_sends_ -= unreported + grant.uncounted;
}

void SrqFlowControl::end_sweep(Nanoseconds now) noexcept {
  next_sweep_ = waiting_.empty() ? INT64_MAX : now + kSweepEvery;
}

void SrqFlowControl::forget(CreditGrant& grant) noexcept {
  assert(grant.closed);
  rput_sends_ -= grant.granted - grant.uncounted;
  grant.granted = grant.uncounted = 0;
}

}  // namespace turnout
