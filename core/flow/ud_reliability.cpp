// SPDX-License-Identifier: BSD-3-Clause
#include "core/flow/ud_reliability.h"

#include <algorithm>
#include <cstdlib>

namespace turnout {
namespace {
// The first guess covers a peer that shares its core with others. The least one is above
// UdReliability::kAckDelay; the longest bounds how late a peer is that ran out of receives.
constexpr Nanoseconds kFirst = 10'000'000;
constexpr Nanoseconds kLeast = 1'000'000;
constexpr Nanoseconds kMost = 200'000'000;
}  // namespace

void RoundTrip::sample(Nanoseconds taken) noexcept {
  taken = std::max<Nanoseconds>(taken, 1);
  if (smooth_ == 0) {
    smooth_ = taken;
    spread_ = taken / 2;
    return;
  }
  spread_ += (std::abs(smooth_ - taken) - spread_) / 4;
  smooth_ += (taken - smooth_) / 8;
}

Nanoseconds RoundTrip::timeout(unsigned backoff) const noexcept {
  const Nanoseconds once = smooth_ == 0 ? kFirst : std::max(kLeast, smooth_ + 4 * spread_);
  return std::min(kMost, std::min(once, kMost) << std::min(backoff, 10u));
}

bool UdReliability::take_control_ack(std::uint32_t ack) noexcept {
  bool moved = false;
  while (control_sent > 0 && before(control_first, ack)) {
    control.pop_front();
    --control_sent;
    ++control_first;
    moved = true;
  }
  return moved;
}

}  // namespace turnout
