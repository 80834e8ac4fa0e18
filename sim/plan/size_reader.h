// SPDX-License-Identifier: BSD-3-Clause
// read_size(): the trace of another number of ranks, read as a program that was found at one.
//
// The program and the trace may differ in places, for example where an MPI library chose another
// algorithm for a collective: of all ways through both, the one that leaves out the fewest
// operations of both counts. Pure; any thread; no errors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/plan/fold.h"

namespace turnout::sim::plan {

// What a node of the program is at one size.
struct Seen {
  bool seen = false;
  double bytes = 0;
  Amount compute, inside;
  AllToAll all_to_all;
  std::uint64_t count = 0;
  std::int32_t first = 0, last = 0;
  std::vector<Relation> possible;
};

struct ReadSize {
  std::vector<Seen> seen;  // by number of the draft
  double left_out = 0;     // share of the operations of the trace that are none of the program
};
// Nothing if the two have too little in common.
[[nodiscard]] std::optional<ReadSize> read_size(const std::vector<RankStarts>& ranks,
                                                const Drafts& program, std::uint32_t largest);

}  // namespace turnout::sim::plan
