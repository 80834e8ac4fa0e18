// SPDX-License-Identifier: BSD-3-Clause
// Workload: a named communication pattern with parameters, made into a Program that every rank of a
// simulation runs.
//
// The registry (workloads()) is constant data; any thread. A parameter is an integer with a unit: a
// count, bytes, or a duration in nanoseconds. Errors: invalid, with the workload, the parameter,
// what is accepted, and the nearest known name. The patterns are those of the papers
// (spec/claims.md) and of programs for which the choice of a transport is hard.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sim/runtime/rank.h"

namespace turnout::sim {

struct Parameter {
  enum class Unit : std::uint8_t { count, bytes, duration };
  std::string_view name;
  Unit unit = Unit::count;
  std::uint64_t default_value = 0;
  std::uint64_t least = 0, most = 0;
  std::string_view help;

  // As parse_values() reads it back: "4KiB", "10us", "320000".
  [[nodiscard]] std::string print(std::uint64_t value) const;
};

// What the ranks are: a program may depend on nothing else.
struct Place {
  std::uint32_t ranks = 2;
  std::uint32_t ranks_per_node = 1;
  std::uint64_t seed = 1;
};

// One value for each parameter of a workload, all in range.
class Values {
 public:
  explicit Values(std::map<std::string, std::uint64_t, std::less<>> values)
      : values_(std::move(values)) {}
  // Of a parameter the workload has; another name throws std::out_of_range.
  [[nodiscard]] std::uint64_t operator[](std::string_view name) const;
  [[nodiscard]] std::uint32_t small(std::string_view name) const {
    return static_cast<std::uint32_t>((*this)[name]);
  }
  [[nodiscard]] Picoseconds time(std::string_view name) const {
    return static_cast<Picoseconds>((*this)[name]) * hca::kNanosecond;
  }

 private:
  std::map<std::string, std::uint64_t, std::less<>> values_;
};

// A part of a run, timed by rank 0: from where it began to where all ranks had passed its barrier.
struct Phase {
  std::string name;
  Picoseconds begin = 0, end = 0;
  std::uint64_t messages = 0;  // the pattern's own: no barriers
};

// Shared by the ranks of one run; rank 0 writes.
class Phases {
 public:
  void begin(std::string_view name, Picoseconds now) {
    list_.push_back({std::string(name), now, now, 0});
  }
  void end(Picoseconds now, std::uint64_t messages) {
    list_.back().end = now;
    list_.back().messages = messages;
  }
  [[nodiscard]] const std::vector<Phase>& list() const noexcept { return list_; }

 private:
  std::vector<Phase> list_;
};

using SharedPhases = std::shared_ptr<Phases>;

// A workload ready to run once.
struct Instance {
  Program program;
  std::shared_ptr<const Phases> phases;
};

struct Workload {
  std::string_view name;
  std::string_view help;
  std::vector<Parameter> parameters;
  Result<Program> (*make)(const Values&, const Place&, const SharedPhases&) = nullptr;

  [[nodiscard]] const Parameter* parameter(std::string_view name) const noexcept;
};

// The error of a name that is none of those known, with the nearest; `what`: "unknown workload".
[[nodiscard]] Status unknown(std::string_view what, std::string_view name,
                             std::span<const std::string_view> known);

// Sorted by name.
[[nodiscard]] std::span<const Workload> workloads();
[[nodiscard]] Result<const Workload*> find_workload(std::string_view name);

using NamedValues = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Result<Values> parse_values(const Workload& workload, const NamedValues& given);
[[nodiscard]] Result<Instance> make_instance(const Workload& workload, const Values& values,
                                             const Place& place);

}  // namespace turnout::sim
