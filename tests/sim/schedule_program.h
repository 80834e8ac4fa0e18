// SPDX-License-Identifier: BSD-3-Clause
// The program of a random schedule: what each rank sends, receives and reaches, and how it takes
// part. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/runtime/rank.h"

namespace turnout::sim {

struct Planned {
  std::uint32_t from, to;
  std::uint64_t bytes, tag;
  SendEnds ends = SendEnds::when_copied;
};

// A put or get of another rank's memory.
struct Reach {
  std::uint32_t peer;
  std::uint64_t bytes;
  bool put;
};

struct Plan {
  std::vector<std::vector<Reach>> reaches;            // by rank
  std::vector<std::vector<Planned>> sends, receives;  // by rank, in the program's order
  std::vector<std::vector<std::uint32_t>> adds;       // by rank: to whose counters
  // By whose counter: what was there before each, filled while the plan is played.
  std::shared_ptr<std::vector<std::vector<std::uint64_t>>> fetched;
  std::vector<bool> wild;  // ranks that receive from anyone
  bool any_wild = false;
  bool deaths = false;
  // Ranks whose memory others may still reach: nobody who lives ends before it is 0.
  std::shared_ptr<std::uint32_t> at_work = std::make_shared<std::uint32_t>(0);
  std::vector<bool> doomed;  // ranks that die while it is played
  std::shared_ptr<std::uint64_t> refused = std::make_shared<std::uint64_t>(0);
  std::uint64_t pace;      // mean computation between two calls
  std::uint64_t seed = 0;  // of when counters are added to

  // Of an operation that ended with an error, while that is handled: only those with who dies may.
  void excuse(std::uint32_t peer) const {
    if (!doomed[peer]) throw;
    ++*refused;
  }
};

// Sends and receives mixed at random, each list in its order; waits for them as room demands.
Task take_part(Rank rank, std::shared_ptr<const Plan> plan);

}  // namespace turnout::sim
