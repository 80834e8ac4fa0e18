// SPDX-License-Identifier: BSD-3-Clause
// Random schedules: a random program under random settings and faults, all drawn from one seed;
// what must hold is checked while it runs (content, exactly once, MPI's order) and at its end
// (budget, counts, everything freed).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/report/report.h"

namespace turnout::sim {

using Setting = std::pair<std::string, std::string>;  // name and value

// On top of what a seed draws.
struct More {
  std::vector<Setting> settings;
  bool completions = false;  // sends that end when they are delivered or matched among the others
};

struct ScheduleOutcome {
  std::string broken;  // empty: all holds; else what does not
  std::string told;    // the settings and sizes that the seed gave
  std::uint64_t hash = 0;
  std::uint64_t switches = 0, faults = 0, messages = 0, adds = 0;
  std::uint64_t rtrs = 0, puts = 0, put_completions = 0;  // as in the report
  bool gave_up = false;  // a small budget was too small for the program, and the error said so
  ConnectionsReport connections;  // sums over all ranks
  std::uint64_t reached = 0;      // puts and gets
  std::uint64_t refused = 0;      // operations that ended with an error, as they should
  std::uint64_t over_xrc = 0;     // messages
  double fullest = 0;             // the largest peak of a rank, as a part of its budget

  // Its counts.
  void add(const ScheduleOutcome& other) noexcept;
};

// Messages up to a size are eager, in large ring entries or in fragments where they must be.
inline void add_eager_sizes(std::uint64_t seed, More* more) {
  constexpr const char* kThresholds[] = {"6000", "20000", "65536"};
  constexpr const char* kLargeEntries[] = {"0", "12KiB", "32832"};
  more->settings.emplace_back("rendezvous_threshold", kThresholds[seed % 3]);
  more->settings.emplace_back("large_ring_entry", kLargeEntries[seed / 3 % 3]);
  more->completions = seed / 9 % 2 == 1;
}

[[nodiscard]] ScheduleOutcome play_schedule(std::uint64_t seed, const More& more = {});
// The same with larger messages, most of them above the eager limit.
[[nodiscard]] ScheduleOutcome play_large_schedule(std::uint64_t seed, const More& more = {});
// The same on a device without DC: datagrams are lost, come twice and out of order.
[[nodiscard]] ScheduleOutcome play_datagram_schedule(std::uint64_t seed, const More& more = {});
// A policy that connects on demand with places for 1 to 4 connections at most, or, every fourth
// seed, little memory instead; who goes is drawn. Every third seed without DC.
[[nodiscard]] ScheduleOutcome play_teardown_schedule(std::uint64_t seed, const More& more = {});
// The same while one or two of 3 to 6 ranks die: operations with them end, all others hold.
[[nodiscard]] ScheduleOutcome play_death_schedule(std::uint64_t seed, const More& more = {});
// One of the two, odd seeds without DC, with little more memory than an endpoint needs to begin.
[[nodiscard]] ScheduleOutcome play_scarce_schedule(std::uint64_t seed, const More& more = {});
// One of all of these while connections fail: queue pairs go to the error state, requests end in
// transport errors.
[[nodiscard]] ScheduleOutcome play_failure_schedule(std::uint64_t seed, const More& more = {});
// Connections of nodes, with 1 to 4 ranks on each, that come and go; every second seed they fail,
// every fourth ranks die.
[[nodiscard]] ScheduleOutcome play_xrc_schedule(std::uint64_t seed, const More& more = {});
// The policy `turnout` with a prediction from an earlier run of the same program: every second seed
// with the ranks' own pairs, else with those of other ranks. Every third seed without DC, every
// fourth with little memory or with connections that fail.
[[nodiscard]] ScheduleOutcome play_predicted_schedule(std::uint64_t seed, const More& more = {});

}  // namespace turnout::sim
