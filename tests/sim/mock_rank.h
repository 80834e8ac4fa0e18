// SPDX-License-Identifier: BSD-3-Clause
// A small runtime behind sim/runtime/rank.h for tests of workloads: messages take one microsecond,
// nothing else costs time. It checks what a program may not do: leave requests or messages behind,
// wait twice, post a receive too short, keep more requests than it said.
//
// Link it instead of the simulation, never beside it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/runtime/rank.h"

namespace turnout::sim::mock {

struct Options {
  std::uint32_t ranks = 2;
  std::uint64_t seed = 1;
  bool synchronous = false;  // a send ends when its receive is there
  std::uint32_t ranks_per_node = 1;
};

struct Outcome {
  std::string failure;  // empty: all ended well
  Picoseconds time = 0;
  std::uint64_t messages = 0, one_sided = 0, bytes = 0, barriers = 0;
  std::uint64_t puts = 0, gets = 0, adds = 0, adds_in_node = 0;  // adds are one-sided too
  std::size_t most_requests = 0;                                 // of one rank under way
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> pairs;
  std::vector<std::vector<std::uint32_t>> partners;  // as the simulation's
  std::uint64_t hash = 0;  // over all messages in the order of their start
};

[[nodiscard]] Outcome play(const Options& options, const Program& program);

}  // namespace turnout::sim::mock
