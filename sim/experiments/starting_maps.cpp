// SPDX-License-Identifier: BSD-3-Clause
// Where the search for a map begins, and the queue pairs a map may have.

#include <algorithm>

#include "base/settings.h"
#include "core/selection/device_costs.h"
#include "core/selection/turnout_policy.h"
#include "sim/experiments/map_search.h"

namespace turnout::sim {

namespace {

bool uses_rc(const ChannelMap& map, std::uint32_t a, std::uint32_t b) {
  return map.at(a, b) == ChannelKind::rc_rdma || map.at(b, a) == ChannelKind::rc_rdma;
}

// What each destination would choose if it were given the true counts; RC within the room.
template <class Select>
ChannelMap chosen(const RcRoom& room, std::uint32_t ranks, Select select) {
  ChannelMap map(ranks);
  std::vector<Direction> rc;
  for (std::uint32_t destination = 0; destination < ranks; ++destination) {
    std::vector<selection::SourceView> sources;
    for (const Direction& d : room.directions()) {
      if (d.destination != destination) continue;
      selection::SourceView view;
      view.peer = d.source;
      view.messages = d.messages;
      sources.push_back(view);
    }
    if (sources.empty()) continue;
    const selection::Plan plan = select(sources);
    for (const selection::PlanLine& line : plan.lines) {
      map.set(line.peer, destination, line.to);
      if (line.to == ChannelKind::rc_rdma) rc.push_back({line.peer, destination, line.messages});
    }
  }
  ChannelMap limited = map;
  for (const Direction& d : rc) limited.set(d.source, d.destination, ChannelKind::dc_rdma);
  room.give(std::move(rc), &limited);
  return limited;
}

}  // namespace

RcRoom::RcRoom(std::vector<Direction> directions, std::uint32_t ranks, std::uint32_t most)
    : directions_(std::move(directions)),
      ranks_(ranks),
      most_(most),
      pair_messages_(std::size_t{ranks} * ranks) {
  std::stable_sort(directions_.begin(), directions_.end(),
                   [](const Direction& a, const Direction& b) { return a.messages > b.messages; });
  for (const Direction& d : directions_) {
    pair_messages_[std::size_t{std::min(d.source, d.destination)} * ranks_ +
                   std::max(d.source, d.destination)] += d.messages;
  }
}

std::uint64_t RcRoom::messages(std::uint32_t a, std::uint32_t b) const {
  return pair_messages_[std::size_t{std::min(a, b)} * ranks_ + std::max(a, b)];
}

std::uint32_t RcRoom::used(const ChannelMap& map, std::uint32_t rank) const {
  std::uint32_t count = 0;
  for (std::uint32_t other = 0; other < ranks_; ++other) {
    if (other != rank && uses_rc(map, rank, other)) ++count;
  }
  return count;
}

void RcRoom::give(std::vector<Direction> wanted, ChannelMap* map) const {
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const Direction& a, const Direction& b) { return a.messages > b.messages; });
  std::vector<bool> fixed(std::size_t{ranks_} * ranks_);
  for (const Direction& d : wanted) {
    fixed[std::size_t{d.source} * ranks_ + d.destination] = true;
    fixed[std::size_t{d.destination} * ranks_ + d.source] = true;
  }
  // Room at one end: there is, or the least busy pair that is not wanted gives way.
  const auto make_room = [&](std::uint32_t rank) {
    if (used(*map, rank) < most_) return true;
    std::uint32_t least = rank;
    for (std::uint32_t other = 0; other < ranks_; ++other) {
      if (other == rank || !uses_rc(*map, rank, other)) continue;
      if (fixed[std::size_t{rank} * ranks_ + other]) continue;
      if (least == rank || messages(rank, other) < messages(rank, least)) least = other;
    }
    if (least == rank) return false;
    for (const auto& [a, b] : {std::pair{rank, least}, std::pair{least, rank}}) {
      if (map->at(a, b) == ChannelKind::rc_rdma) map->set(a, b, ChannelKind::dc_rdma);
    }
    return true;
  };
  for (const Direction& d : wanted) {
    const bool room = uses_rc(*map, d.source, d.destination) ||
                      (most_ > 0 && make_room(d.source) && make_room(d.destination));
    map->set(d.source, d.destination, room ? ChannelKind::rc_rdma : ChannelKind::dc_rdma);
  }
}

Result<std::vector<NamedMap>> starting_maps(const RcRoom& room, std::uint32_t ranks,
                                            const NamedValues& given, std::uint64_t bytes,
                                            std::uint64_t bytes_per_rc) {
  Settings settings = Settings::defaults();
  for (const auto& [name, value] : given) {
    if (Status s = settings.set(name, value); !s.ok()) return s;
  }
  const Result<selection::CostsFile> costs = selection::load_costs(settings);
  if (!costs) return costs.status();
  const auto entries = static_cast<std::uint32_t>(settings.ring_entries);
  selection::Limits limits;
  limits.max_active_rc = ranks;
  limits.max_channels = static_cast<std::uint32_t>(settings.max_channels);
  limits.dc_rdma_available = true;
  limits.bytes_available = bytes;
  limits.bytes_per_ring = settings.ring_entries * settings.ring_entry_size;
  limits.bytes_per_rc = bytes_per_rc;
  const auto aqps = [&](const std::vector<selection::SourceView>& sources) {
    selection::Input input;
    input.sources = sources;
    input.costs = selection::cost_model(costs.value().costs, entries);
    input.limits = limits;
    return selection::select_aqps(input);
  };
  const auto turnout = [&](const std::vector<selection::SourceView>& all, bool busy) {
    std::vector<selection::SourceView> sources = all;
    for (selection::SourceView& source : sources) {
      source.feedback = {busy ? 1.0F : 0.0F, 1.0F, 0};
    }
    selection::TurnoutInput input;
    input.sources = sources;
    input.terms.costs = costs.value().costs;
    input.terms.ring_entries = entries;
    input.terms.busy = busy ? 1 : 0;
    input.limits = limits;
    return selection::select_turnout(input);
  };
  using enum ChannelKind;
  ChannelMap rc_or_dc(ranks, dc_rdma);
  room.give(room.directions(), &rc_or_dc);
  ChannelMap rc_or_start = rc_or_dc;
  for (const Direction& d : room.directions()) {
    if (rc_or_dc.at(d.source, d.destination) == dc_rdma) {
      rc_or_start.set(d.source, d.destination, dc_sendrecv);
    }
  }
  return std::vector<NamedMap>{
      {"all on DC-sendrecv", ChannelMap(ranks, dc_sendrecv)},
      {"all on DC-RDMA", ChannelMap(ranks, dc_rdma)},
      {"RC-RDMA up to the memory limit, the rest on DC-RDMA", rc_or_dc},
      {"RC-RDMA up to the memory limit, the rest on DC-sendrecv", rc_or_start},
      {"AQPS's selection with the true counts", chosen(room, ranks, aqps)},
      {"turnout's selection with the true counts, all idle",
       chosen(room, ranks, [&](const auto& sources) { return turnout(sources, false); })},
      {"turnout's selection with the true counts, all busy",
       chosen(room, ranks, [&](const auto& sources) { return turnout(sources, true); })}};
}

}  // namespace turnout::sim
