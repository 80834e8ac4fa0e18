// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/map_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/settings.h"
#include "base/value.h"
#include "core/selection/device_costs.h"
#include "core/selection/turnout_policy.h"
#include "sim/experiments/page.h"

namespace turnout::sim {
namespace {

using enum ChannelKind;

// Initiators a rank that are tried: AQPS's, enough to keep a processor sending, dc-rdma-od's, and
// the most that the policy `turnout` takes; of fewer ranks as many.
constexpr std::uint64_t kFirstInitiators = 12, kMostInitiators = 64;
std::vector<std::uint64_t> other_initiators(std::uint64_t ranks) {
  std::vector<std::uint64_t> others = {4, 28, kMostInitiators};
  const bool known = ranks == kFirstInitiators || ranks > kMostInitiators ||
                     std::find(others.begin(), others.end(), ranks) != others.end();
  if (!known) others.push_back(ranks);
  return others;
}
constexpr std::size_t kDcSendRecv = 0, kDcRdma = 1;  // of starting_maps()
// A change is taken if it gains more than a two-thousandth.
constexpr double kGains = 0.9995;
constexpr Picoseconds kLongest = 100 * hca::kSecond;
// A pattern runs that much of its length first, so that each direction asks for its channel.
constexpr double kEstablishing = 0.1;
constexpr std::uint64_t kLeastEstablishing = 400;
// Then channels are set up while nobody sends: so many times, a barrier before each.
constexpr int kSettling = 10;
constexpr Picoseconds kSettlingTime = 20'000 * hca::kMicrosecond;

Task established(Rank rank, Program first, Program timed) {
  co_await first(rank);
  for (int i = 0; i < kSettling; ++i) {
    co_await rank.barrier();
    co_await rank.compute(kSettlingTime);
  }
  co_await rank.barrier();
  co_await timed(rank);
}

// The same pattern, so much shorter.
NamedValues shortened(NamedValues options, double factor, std::uint64_t least) {
  for (auto& [name, text] : options) {
    if (name != "messages" && name != "tasks" && name != "rounds") continue;
    const Result<std::uint64_t> value = value::parse_count(text);
    if (!value) continue;  // the run will say so
    const auto shorter = static_cast<std::uint64_t>(static_cast<double>(value.value()) * factor);
    text = fmt::format("{}", std::min(value.value(), std::max(shorter, least)));
  }
  return options;
}

// Plays maps.
class Judge {
 public:
  Judge(const SearchOptions& options, const Runner& runner) : options_(options), runner_(runner) {}

  struct Played {
    double time = 0;
    Outcome outcome;
  };
  // `factor`: part of the full length. The time is that of the full length, if all of it is as fast
  // as this part.
  // `cold`: without any channel at its beginning.
  Result<Played> play(const ChannelMap& map, std::uint64_t initiators, double factor,
                      bool keep_pairs = false, bool cold = false) {
    const bool rounds = std::any_of(options_.part.options.begin(), options_.part.options.end(),
                                    [](const auto& option) { return option.first == "rounds"; });
    const std::uint64_t least = rounds ? 2 : kLeastEstablishing;
    const Result<Instance> first = make(kEstablishing * factor, least);
    if (!first) return first.status();
    const Result<Instance> timed = make(factor, least);
    if (!timed) return timed.status();
    Options run = options_at(options_.place, options_.profile);
    const std::uint64_t credits = selection::credit_dcis(initiators, run.ranks);
    // A direction that was refused its channel asks again after four intervals: not in this run.
    run.settings = overlaid(options_.settings, {{"interval", "10s"},
                                                {"data_qps", fmt::format("{}", initiators)},
                                                {"credit_qps", fmt::format("{}", credits)},
                                                {"rc_pool", fmt::format("{}", run.ranks)},
                                                {"max_active_rc", fmt::format("{}", run.ranks)}});
    run.settings.emplace_back("policy", "static:dc-sendrecv");
    run.check_content = false;
    run.keep_latencies = false;
    run.keep_reports = keep_pairs;
    run.time_limit = options_.part.make ? kLongestRecording : kLongest;
    run.first_channel = [&map](std::uint32_t source, std::uint32_t destination) {
      return map.at(source, destination);
    };
    ++simulations_;
    run.prepares = cold;
    run.flow_control = true;
    Result<Outcome> outcome =
        runner_(run, [cold, a = first.value().program, b = timed.value().program](Rank rank) {
          return cold ? b(rank) : established(rank, a, b);
        });
    if (!outcome) return outcome.status();
    const Timed sum = timed_phases(timed.value().phases->list());
    return Played{sum.time / factor, std::move(outcome).value()};
  }
  // A map that cannot be played is never the best.
  double time(const ChannelMap& map, std::uint64_t initiators, double factor) {
    const Result<Played> played = play(map, initiators, factor);
    return played ? played.value().time : std::numeric_limits<double>::infinity();
  }
  double cold_time(const ChannelMap& map, std::uint64_t initiators) {
    const Result<Played> played = play(map, initiators, 1, false, true);
    return played ? played.value().time : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] std::uint32_t simulations() const noexcept { return simulations_; }

