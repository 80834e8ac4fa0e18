// SPDX-License-Identifier: BSD-3-Clause
// The runs of the experiment teardown, and the claims T1 to T6 [ACTS V] beside them.
//
// Pure; any thread. Times of outcomes are picoseconds, those of evictions nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/experiments/page.h"
#include "sim/runtime/simulation.h"
#include "sim/workloads/workload.h"

namespace turnout::sim {

struct TeardownRow {
  std::uint32_t limit = 0;  // connections; 0: none
  std::string order;
  std::vector<Outcome> outcomes;  // by seed
};

struct TeardownRuns {
  bool acts = true;  // ACTS's mode, else Turnout's
  std::uint32_t ranks = 0, per_node = 1;
  NamedValues options;            // of the workload
  std::vector<TeardownRow> rows;  // the first has no limit
  // Those with a limit.
  [[nodiscard]] double processes() const noexcept {
    return static_cast<double>(ranks) - (acts ? (ranks + per_node - 1) / per_node : 0);
  }
};

// Of one number of each run.
template <class Of>
[[nodiscard]] double median(const TeardownRow& row, Of&& of) {
  std::vector<double> all;
  for (const Outcome& outcome : row.outcomes) all.push_back(static_cast<double>(of(outcome)));
  return of_seeds(std::move(all)).median;
}

// Run time in percent, each seed against itself without a limit.
[[nodiscard]] OfSeeds change_of(const TeardownRow& row, const TeardownRow& unlimited);
// Of the processes with a limit, in Turnout's mode of all. The medians' sums, and the most of one.
[[nodiscard]] double made(const TeardownRow& row);
[[nodiscard]] std::uint64_t most_at_one_time(const Outcome& outcome);
[[nodiscard]] double most_at_one_time(const TeardownRow& row);
[[nodiscard]] double queue_pair_bytes(const TeardownRow& row);
// All evictions' time, in so many parts; seconds.
[[nodiscard]] double eviction_seconds(const TeardownRow& row, double parts);

[[nodiscard]] std::vector<Claim> teardown_claims(const std::vector<TeardownRuns>& all);

}  // namespace turnout::sim
