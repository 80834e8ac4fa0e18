// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/map_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/value.h"
#include "sim/experiments/page.h"

namespace turnout::sim {

namespace {

using enum ChannelKind;

// Initiators a rank that are tried: AQPS's, enough to keep a processor sending, dc-rdma-od's.
constexpr std::array<std::uint64_t, 3> kInitiators = {12, 4, 28};
constexpr std::size_t kDcRdma = 1;  // of starting_maps()
// A change is taken if it gains more than a two-thousandth.
constexpr double kGains = 0.9995;
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
  Result<Played> play(const ChannelMap& map, std::uint64_t initiators, double factor,
                      bool keep_pairs = false) {
    const bool rounds = std::any_of(options_.part.options.begin(), options_.part.options.end(),
                                    [](const auto& option) { return option.first == "rounds"; });
    const std::uint64_t least = rounds ? 2 : kLeastEstablishing;
    const Result<Instance> first = make(kEstablishing * factor, least);
    if (!first) return first.status();
    const Result<Instance> timed = make(factor, least);
    if (!timed) return timed.status();
    Options run = options_at(options_.place, options_.profile);
    // A direction that was refused its channel asks again after four intervals: not in this run.
    run.settings = overlaid(options_.settings, {{"interval", "10s"},
                                                {"data_qps", fmt::format("{}", initiators)},
                                                {"rc_pool", fmt::format("{}", run.ranks)},
                                                {"max_active_rc", fmt::format("{}", run.ranks)}});
    run.settings.emplace_back("policy", "static:dc-sendrecv");
    run.check_content = false;
    run.keep_latencies = false;
    run.keep_reports = keep_pairs;
    run.time_limit = 100'000'000 * hca::kMicrosecond;
    run.first_channel = [&map](std::uint32_t source, std::uint32_t destination) {
      return map.at(source, destination);
    };
    ++simulations_;
    Result<Outcome> outcome = runner_(run, [a = first.value().program, b = timed.value().program](
                                               Rank rank) { return established(rank, a, b); });
    if (!outcome) return outcome.status();
    Timed sum;
    for (const Phase& phase : timed.value().phases->list()) {
      sum.time += static_cast<double>(phase.end - phase.begin);
    }
    return Played{sum.time / factor, std::move(outcome).value()};
  }
  // A map that cannot be played is never the best.
  double time(const ChannelMap& map, std::uint64_t initiators, double factor) {
    const Result<Played> played = play(map, initiators, factor);
    return played ? played.value().time : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] std::uint32_t simulations() const noexcept { return simulations_; }

 private:
  [[nodiscard]] Result<Instance> make(double factor, std::uint64_t least) const {
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

}  // namespace

Result<FoundMap> search_map(const SearchOptions& options, const Runner& runner) {
  const std::uint32_t ranks = options.place.ranks;
  Judge judge(options, runner);
  // Who sends how much to whom, and what a rank's memory is before there are queue pairs.
  Result<Judge::Played> plain =
      judge.play(ChannelMap(ranks, dc_rdma), kInitiators[0], 1, /*keep_pairs=*/true);
  if (!plain) return plain.status();
  std::vector<Direction> directions;
  std::uint64_t messages = 0;
  for (const auto& [pair, count] : plain.value().outcome.pairs) {
    if (pair.first == pair.second) continue;
    directions.push_back({pair.first, pair.second, count});
    messages += count;
  }
  const double factor =
      std::min(1.0, static_cast<double>(options.judged_messages) /
                        static_cast<double>(std::max<std::uint64_t>(messages, 1)));
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
    const double time = judge.time(start.map, kInitiators[0], factor);
    if (best && time >= best->time) continue;
    best = Best{start.map, kInitiators[0], time};
    found.start = start.name;
  }
  for (const std::uint64_t initiators : kInitiators) {
    if (initiators == kInitiators[0]) continue;
    const double time = judge.time(best->map, initiators, factor);
    if (time < best->time * kGains) best = Best{best->map, initiators, time};
  }
  const Best first = *best;
  found.improvements = improve(&*best, room, factor, options.simulations, judge);
  // At full length the shortened runs may have been wrong; all on DC-RDMA was measured so already.
  const auto full = [&](const Best& of) {
    return of.map == starts.value()[kDcRdma].map && of.initiators == kInitiators[0]
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
  found.map = best->map;
  found.initiators = best->initiators;
  found.shares = shares_of(best->map, room.directions());
  found.simulations = judge.simulations();
  return found;
}

}  // namespace turnout::sim
