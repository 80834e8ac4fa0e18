// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/scenarios.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/value.h"
#include "sim/experiments/page.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kFew = 16, kSome = 128;

std::uint64_t value_of(const Length& length, std::uint32_t ranks) {
  const std::uint64_t value = ranks <= kFew    ? length.few
                              : ranks <= kSome ? length.some
                                               : length.many;
  return length.per_rank ? value * ranks : value;
}

// The value of an option of the run, which the scenario gives.
std::uint64_t given(const NamedValues& options, std::string_view name) {
  for (const auto& [option, text] : options) {
    if (option == name) return value::parse_count(text).value();
  }
  return 0;
}

std::string text_of(std::uint64_t value) {
  return fmt::format("{}", value);
}

// One part for each of `phases` phases of a workload that numbers them.
std::vector<Part> phases_of(const Scenario& scenario, const NamedValues& options) {
  std::vector<Part> parts;
  for (std::uint64_t i = 0; i < given(options, "phases"); ++i) {
    parts.push_back({fmt::format("phase {}", i + 1), std::string(scenario.workload),
                     overlaid(options, {{"phases", "1"}, {"first", text_of(i)}}), 1});
  }
  return parts;
}

// Shifts by the same distance are one part.
std::vector<Part> shifts_of(const NamedValues& options, std::uint32_t ranks) {
  std::map<std::uint64_t, std::uint64_t> times;  // by distance
  for (std::uint64_t i = 1; i <= given(options, "shifts"); ++i) {
    if (i % ranks != 0) ++times[i % ranks];
  }
  std::vector<Part> parts;
  parts.reserve(times.size());
  for (const auto& [distance, count] : times) {
    parts.push_back({fmt::format("shift by {}", distance), "shifts",
                     overlaid(options, {{"shifts", "1"}, {"stride", text_of(distance)}}), count});
  }
  return parts;
}

std::vector<Part> repeat_of(const NamedValues& options) {
  const std::uint64_t times = given(options, "times");
  return {{"out",
           "onetoall",
           {{"messages", text_of(given(options, "messages_out"))}, {"ahead", "64"}},
           times},
          {"in", "alltoone", {{"messages", text_of(given(options, "messages_in"))}}, times}};
}

std::vector<std::string> usual_budgets(std::uint32_t ranks) {
  if (ranks <= 8) return {"9MiB", "12MiB", "32MiB"};
  if (ranks <= kFew) return {"10MiB", "16MiB", "64MiB"};
  if (ranks <= kSome) return {"12MiB", "48MiB", "256MiB"};
  if (ranks <= 1024) return {"16MiB", "128MiB", "2GiB"};
  return {"256MiB"};
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"one to all",
       "onetoall",
       "Rank 0 sends to all others in turn. The bottleneck is the switching of rank 0's DCIs "
       "between targets, or, over RC, its contexts.",
       {},
       {{"messages", 6000, 1500, 100, true}, {"warmup", 40000, 40000, 400, true}}},
      {"all to one",
       "alltoone",
       "All others send to rank 0. The bottleneck is rank 0's cost per message or, with few "
       "initiators for credits, their switches between senders.",
       {},
       {{"messages", 4500, 600, 35, true}, {"warmup", 40000, 40000, 60, true}}},
      {"out and in",
       "repeat",
       "One to all, then all to one, repeatedly: channels chosen for one pattern still exist, at a "
       "cost, in the other.",
       {},
       {{"times", 3, 3, 2},
        {"warmup", 6, 1, 1},
        {"messages_out", 3000, 700, 40, true},
        {"messages_in", 3000, 700, 20, true}}},
      {"master and workers",
       "masterworker",
       "Rank 0 hands out tasks of 2 us, at most one to a worker at a time. Beyond a few ranks the "
       "bottleneck is rank 0, which sends as often as it receives.",
       {{"work", "2us"}},
       {{"tasks", 4000, 2000, 240, true}}},
      {"work stealing",
       "steal",
       "Idle ranks request work from random ranks, beyond 128 processes from the next 32. Any two "
       "exchange few messages, and most of the time is work, so delays that a policy causes are "
       "visible.",
       {{"work", "20us"}, {"most_tasks", "1024"}, {"poll", "20us"}, {"most_wait", "160us"}},
       {{"tasks", 500, 500, 40, true}, {"reach", 0, 0, 32}},
       "With 64 processes the difference from the best is the number of initiators, which changes "
       "which rank finds work first. That is chance: over ten seeds the times agree to 2 % "
       "(tests/sim/work_stealing_test.cpp)."},
      {"shifts",
       "shifts",
       "All send to a partner at one distance, then at the next one: a channel is useful for one "
       "shift only.",
       {},
       {{"shifts", 4, 16, 4}, {"messages", 6000, 700, 220}}},
      {"stencil",
       "stencil3d",
       "Exchange with up to six neighbours, then 10 us of work: each round waits for its slowest "
       "message.",
       {{"cells", "8"}, {"work", "10us"}},
       {{"rounds", 4000, 1500, 220}}},
      {"trees",
       "trees",
       "Messages to the ranks at distance 1, 2, 4 and so on, waiting after each step: the "
       "bottleneck is message latency.",
       {},
       {{"rounds", 6000, 1600, 120}}},
      {"phases that change",
       "phases",
       "Four partners per rank, drawn anew in each phase: a change must pay off before the phase "
       "ends.",
       {{"phases", "4"}},
       {{"messages", 8000, 2400, 240}}},
      {"hot spots that move",
       "hotspots",
       "All send to two hot ranks, which change from phase to phase. The bottleneck is a hot "
       "rank's cost per message or, with few initiators for credits, their switches.",
       {{"phases", "4"}},
       {{"messages", 1500, 100, 10}}},
      {"all to all",
       "alltoall",
       "256 bytes from each to each, four partners at a time: the same count from every source. "
       "Beyond 128 processes in rows of 32, like a transposition on a grid of processes.",
       {{"bytes", "256"}},
       {{"rounds", 1200, 100, 20}, {"among", 0, 0, 32}}},
      {"random neighbours",
       "random",
       "Ten partners per rank, drawn once; one message to each before the next round.",
       {},
       {{"messages", 30000, 6000, 1600}}},
  };
  return all;
}

