// SPDX-License-Identifier: BSD-3-Clause
// The programs of calibration.cpp. Each rank 0 writes times in nanoseconds to what it was given,
// which outlives the run.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/runtime/rank.h"

namespace turnout::sim::calibration {

// Rank 0 and ranks 1..targets in turn send to and fro. Half of the ranks behind them do so once
// before, half once after the warm-up: it gives rank 0 rings to poll under a static policy, as many
// before those of the targets as behind. They do so again before each round, which is so short that
// rank 0 does not take their rings for silent (core/state/polled_rings.h) while it lasts.
struct PingPong {
  std::uint32_t targets = 1;
  std::uint32_t warmup = 200, batch = 100, rounds = 9;
};
[[nodiscard]] Program ping_pong(PingPong pattern, std::vector<double>* half_round_trips);

// The same from its first message on: every round trip, and when it ended.
struct Trip {
  double time = 0;   // of the round trip
  double ended = 0;  // since the first began
};
[[nodiscard]] Program cold_ping_pong(std::uint32_t trips, std::vector<Trip>* out);

// Rank 0 asks ranks 1..senders for a burst of messages each, of these lengths one after the other:
// as many senders as keep rank 0 busy. For each length, mean times from asking to the last message.
struct Bursts {
  std::uint32_t senders = 16;
  std::vector<std::uint32_t> lengths;
  std::uint32_t warmup = 50, batch = 50, rounds = 9;
};
[[nodiscard]] Program bursts(Bursts pattern, std::vector<std::vector<double>>* times);

// Rank 0 sends to so many targets at once and waits for all their answers. For each number, mean
// times.
struct Scatter {
  std::vector<std::uint32_t> targets;
  std::uint32_t batch = 50, rounds = 9;
};
[[nodiscard]] Program scatter(Scatter pattern, std::vector<std::vector<double>>* times);

// Senders 0..senders-1 send to `each` targets in turn as fast as they can, among `targets` ranks
// behind them; the last rank tells all when everything has arrived. Time for one message of all
// senders together, from runs of two lengths.
struct Streams {
  std::uint32_t senders = 1, targets = 16, each = 16;
  std::uint32_t per_target = 64;  // messages of the short run; the long one has three times as many
  std::uint32_t warmup = 6, rounds = 5;
  [[nodiscard]] std::uint32_t ranks() const { return senders + targets + 1; }
};
[[nodiscard]] Program streams(Streams pattern, std::vector<double>* times);

}  // namespace turnout::sim::calibration
