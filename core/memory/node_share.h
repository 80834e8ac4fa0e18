// SPDX-License-Identifier: BSD-3-Clause
// The share of one process in the resources of its node: the adapter's context cache and the node's
// memory budget. Pure except for the launcher's variables; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/launcher.h"
#include "base/settings.h"

namespace turnout {

// That share the node with this one, itself included: as set, as the launcher says, else 1.
[[nodiscard]] inline std::uint64_t node_processes(const Settings& settings) {
  if (settings.node_processes > 0) return settings.node_processes;
  return static_cast<std::uint64_t>(std::max(launcher_identity().local_ranks, 1));
}

struct ProcessBudget {
  std::uint64_t bytes = 0;
  bool of_node = false;  // a part of TURNOUT_NODE_BUDGET, for one of so many processes
  std::uint64_t processes = 1;
};

// A budget that was set for the process as well holds if it is less.
[[nodiscard]] inline ProcessBudget budget_of_process(const Settings& settings) {
  if (settings.node_budget == 0) return {settings.memory_budget};
  const std::uint64_t processes = node_processes(settings);
  const std::uint64_t part = std::max<std::uint64_t>(settings.node_budget / processes, 1);
  if (settings.is_given("memory_budget") && settings.memory_budget <= part) {
    return {settings.memory_budget};
  }
  return {part, true, processes};
}

}  // namespace turnout