 private:
  [[nodiscard]] Result<Instance> make(double factor, std::uint64_t least) const {
    if (options_.part.make) return options_.part.make(options_.place);
    const Result<const Workload*> workload = find_workload(options_.part.workload);
    if (!workload) return workload.status();
    const Result<Values> values = parse_values(
        *workload.value(), shortened(options_.part.options, factor, factor < 1 ? least : 0));
    if (!values) return values.status();
    return make_instance(*workload.value(), values.value(), options_.place);
  }

  const SearchOptions& options_;
  const Runner& runner_;
  std::uint32_t simulations_ = 0;
};

// Directions that change together: all into a rank, out of one, over one distance, one by itself.
std::vector<std::vector<Direction>> groups_of(const std::vector<Direction>& directions,
                                              std::uint32_t ranks) {
  std::map<std::pair<int, std::uint32_t>, std::vector<Direction>> by;
  for (const Direction& d : directions) {
    by[{0, (d.destination + ranks - d.source) % ranks}].push_back(d);
    by[{1, d.destination}].push_back(d);
    by[{2, d.source}].push_back(d);
  }
  std::vector<std::vector<Direction>> groups;
  for (auto& [key, members] : by) {
    // One alone comes below, and all together were among the starts.
    if (members.size() > 1 && members.size() < directions.size()) groups.push_back(members);
  }
  const auto sum = [](const std::vector<Direction>& group) {
    std::uint64_t messages = 0;
    for (const Direction& d : group) messages += d.messages;
    return messages;
  };
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const auto& a, const auto& b) { return sum(a) > sum(b); });
  for (const Direction& d : directions) groups.push_back({d});
  return groups;
}

struct Best {
  ChannelMap map;
  std::uint64_t initiators;
  double time;
};

ChannelMap changed(const ChannelMap& map, const std::vector<Direction>& group, ChannelKind to,
                   const RcRoom& room) {
  ChannelMap next = map;
  if (to == rc_rdma) {
    room.give(group, &next);
  } else {
    for (const Direction& d : group) next.set(d.source, d.destination, to);
  }
  return next;
}

std::uint32_t improve(Best* best, const RcRoom& room, double factor, std::uint32_t most,
                      Judge& judge) {
  const std::vector<std::vector<Direction>> groups =
      groups_of(room.directions(), best->map.ranks());
  std::uint32_t tried = 0, better = 0;
  for (bool again = true; again;) {
    again = false;
    for (const std::vector<Direction>& group : groups) {
      for (const ChannelKind to : {dc_rdma, rc_rdma, dc_sendrecv}) {
        const ChannelMap next = changed(best->map, group, to, room);
        if (next == best->map) continue;
        if (tried++ >= most) return better;
        const double time = judge.time(next, best->initiators, factor);
        if (time >= best->time * kGains) continue;
        best->map = next;
        best->time = time;
        ++better;
        again = true;
      }
    }
  }
  return better;
}

std::vector<double> shares_of(const ChannelMap& map, const std::vector<Direction>& directions) {
  std::vector<double> shares(static_cast<std::size_t>(rc_rdma) + 1);
  double all = 0;
  for (const Direction& d : directions) {
    shares[static_cast<std::size_t>(map.at(d.source, d.destination))] +=
        static_cast<double>(d.messages);
    all += static_cast<double>(d.messages);
  }
  for (double& share : shares) share /= std::max(all, 1.0);
  return shares;
}

std::uint64_t budget_of(const NamedValues& settings) {
  for (const auto& [name, text] : settings) {
    if (name != "memory_budget") continue;
    const Result<std::uint64_t> bytes = value::parse_bytes(text);
    if (bytes) return bytes.value();
  }
  return std::uint64_t{256} << 20;  // the default
}

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

