// SPDX-License-Identifier: BSD-3-Clause
// Pattern: what a program does at any number of ranks, found from traces of it at a few.
//
// find_pattern() reads each trace in lockstep (lockstep.h), folds the largest into loops and steps
// of collectives, and reads the others as the same program with other peers, bytes and
// repetitions; each of these becomes a law of the number of ranks (law.h). A size that is no such
// program is left out and said so. Pure; any thread. Traces are untrusted. Errors: invalid, naming
// the trace or the size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/formats/trace.h"
#include "sim/plan/all_to_all.h"
#include "sim/plan/law.h"
#include "sim/plan/relation.h"

namespace turnout::sim::plan {

struct Node {
  enum class Kind : std::uint8_t {
    operation,
    wait,
    loop,   // repetitions of all
    steps,  // of a collective: the index of its relations goes from first to last
  };
  Kind kind = Kind::operation;
  // operation; of a wait, relation and compute are those of the operation behind it
  TraceEvent::Kind operation = TraceEvent::Kind::send;
  Relation relation;
  std::shared_ptr<const std::vector<std::uint32_t>> block;  // of Relation::Kind::blocks
  std::uint64_t tag = 0;
  Law bytes;
  double step_ratio = 1;  // of the bytes of one step to those of the step before
  // All-to-all exchange: that of the largest size. `usual`: each recorded size has the algorithm
  // that MPICH takes there.
  AllToAll all_to_all;
  bool usual = false;
  Law inside;  // ns between the messages of an all-to-all exchange; before a step within a tree
  bool in_tree = false;  // some take several steps
  Law compute;           // ns before it; of steps: before the first
  double compute_spread = 0;
  bool all_compute = false;  // also ranks that take no part in it
  // wait
  bool all = false;  // else for operations so many back
  std::vector<std::uint32_t> back;
  // loop: count; steps: first, last, way
  Law count, first, last;
  std::int32_t way = 1;
  std::vector<Node> body;
};

struct Pattern {
  std::vector<std::uint32_t> sizes;  // that it explains, rising
  std::vector<Node> program;
  Law end_compute;                 // ns of a rank, behind everything
  std::vector<std::string> notes;  // what a reader should know: sizes left out, laws that fit badly
  // Of the differences between the computation of ranks and repetitions, this part is played; see
  // make_plan().
  double imbalance = 1;
  // All-to-all exchanges take the algorithm of the largest size, whatever the size of their
  // messages, and go on with all partners at once unless a recording waits between.
  bool as_recorded = false;
  double irregular = 0;  // share of the messages of the largest size
  double fit_error = 0;  // largest relative error of a law, by bytes and repetitions
};

// What an all-to-all exchange of the pattern is at n ranks; kAtOnce is assumed where no recording
// has more partners.
[[nodiscard]] AllToAll all_to_all_at(const Pattern& pattern, const Node& node, std::uint32_t n);
// Steps to all ranks without a wait between, of recordings that have no more partners than kAtOnce.
[[nodiscard]] bool goes_to_all_at_once(const Pattern& pattern, const Node& steps);
// What is assumed of collectives at n ranks that no recording shows, in sentences that name the
// threshold.
[[nodiscard]] std::vector<std::string> assumptions_at(const Pattern& pattern, std::uint32_t n);

// At least one trace; of several, different sizes.
[[nodiscard]] Result<Pattern> find_pattern(std::span<const Trace> traces);

// Messages of one kind of traffic, of all ranks.
struct Traffic {
  std::string kind;  // "all to all", "recursive doubling", "stencil on a grid of 2 dimensions"
  double messages = 0, bytes = 0;
  double partners = 0;  // mean of those of a rank
};
// Of n ranks, largest first. Very many ranks are sampled.
[[nodiscard]] std::vector<Traffic> traffic_at(const Pattern& pattern, std::uint32_t n);

}  // namespace turnout::sim::plan
