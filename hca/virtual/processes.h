// SPDX-License-Identifier: BSD-3-Clause
// Processes: the processes of a world and their nodes; the time that each has spent.
//
// One per world; owns both. A process's own time is ahead of the world's while its code runs.
// Indices are those that add() returned. One thread.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "hca/virtual/kernel.h"
#include "hca/virtual/number_table.h"
#include "hca/virtual/objects.h"

namespace turnout::hca {

class Processes {
 public:
  Processes(Kernel& kernel, const Profile& profile, std::uint32_t nodes)
      : kernel_(kernel), profile_(profile), nodes_(nodes) {
    for (Node& node : nodes_) {
      node.contexts.limit(profile_.cache_first_entries, profile_.cache_second_entries);
      node.fetches.resize(
          static_cast<std::size_t>(profile_.cache_fetches > 0 ? profile_.cache_fetches : 1));
    }
  }

  [[nodiscard]] ProcessIndex add(std::uint32_t node, World::Callback wake, void* context) {
    assert(node < nodes_.size());
    Process process;
    process.node = node;
    process.wake = wake;
    process.wake_context = context;
    processes_.push_back(process);
    return static_cast<ProcessIndex>(processes_.size() - 1);
  }
  // The code that follows is this one's.
  void enter(ProcessIndex process) {
    Process& p = (*this)[process];
    current_ = process;
    if (p.busy < kernel_.now()) p.busy = kernel_.now();
  }
  [[nodiscard]] ProcessIndex current() const noexcept { return current_; }
  // Of the current process.
  [[nodiscard]] Picoseconds time() const noexcept { return (*this)[current_].busy; }
  void charge(Picoseconds time) noexcept { (*this)[current_].busy += time; }
  // See World::stand_still().
  [[nodiscard]] bool stand_still() {
    if (profile_.fault_slow_most <= 0 || !kernel_.chance(profile_.fault_slow)) return false;
    const auto most = static_cast<std::uint64_t>(profile_.fault_slow_most);
    processes_[current_].busy += 1 + static_cast<Picoseconds>(kernel_.random() % most);
    return true;
  }
  // Tells a process that something has reached it; a dead one hears nothing.
  void wake(ProcessIndex process) {
    const Process& p = (*this)[process];
    if (p.alive && p.wake != nullptr) p.wake(p.wake_context, process);
  }

  [[nodiscard]] Process& operator[](ProcessIndex process) noexcept {
    assert(process < processes_.size());
    return processes_[process];
  }
  [[nodiscard]] const Process& operator[](ProcessIndex process) const noexcept {
    assert(process < processes_.size());
    return processes_[process];
  }
  [[nodiscard]] Node& node_of(const VirtualQp& qp) noexcept {
    return nodes_[(*this)[qp.process].node];
  }
  [[nodiscard]] bool same_node(const VirtualQp& a, const VirtualQp& b) const noexcept {
    return (*this)[a.process].node == (*this)[b.process].node;
  }

 private:
  Kernel& kernel_;
  const Profile& profile_;
  std::vector<Node> nodes_;
  std::vector<Process> processes_;
  ProcessIndex current_ = 0;
};

}  // namespace turnout::hca
