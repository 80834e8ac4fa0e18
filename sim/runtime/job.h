// SPDX-License-Identifier: BSD-3-Clause
// Job: what the operations of all ranks of a simulation share.
//
// Owned by the simulation; in its thread. Options and world outlive it.
#pragma once

#include <memory>
#include <vector>

#include "core/types/address.h"
#include "sim/runtime/message_latencies.h"
#include "sim/runtime/one_sided_memory.h"
#include "sim/runtime/simulation.h"
#include "sim/runtime/unchecked_memory.h"

namespace turnout::sim {

struct Job {
  const Options& options;
  hca::World& world;
  std::vector<Address> addresses = {};                         // by rank
  std::vector<std::unique_ptr<OneSidedMemory>> memories = {};  // by rank
  UncheckedMemory unchecked = {};
  CellCount cells = {};
  int last_byte = -1;  // of all messages; below 0: any
  MessageLatencies latencies = {};
  std::uint64_t messages = 0, bytes = 0;  // sent
};

}  // namespace turnout::sim
