// SPDX-License-Identifier: BSD-3-Clause
// Scenarios: the workloads on which policies are compared, their lengths and the budgets by number
// of ranks, and their parts, each with one pattern of messages from its beginning to its end.
//
// Lengths: a run of 64 ranks takes seconds, one of 1,024 some tens of seconds, so that a table of
// hundreds of runs is made in about an hour; several intervals of the selection pass in each.
// Up to 128 ranks the warm-ups of one to all and all to one outlast the set-ups of the one rank's
// queue pairs, which are made one after the other: 1.9 ms each are some 22,000 messages of a rank.
// Beyond 128 ranks nobody but a hot rank has more than some tens of sources: a million rings of 64
// KiB, which all of 1,024 ranks to all would be, are more than the simulating machine's memory.
// Constant data; any thread. Errors: invalid, with the nearest known name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/workloads/workload.h"

namespace turnout::sim {

// An option whose value depends on the number of ranks: up to 16, up to 128, more.
struct Length {
  std::string_view option;
  std::uint64_t few, some, many;
  bool per_rank = false;  // multiplied by the number of ranks
};

// Makes the program of a run; null: that of the workload's name.
using MakeInstance = std::function<Result<Instance>(const Place&)>;

struct Scenario {
  std::string title;
  std::string_view workload;
  std::string about;  // what it is, and what bounds it
  NamedValues options;
  std::vector<Length> lengths;
  std::string_view behind = {};  // why the policy `turnout` is, where it is; known for some
  MakeInstance make = {};
};

// Virtual time after which a run of a recording stands as failed.
inline constexpr Picoseconds kLongestRecording = 1000 * hca::kSecond;

[[nodiscard]] const std::vector<Scenario>& scenarios();
// Those named, by title or by workload; all without names.
[[nodiscard]] Result<std::vector<Scenario>> scenarios_of(const std::vector<std::string>& names);
// Options of a run of so many ranks.
[[nodiscard]] NamedValues options_of(const Scenario& scenario, std::uint32_t ranks);

// Budgets of a process: those given, checked, or one that binds hard, one in between, one that does
// not bind. The last one holds an RC queue pair and a ring for each of the others, of the sizes of
// AQPS Table 4. Beyond 1,024 ranks, where a run takes a minute and 10 GB, only one in between.
[[nodiscard]] Result<std::vector<std::string>> budgets_of(const std::vector<std::string>& given,
                                                          std::uint32_t ranks);
// Time between two decisions: a fraction of the shortest run.
[[nodiscard]] std::string usual_interval(std::uint32_t ranks);

// A stretch of the timed part of a scenario in which the pattern does not change.
struct Part {
  std::string name;
  std::string workload;
  NamedValues options;
  std::uint64_t times = 1;  // how often it comes in the scenario
  MakeInstance make = {};
};
[[nodiscard]] std::vector<Part> parts_of(const Scenario& scenario, std::uint32_t ranks);
// The whole scenario with the warm-up that precedes it; none if it has no warm-up: whoever wants
// channels sets them up in each part.
[[nodiscard]] std::optional<Part> warmed_up(const Scenario& scenario, std::uint32_t ranks);

}  // namespace turnout::sim
