// SPDX-License-Identifier: BSD-3-Clause
// fold(): the list of a lockstep as a program: steps with consecutive indexes become collectives,
// and repetitions become loops. Pure; any thread; no errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "sim/plan/lockstep.h"
#include "sim/plan/pattern.h"

namespace turnout::sim::plan {

// A node of the largest size before its laws are known.
struct Draft {
  Node::Kind kind = Node::Kind::operation;
  Item item;                       // operation, wait
  std::vector<Relation> possible;  // that all sizes read so far agree with; of steps: the one
  double ratio = 1;
  std::uint64_t count = 1;
  std::int32_t first = 0, last = 0, way = 1;
  std::vector<Draft> body;
  std::uint32_t number = 0;  // of the draft, from 0
};
using Drafts = std::vector<Draft>;

// Drafts have numbers from 0 on, in the order of the program.
[[nodiscard]] Drafts fold(const Lockstep& lockstep);
[[nodiscard]] std::uint32_t count_of(const Drafts& drafts) noexcept;  // with those within

inline bool close(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::max({std::abs(a), std::abs(b), 1.0});
}

}  // namespace turnout::sim::plan
