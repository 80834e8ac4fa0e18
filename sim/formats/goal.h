// SPDX-License-Identifier: BSD-3-Clause
// GOAL: schedules of LogGOPSim (Hoefler, Schneider, Lumsdaine 2010) as traces.
//
//   num_ranks 2
//   rank 0 {
//     l1: calc 100                      // nanoseconds; also `cpu N`
//     l2: send 8b to 1 tag 7            // also `cpu N`, `nic N`; the tag is 0 when not given
//     l2 requires l1                    // after its end
//     l3: recv 8b from -1 tag -1        /* from anyone, any tag */
//     l3 irequires l2                   // after its start
//   }
//
// A line break or a semicolon ends a statement. GOAL has no order but its dependencies, a trace has
// each rank's order; read_goal() finds one that the dependencies allow and that some run takes: it
// plays the schedule with a latency of 1 us, 10 GB/s and one processor a rank, and writes down what
// each rank did in the order it did it, with a wait where a dependency needs an end. Such an order
// cannot wait for itself. `cpu` and `nic` are read and have no effect: a rank of a trace has one
// processor and one adapter. Plain functions, any thread. Untrusted text.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/formats/trace.h"

namespace turnout::sim {

struct GoalOperation {
  static constexpr std::uint32_t kAnyRank = 0xffffffff;
  static constexpr std::uint64_t kAnyTag = ~std::uint64_t{0};

  TraceEvent::Kind kind = TraceEvent::Kind::compute;
  std::uint32_t peer = 0;    // or kAnyRank (receives)
  std::uint64_t amount = 0;  // bytes or nanoseconds
  std::uint64_t tag = 0;     // or kAnyTag (receives)
  std::uint64_t line = 0;
};

struct GoalDependency {
  std::uint32_t after, before;  // operations of one rank
  bool on_start;                // after the start of `before`, else after its end
};

struct GoalRank {
  std::vector<GoalOperation> operations;
  std::vector<GoalDependency> dependencies;
};

struct GoalSchedule {
  std::vector<GoalRank> ranks;
};

// `file` is for messages. Errors: invalid, naming the line and what is expected there.
[[nodiscard]] Result<GoalSchedule> parse_goal(std::istream& in, const std::string& file,
                                              const TraceLimits& limits = {});

// The schedule as a trace (goal_order.cpp). Errors: invalid: operations that wait for one another,
// receives without a send, sends without a receive; names rank and line.
[[nodiscard]] Result<Trace> order_goal(const GoalSchedule& schedule, const std::string& file,
                                       const TraceLimits& limits = {});

// Both. read_goal_file() errors also: permission, system.
[[nodiscard]] Result<Trace> read_goal(std::istream& in, const std::string& file,
                                      const TraceLimits& limits = {});
[[nodiscard]] Result<Trace> read_goal_file(const std::string& path, const TraceLimits& limits = {});

}  // namespace turnout::sim
