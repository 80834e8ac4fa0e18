// SPDX-License-Identifier: BSD-3-Clause
// The families of workloads, one function and one file each, and the parameters they share.
//
// A program is a coroutine function that takes what it needs by value; the Program is a plain
// function object that calls it, so that nothing a coroutine uses can go away before it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "sim/workloads/workload.h"

namespace turnout::sim {

[[nodiscard]] std::vector<Workload> hot_rank_family();  // onetoall, alltoone, repeat
[[nodiscard]] std::vector<Workload> pair_family();      // pingpong, bowtie, transfer
[[nodiscard]] std::vector<Workload> exchange_family();  // ring, shifts, alltoall, broadcast, trees
[[nodiscard]] std::vector<Workload> stencil_family();   // stencil2d, stencil3d
[[nodiscard]] std::vector<Workload> steal_family();     // steal
[[nodiscard]] std::vector<Workload> changing_family();  // random, phases, hotspots
[[nodiscard]] std::vector<Workload> nas_family();       // nas-is, nas-ft, nas-cg, ...
[[nodiscard]] std::vector<Workload> pressure_family();  // overlap, flood, incast, masterworker
[[nodiscard]] std::vector<Workload> nwchem_family();    // nwchem

namespace parameter {

inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMostCount = 1'000'000'000'000;
inline constexpr std::uint64_t kMostRequests = 4096;
inline constexpr std::uint64_t kMostTime = 3'600'000'000'000;  // ns

constexpr Parameter count(std::string_view name, std::uint64_t value, std::uint64_t least,
                          std::uint64_t most, std::string_view help) {
  return {name, Parameter::Unit::count, value, least, most, help};
}
constexpr Parameter bytes(std::uint64_t value) {
  return {"bytes", Parameter::Unit::bytes, value, 0, kMostBytes, "bytes per message"};
}
constexpr Parameter rounds(std::uint64_t value) {
  return count("rounds", value, 1, kMostCount, "repetitions of the pattern");
}
constexpr Parameter warmup(std::uint64_t value) {
  return count("warmup", value, 0, kMostCount,
               "untimed rounds at the start, followed by a barrier");
}
constexpr Parameter window(std::uint64_t value) {
  return count("window", value, 1, parameter::kMostRequests, "sends in flight per rank");
}
constexpr Parameter ahead(std::uint64_t value) {
  return count("ahead", value, 1, parameter::kMostRequests, "receives posted in advance per rank");
}
constexpr Parameter time(std::string_view name, std::uint64_t nanoseconds, std::string_view help) {
  return {name, Parameter::Unit::duration, nanoseconds, 0, kMostTime, help};
}

}  // namespace parameter

// Tag of messages of which a program has only one kind.
inline constexpr std::uint64_t kDataTag = 1;

struct TimedRounds {
  std::string_view name;
  std::uint64_t warmup, rounds;
  std::uint64_t messages;  // of a round, by all ranks
};
// Plays rounds that are not counted, for the selection to choose, and then those that are, with a
// barrier after each part.
Task play_timed(Rank rank, TimedRounds timed, std::function<Task(Rank, std::uint64_t rounds)> body,
                SharedPhases phases);

// The same as a program of `body(rank, pattern, rounds)`.
template <class Pattern>
[[nodiscard]] Program timed_program(const TimedRounds& timed,
                                    Task (*body)(Rank, Pattern, std::uint64_t rounds),
                                    const Pattern& pattern, const SharedPhases& phases) {
  return [=](Rank rank) {
    return play_timed(
        rank, timed, [=](Rank one, std::uint64_t rounds) { return body(one, pattern, rounds); },
        phases);
  };
}

}  // namespace turnout::sim