Result<FoundMap> search_map(const SearchOptions& options, const Runner& runner) {
  const std::uint32_t ranks = options.place.ranks;
  Judge judge(options, runner);
  // Who sends how much to whom, and what a rank's memory is before there are queue pairs.
  Result<Judge::Played> plain =
      judge.play(ChannelMap(ranks, dc_rdma), kFirstInitiators, 1, /*keep_pairs=*/true);
  if (!plain) return plain.status();
  std::vector<Direction> directions;
  std::uint64_t messages = 0;
  for (const auto& [pair, count] : plain.value().outcome.pairs) {
    if (pair.first == pair.second) continue;
    directions.push_back({pair.first, pair.second, count});
    messages += count;
  }
  const double shorter = static_cast<double>(options.judged_messages) /
                         static_cast<double>(std::max<std::uint64_t>(messages, 1));
  const double factor = options.part.make ? 1 : std::min(1.0, shorter);
  const std::uint64_t budget = budget_of(options.settings);
  const std::uint64_t held = plain.value().outcome.memory_peak + budget / 8;  // kept free by each
  const std::uint64_t bytes = budget > held ? budget - held : 0;
  const auto per_rc = static_cast<std::uint64_t>(
      std::max<std::int64_t>(options.profile.profile.memory_rc_qp, std::int64_t{1} << 16));
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / per_rc, ranks - 1));
  const RcRoom room(std::move(directions), ranks, most);
  const Result<std::vector<NamedMap>> starts =
      starting_maps(room, ranks, options.settings, bytes, per_rc);
  if (!starts) return starts.status();

  FoundMap found;
  std::optional<Best> best;
  for (const NamedMap& start : starts.value()) {
    const double time = judge.time(start.map, kFirstInitiators, factor);
    if (best && time >= best->time) continue;
    best = Best{start.map, kFirstInitiators, time};
    found.start = start.name;
  }
  for (const std::uint64_t initiators : other_initiators(ranks)) {
    const double time = judge.time(best->map, initiators, factor);
    if (time < best->time * kGains) best = Best{best->map, initiators, time};
  }
  const Best first = *best;
  found.improvements = improve(&*best, room, factor, options.simulations, judge);
  // At full length the shortened runs may have been wrong; all on DC-RDMA was measured so already.
  const auto full = [&](const Best& of) {
    return of.map == starts.value()[kDcRdma].map && of.initiators == kFirstInitiators
               ? plain.value().time
               : judge.time(of.map, of.initiators, 1);
  };
  const double first_time = full(first);
  double time = found.improvements == 0 ? first_time : full(*best);
  if (first_time < time) {
    best = first;
    time = first_time;
  }
  found.best_start = static_cast<Picoseconds>(first_time);
  found.time = static_cast<Picoseconds>(time);
  for (const NamedMap& start : starts.value()) found.maps.push_back(start.map);
  found.maps.push_back(best->map);
  found.directions = room.directions();
  found.initiators = best->initiators;
  found.shares = shares_of(best->map, room.directions());
  found.simulations = judge.simulations();
  return found;
}

Result<Picoseconds> time_with_setup(const SearchOptions& options, std::span<const FoundMap> found,
                                    const Runner& runner) {
  const std::uint32_t ranks = options.place.ranks;
  Judge judge(options, runner);
  double best = std::numeric_limits<double>::infinity();
  const auto judged = [&](std::size_t map, std::uint64_t initiators) {
    ChannelMap together(ranks);
    for (const FoundMap& one : found) {
      for (const Direction& d : one.directions) {
        together.set(d.source, d.destination, one.maps[map].at(d.source, d.destination));
      }
    }
    best = std::min(best, judge.cold_time(together, initiators));
  };
  std::set<std::uint64_t> initiators;
  for (const FoundMap& one : found) initiators.insert(one.initiators);
  for (const std::uint64_t count : initiators) {
    for (std::size_t map = 0; map < found.front().maps.size(); ++map) judged(map, count);
  }
  for (const std::size_t map : {kDcSendRecv, kDcRdma}) {  // what needs few set-ups
    judged(map, std::min<std::uint64_t>(ranks, kMostInitiators));
  }
  if (std::isinf(best)) return Status{Code::internal, "no map can be played with its set-up"};
  return static_cast<Picoseconds>(best);
}

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