Result<std::vector<Scenario>> scenarios_of(const std::vector<std::string>& names) {
  if (names.empty()) return scenarios();
  std::vector<Scenario> chosen;
  std::vector<std::string_view> known;
  for (const Scenario& one : scenarios()) known.insert(known.end(), {one.title, one.workload});
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string_view near = value::nearest_name(name, known);
    return Status{Code::invalid,
                  fmt::format("--workloads {}: no such workload here{} Known: {}", name,
                              near.empty() ? "." : fmt::format("; did you mean {}?", near),
                              fmt::join(known, ", "))};
  }
  for (const Scenario& one : scenarios()) {
    const auto wanted = [&](const std::string& name) {
      return name == one.title || name == one.workload;
    };
    if (std::any_of(names.begin(), names.end(), wanted)) chosen.push_back(one);
  }
  return chosen;
}

NamedValues options_of(const Scenario& scenario, std::uint32_t ranks) {
  NamedValues options = scenario.options;
  for (const Length& length : scenario.lengths) {
    options.emplace_back(length.option, text_of(value_of(length, ranks)));
  }
  return options;
}

Result<std::vector<std::string>> budgets_of(const std::vector<std::string>& given_ones,
                                            std::uint32_t ranks) {
  for (const std::string& text : given_ones) {
    const Result<std::uint64_t> bytes = value::parse_bytes(text);
    if (!bytes) {
      return Status{Code::invalid, fmt::format("--budgets {}: {}", text, bytes.status().text())};
    }
  }
  return given_ones.empty() ? usual_budgets(ranks) : given_ones;
}

std::string usual_interval(std::uint32_t ranks) {
  return ranks <= kSome ? "1ms" : "250us";
}

namespace {

std::vector<Part> stretches_of(const Scenario& scenario, const NamedValues& options,
                               std::uint32_t ranks) {
  if (scenario.workload == "repeat") return repeat_of(options);
  if (scenario.workload == "shifts") return shifts_of(options, ranks);
  if (scenario.workload == "phases" || scenario.workload == "hotspots") {
    return phases_of(scenario, options);
  }
  Part whole{"all", std::string(scenario.workload), options, 1, scenario.make};
  std::erase_if(whole.options, [](const auto& option) { return option.first == "warmup"; });
  return {whole};
}

}  // namespace

std::vector<Part> parts_of(const Scenario& scenario, std::uint32_t ranks) {
  return stretches_of(scenario, options_of(scenario, ranks), ranks);
}

std::optional<Part> warmed_up(const Scenario& scenario, std::uint32_t ranks) {
  const NamedValues options = options_of(scenario, ranks);
  if (!gives(options, "warmup")) return std::nullopt;
  return Part{"all", std::string(scenario.workload), options, 1};
}

}  // namespace turnout::sim
