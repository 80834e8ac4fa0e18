// SPDX-License-Identifier: BSD-3-Clause
// Plan: which budget and policy a program needs at a number of ranks at which it has not run yet.
//
// make_plan() finds the pattern of the recordings (pattern.h), plays it at the number of ranks
// asked for under every policy and number of ranks per node, first without a limit of memory and
// then within smaller and smaller budgets, until the program is more than `within` slower than
// without. It says how sure that is: the costs are varied by their errors (profile_file.h), and the
// largest recording is predicted from the smaller ones. One thread; --jobs processes. Errors:
// invalid, those of runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/formats/profile_file.h"
#include "sim/formats/trace.h"
#include "sim/plan/pattern.h"
#include "sim/plan/scaled.h"
#include "sim/study/study.h"

namespace turnout::sim::plan {

struct PlanOptions {
  std::uint32_t ranks = 0;
  std::vector<std::uint32_t> ranks_per_node = {1};
  std::vector<std::string> policies = {"turnout"};
  std::vector<std::uint64_t> budgets;  // bytes of a process; empty: usual_budgets()
  ProfileFile profile;
  NamedValues settings;  // of Turnout
  double within = 0.05;  // of the time without a limit
  std::uint64_t seed = 1;
  std::uint32_t jobs = 1;
  std::uint32_t samples = 8;  // of varied costs; 0: none
  // Messages of one run; more: outer loops are played in part, and the rest follows from two runs.
  double most_messages = 2e6;
  const KeptResults* kept = nullptr;  // required
  std::function<void(const std::string& line)> told;
};

// From large to small: powers of two and what is between, 4 MiB to 256 MiB.
[[nodiscard]] std::vector<std::uint64_t> usual_budgets();
inline constexpr std::uint64_t kNoBudget = std::uint64_t{1} << 40;

struct Run {
  std::uint64_t budget = kNoBudget;
  std::string failure;                                       // empty: it ended
  double time = 0;                                           // ps, of all repetitions
  std::uint64_t memory = 0;                                  // of the largest process, bytes
  std::vector<std::pair<std::string, std::uint64_t>> kinds;  // of the largest process of each
  std::uint64_t queue_pairs = 0;           // RC, of one process at one time, at most
  std::uint64_t connections = 0;           // made ever, of all processes
  std::uint64_t switches = 0;              // changes of channel
  std::uint64_t messages = 0, misses = 0;  // messages played; misses of the adapter's cache
  std::vector<std::pair<std::string, double>> channels;  // share of the messages
  [[nodiscard]] bool ended() const noexcept { return failure.empty(); }
};

// One policy at one number of ranks per node.
struct Choice {
  std::string policy;
  std::uint32_t ranks_per_node = 1;
  std::vector<Run> runs;    // the first without a limit, then from large to small
  std::size_t advised = 0;  // the smallest budget within, into runs; 0: none was tried or good
  std::string limit;        // what limits it there, a sentence
  [[nodiscard]] const Run& free() const { return runs.front(); }
  [[nodiscard]] const Run& best() const { return runs[advised]; }
  [[nodiscard]] double slowdown(const Run& run) const;  // 0.1: 10 % slower than without a limit
};

struct Uncertainty {
  std::uint32_t samples = 0, within = 0;   // of those that ended: the advised budget stays within
  double least = 0, median = 0, most = 0;  // time, ps
  // If collectives stay as the largest recording has them, where another algorithm is assumed
  // (assumptions_at()): the time; within least and most. 0: nothing is assumed.
  double as_recorded = 0;
};

// The largest recording, predicted from the smaller ones and as it was.
struct OwnError {
  std::uint32_t ranks = 0;
  Run predicted, recorded;
  std::uint64_t predicted_budget = 0, recorded_budget = 0;  // advised; 0: none
  std::string missing;                                      // why there is none
};

struct SizeTraffic {
  std::uint32_t ranks = 0;
  std::vector<Traffic> kinds;
};

struct Plan {
  PlanOptions asked;
  Pattern pattern;
  std::vector<SizeTraffic> traffic;  // of each recorded size and of the one asked for
  double played = 1;                 // part of the messages that were simulated
  std::vector<Choice> choices;
  std::size_t best = 0;     // into choices
  Uncertainty uncertainty;  // of the best
  OwnError own_error;
  std::vector<std::string> warnings;
  double real_seconds = 0;
  [[nodiscard]] const Choice& choice() const { return choices[best]; }
  // What to paste: names of environment variables and values.
  [[nodiscard]] NamedValues variables() const;
};

// `runner`: sim::run, or a test's own.
[[nodiscard]] Result<Plan> make_plan(std::span<const Trace> traces, const PlanOptions& options,
                                     const Runner& runner);

// The search alone, of any program: for tests, and to check predictions.
struct Subject {
  std::string name;      // for progress
  std::string identity;  // what its results follow from, besides options
  std::function<Result<Instance>(const Place&)> make;
  std::uint32_t ranks = 0;
};
[[nodiscard]] Result<std::vector<Choice>> search(const Subject& subject, const PlanOptions& options,
                                                 const Runner& runner);
// Into choices: of those within of the fastest without a limit, the one with the least memory.
[[nodiscard]] std::size_t best_of(std::span<const Choice> choices, double within);

[[nodiscard]] std::string format_plan(const Plan& plan);
[[nodiscard]] std::string plan_json(const Plan& plan);

}  // namespace turnout::sim::plan
