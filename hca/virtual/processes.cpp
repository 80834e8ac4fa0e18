// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/processes.h"

namespace turnout::hca {

Processes::Processes(Kernel& kernel, const Profile& profile, std::uint32_t nodes)
    : kernel_(kernel), profile_(profile), nodes_(nodes) {
  for (Node& node : nodes_) {
    node.contexts.limit(profile_.cache_first_entries, profile_.cache_second_entries);
    node.fetches.resize(
        static_cast<std::size_t>(profile_.cache_fetches > 0 ? profile_.cache_fetches : 1));
  }
}

ProcessIndex Processes::add(std::uint32_t node, World::Callback wake, void* context) {
  assert(node < nodes_.size());
  Process process;
  process.node = node;
  process.wake = wake;
  process.wake_context = context;
  processes_.push_back(process);
  return static_cast<ProcessIndex>(processes_.size() - 1);
}

void Processes::enter(ProcessIndex process) {
  Process& p = (*this)[process];
  current_ = process;
  if (p.busy < kernel_.now()) p.busy = kernel_.now();
}

void Processes::wake(ProcessIndex process) {
  const Process& p = (*this)[process];
  if (p.alive && p.wake != nullptr) p.wake(p.wake_context, process);
}

bool Processes::stand_still() {
  if (profile_.fault_slow_most <= 0 || !kernel_.chance(profile_.fault_slow)) return false;
  const auto most = static_cast<std::uint64_t>(profile_.fault_slow_most);
  processes_[current_].busy += 1 + static_cast<Picoseconds>(kernel_.random() % most);
  return true;
}

}  // namespace turnout::hca
