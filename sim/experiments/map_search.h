// SPDX-License-Identifier: BSD-3-Clause
// The best map of channels that a search finds for one pattern of messages that is known
// beforehand: what a clairvoyant would choose.
//
// A map gives each direction (source, destination) one channel, which stands before the pattern
// begins and stays; limits and budget are those of a policy's run. Maps are judged by playing the
// pattern, after a short run of the same that sets the channels up. The search begins with the best
// of some maps (all on one channel, RC for the busiest as far as the budget goes, what the
// selections choose when they are given the true counts) and changes it in groups of directions and
// one by one, the busiest first, while that makes the pattern faster. Its result is the best it
// found: no map is proved to be better or not. Deterministic. One thread.
//
// Errors: those of the workload and the runner.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/types/channel_kind.h"
#include "sim/experiments/scenarios.h"
#include "sim/study/study.h"

namespace turnout::sim {

class ChannelMap {
 public:
  explicit ChannelMap(std::uint32_t ranks, ChannelKind all = ChannelKind::dc_sendrecv)
      : ranks_(ranks), kinds_(std::size_t{ranks} * ranks, all) {}
  [[nodiscard]] ChannelKind at(std::uint32_t source, std::uint32_t destination) const {
    return kinds_[std::size_t{source} * ranks_ + destination];
  }
  void set(std::uint32_t source, std::uint32_t destination, ChannelKind kind) {
    kinds_[std::size_t{source} * ranks_ + destination] = kind;
  }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  friend bool operator==(const ChannelMap&, const ChannelMap&) = default;

 private:
  std::uint32_t ranks_;
  std::vector<ChannelKind> kinds_;
};

struct Direction {
  std::uint32_t source = 0, destination = 0;
  std::uint64_t messages = 0;
};

// Keeps a map within the queue pairs that each rank has memory for. One serves both directions of a
// pair.
class RcRoom {
 public:
  // `directions`: those with messages; which of two pairs gives way follows from their counts.
  RcRoom(std::vector<Direction> directions, std::uint32_t ranks, std::uint32_t most);
  // RC to these directions, the busiest first; pairs that are less busy, and not among them, give
  // way. What gets none is put on DC-RDMA.
  void give(std::vector<Direction> wanted, ChannelMap* map) const;
  [[nodiscard]] std::uint32_t used(const ChannelMap& map, std::uint32_t rank) const;
  [[nodiscard]] const std::vector<Direction>& directions() const noexcept { return directions_; }

 private:
  [[nodiscard]] std::uint64_t messages(std::uint32_t a, std::uint32_t b) const;

  std::vector<Direction> directions_;  // the busiest first
  std::uint32_t ranks_, most_;
  std::vector<std::uint64_t> pair_messages_;
};

struct SearchOptions {
  Part part;
  Place place;
  ProfileFile profile;
  NamedValues settings;            // the budget among them
  std::uint32_t simulations = 24;  // at most, without those of the starts
  // Messages of a run that judges a map; longer patterns are shortened for it. What was found is
  // measured at full length.
  std::uint64_t judged_messages = 20'000;  // a recording is never shortened
};

struct FoundMap {
  Picoseconds time = 0;               // of the part, at full length
  Picoseconds best_start = 0;         // of the map that the search began with, likewise
  std::string start;                  // that map, in words
  std::vector<ChannelMap> maps;       // all that the search could begin with, then the best
  std::vector<Direction> directions;  // those with messages
  std::uint64_t initiators = 0;       // DC initiators a rank
  std::vector<double> shares;         // of the messages, by ChannelKind up to rc_rdma
  std::uint32_t simulations = 0, improvements = 0;
};

[[nodiscard]] Result<FoundMap> search_map(const SearchOptions& options, const Runner& runner);

// The least time of `options.part`, its warm-up not counted, in which nothing is set up before it
// begins: each channel is requested at its first message, that of the warm-up if there is one. Of
// the maps found for its stretches together, and of their starting maps.
[[nodiscard]] Result<Picoseconds> time_with_setup(const SearchOptions& options,
                                                  std::span<const FoundMap> found,
                                                  const Runner& runner);

// Maps to begin with, each with its name.
struct NamedMap {
  std::string name;
  ChannelMap map;
};
// `bytes`: what a rank has for rings and queue pairs, `bytes_per_rc` of them for one of these.
[[nodiscard]] Result<std::vector<NamedMap>> starting_maps(const RcRoom& room, std::uint32_t ranks,
                                                          const NamedValues& settings,
                                                          std::uint64_t bytes,
                                                          std::uint64_t bytes_per_rc);

}  // namespace turnout::sim
