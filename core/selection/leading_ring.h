// SPDX-License-Identifier: BSD-3-Clause
// The polling term with n_1 as the largest count among the rings polled (spec/aqps.md): the busiest
// source may be better left without a ring. For each count that may lead, the best map of the
// sources that are no busier is found as if that count led; the best of these is exact, because a
// map is priced too high only where another count prices it right.
//
// Counts whose upper bound does not reach the best map found are left out, which is nearly all of
// them. What is left is cut off after a fixed amount of work, so that the time is bounded: then,
// and only then, the optimum may be missed, by no more than `shortfall`.
//
// Pure. Any thread. Times are nanoseconds.
#pragma once

#include "core/selection/best_map.h"

namespace turnout::selection {

struct LeadingProblem {
  std::span<const SourceGroup> groups;
  std::span<const double> counts;  // of all groups together, busiest first
  double saving_dc = 0;
  double saving_rc = 0;
  double poll = 0;  // one failed poll
  RingRoom room;
  // Rings that are not ours to choose: they are polled, and the busiest of them may lead.
  std::uint64_t fixed_rings = 0;
  double fixed_lead = 0;
  std::uint64_t existing_rings = 0;        // sources without set-up for DC-RDMA
  std::uint64_t existing_queue_pairs = 0;  // sources without set-up for RC-RDMA
  double setup_dc = 0, setup_rc = 0;       // of the others
};

struct LeadingShares {
  std::vector<std::size_t> starts;  // of each group: sources before it are busier than the leader
  std::vector<GroupShare> shares;   // of each group, from there
  double lead = 0;
  double gain = 0;       // of the groups' rings, polls of the fixed ones taken off
  double shortfall = 0;  // an optimum not proved is at most this much better
};

[[nodiscard]] LeadingShares best_with_leading_ring(const LeadingProblem& problem);

}  // namespace turnout::selection
