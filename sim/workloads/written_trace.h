// SPDX-License-Identifier: BSD-3-Clause
// WrittenTrace: makes a trace of a program of the simulation from what Options::step tells: the
// program itself, without the waiting that a recording would take for computation.
//
// Owner: the caller, for one run; one thread. Errors: invalid (what a trace cannot say).
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "sim/formats/trace.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {

class WrittenTrace {
 public:
  WrittenTrace(std::string name, std::uint32_t ranks);
  void add(std::uint32_t rank, const ProgramStep& step);
  // Ends it. Unsupported: the program uses atomics, or waits for no end of one of its receives that
  // named no source.
  [[nodiscard]] Result<Trace> take();

 private:
  Trace trace_;
  // By rank: requests of receives under way that named no source or tag, to their events.
  std::vector<std::unordered_map<std::uint32_t, std::size_t>> open_;
  bool atomics_ = false;
};

}  // namespace turnout::sim
