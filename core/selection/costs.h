// SPDX-License-Identifier: BSD-3-Clause
// The two terms of FIND_MAP's gain that its parts share (AQPS 3.2). Nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/selection/policy.h"

namespace turnout::selection {

// A busy endpoint polls rings that are silent in one round out of so many. With 63 of them, polls
// of 10 ns [AQPS: p] then take 40 ns of a round instead of 630, less than one message takes; the
// first message after silence waits no longer than the work of so many rounds.
inline constexpr std::uint32_t kSilentRounds = 16;

// What one message saves on a ring, its share of the credit messages taken off.
[[nodiscard]] inline double saving(const CostModel& costs, ChannelKind kind) {
  const double credit = costs.credit / static_cast<double>(std::max(costs.ring_entries, 1u));
  if (kind == ChannelKind::dc_rdma) return costs.saving_dc_rdma - credit;
  return kind == ChannelKind::rc_rdma ? costs.saving_rc_rdma - credit : 0;
}

// What one more ring costs in the window: every message of the leading source is waited for, and
// half of the other rings are polled in vain meanwhile, those whose source is silent less often.
[[nodiscard]] inline double poll_share(const CostModel& costs, double leading) {
  return leading * costs.poll / 2;
}
[[nodiscard]] inline double silent_share(double poll) {
  return poll / kSilentRounds;
}

}  // namespace turnout::selection
