// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/size_reader.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <span>
#include <tuple>
#include <utility>

namespace turnout::sim::plan {
namespace {

using Kind = Node::Kind;

// Of the operations; with less in common they are two programs.
constexpr double kMostLeftOut = 0.25;
constexpr std::size_t kMostPlaces = 20'000;  // that are looked at on the way through both

// Goes through the program with all ranks of a size at once: each operation is taken from those
// whom one of its possible relations names, and they must all have it next.
class SizeReader {
 public:
  SizeReader(const std::vector<RankStarts>& ranks, std::size_t drafts, bool as_often)
      : ranks_(ranks), at_(ranks.size()), seen_(drafts), as_often_(as_often) {}

  // False: it is not this program.
  bool read(const Drafts& program) { return read_list(program) && at_end(); }

  // The same with parts left out, as few as can be; `waits_before` is that of the lockstep,
  // `largest` the number of ranks that the program was found at. Gives the share left out.
  std::optional<double> read_around(const Drafts& program, std::uint32_t largest,
                                    const std::vector<std::vector<std::uint32_t>>& waits_before) {
    std::vector<Place> places;
    // The cheapest goes first, and of these the one that came farthest.
    using Next = std::tuple<double, std::int64_t, std::size_t>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
    const auto add = [&](Place place) {
      open.emplace(place.cost, -static_cast<std::int64_t>(place.draft), places.size());
      places.push_back(std::move(place));
    };
    double all = 0;
    for (const RankStarts& rank : ranks_) all += static_cast<double>(rank.list.size());
    const auto ranks = static_cast<double>(ranks_.size());
    std::set<std::pair<std::size_t, std::vector<std::size_t>>> done;
    add({0, std::vector<std::size_t>(ranks_.size()), 0, 0, 0, false});
    while (!open.empty() && done.size() < kMostPlaces) {
      const std::size_t here = std::get<2>(open.top());
      open.pop();
      const Place place = places[here];
      if (place.cost * ranks > 2 * kMostLeftOut * all) return std::nullopt;
      if (!done.emplace(place.draft, place.at).second) continue;
      at_ = place.at;
      if (place.draft == program.size() && at_end()) return take_way(program, places, here);
      if (place.draft < program.size()) {
        const Draft& draft = program[place.draft];
        add({place.draft + 1, place.at, place.cost + operations_of(draft) / largest, place.left_out,
             here, false});
        const std::size_t before = trail_.size();
        if (read_list({&draft, 1}) && at_ != place.at) {
          add({place.draft + 1, at_, place.cost, place.left_out, here, true});
        }
        undo({before, place.at});
      }
      if (at_end()) continue;
      const double passed = pass_to_next_wait(waits_before);
      add({place.draft, at_, place.cost + passed / ranks, place.left_out + passed / all, here,
           false});
    }
    return std::nullopt;
  }
  [[nodiscard]] const std::vector<Seen>& seen() const noexcept { return seen_; }

 private:
  struct Mark {
    std::size_t trail;
    std::vector<std::size_t> at;
  };
  // Of read_around(): so much of the program and of the trace lies behind.
  struct Place {
    std::size_t draft;
    std::vector<std::size_t> at;
    double cost;      // operations of a rank that were left out, of program and trace
    double left_out;  // share of the trace's
    std::size_t from;
    bool reads;  // the draft before it, from there
  };
  struct Agreed {
    std::uint32_t count = 0;  // 0: somebody disagrees
    double bytes = 0;
    bool one_size = true;
  };

  void change(std::uint32_t number, Seen now) {
    trail_.emplace_back(number, std::move(seen_[number]));
    seen_[number] = std::move(now);
  }
  [[nodiscard]] Mark mark() const { return {trail_.size(), at_}; }
  void undo(Mark mark) {
    while (trail_.size() > mark.trail) {
      seen_[trail_.back().first] = std::move(trail_.back().second);
      trail_.pop_back();
    }
    at_ = std::move(mark.at);
  }

  [[nodiscard]] bool at_end() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (at_[rank] < ranks_[rank].list.size()) return false;
    }
    return true;
  }
  // Of all ranks, at the size of the program.
  [[nodiscard]] static double operations_of(const Draft& draft) {
    if (draft.kind == Kind::operation) return draft.item.takers;
    double count = 0;
    for (const Draft& inner : draft.body) count += operations_of(inner);
    return count;
  }
  // Gives how many operations were passed.
  double pass_to_next_wait(const std::vector<std::vector<std::uint32_t>>& waits_before) {
    std::uint32_t first = std::numeric_limits<std::uint32_t>::max();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto& of_rank = waits_before[rank];
      if (at_[rank] < of_rank.size()) first = std::min(first, of_rank[at_[rank]]);
    }
    double passed = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto& of_rank = waits_before[rank];
      for (; at_[rank] < of_rank.size() && of_rank[at_[rank]] == first; ++at_[rank]) ++passed;
    }
    return passed;
  }
  // Reads what lies on the way to a place.
  double take_way(const Drafts& program, const std::vector<Place>& places, std::size_t to) {
    std::vector<std::size_t> way;
    for (std::size_t at = to; at != 0; at = places[at].from) way.push_back(at);
    for (auto at = way.rbegin(); at != way.rend(); ++at) {
      at_ = places[places[*at].from].at;
      if (places[*at].reads) (void)read_list({&program[places[*at].draft - 1], 1});
    }
    return places[to].left_out;
  }

  const std::vector<std::uint32_t>& peers_of(const Relation& relation) {
    const auto [found, is_new] = peers_.try_emplace(relation);
    if (is_new) {
      const auto n = static_cast<std::uint32_t>(ranks_.size());
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        found->second.push_back(relation.peer(rank, n));
      }
    }
    return found->second;
  }

  Agreed agree(const std::vector<std::uint32_t>& peers, TraceEvent::Kind kind) const {
    Agreed agreed;
    double sum = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (peers[rank] == kNoPeer) continue;
      const auto& list = ranks_[rank].list;
      if (at_[rank] >= list.size()) return {};
      const Start& next = list[at_[rank]];
      if (next.kind != kind || next.peer != peers[rank]) return {};
      if (agreed.count > 0 && next.bytes != agreed.bytes) agreed.one_size = false;
      agreed.bytes = next.bytes;
      sum += next.bytes;
      ++agreed.count;
    }
    if (agreed.count > 0) agreed.bytes = sum / agreed.count;
    return agreed;
  }

  void take(const std::vector<std::uint32_t>& peers, Seen* seen) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (peers[rank] == kNoPeer) continue;
      const Start& start = ranks_[rank].list[at_[rank]++];
      (start.goes_on ? seen->inside : seen->compute).add(start.early + start.compute);
      if (start.peer == kEveryPeer) seen->inside.add(start.inside);
      seen->all_to_all = start.all_to_all;
    }
  }

  bool read_list(std::span<const Draft> list) {
    return std::all_of(list.begin(), list.end(), [&](const Draft& draft) {
      switch (draft.kind) {
        case Kind::wait:
          return true;
        case Kind::operation:
          return read_operation(draft);
        case Kind::loop:
          return read_loop(draft);
        case Kind::steps:
          return read_steps(draft);
      }
      return false;
    });
  }

  // Whoever has such an operation next.
  std::vector<std::uint32_t> irregular_peers(TraceEvent::Kind kind) const {
    std::vector<std::uint32_t> peers(ranks_.size(), kNoPeer);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto& list = ranks_[rank].list;
      if (at_[rank] < list.size() && list[at_[rank]].kind == kind &&
          list[at_[rank]].peer != kEveryPeer) {
        peers[rank] = list[at_[rank]].peer;
      }
    }
    return peers;
  }

  bool read_operation(const Draft& draft) {
    const Seen& before = seen_[draft.number];
    const bool one_size = draft.item.bytes.least == draft.item.bytes.most;
    if (draft.possible.empty()) {
      const std::vector<std::uint32_t> peers = irregular_peers(draft.item.kind);
      const Agreed agreed = agree(peers, draft.item.kind);
      if (agreed.count == 0) return false;
      Seen now = before;
      now.seen = true;
      now.bytes = agreed.bytes;
      take(peers, &now);
      change(draft.number, std::move(now));
      return true;
    }
    Agreed best;
    const std::vector<std::uint32_t>* best_peers = nullptr;
    std::vector<Relation> possible;
    for (const Relation& relation : before.seen ? before.possible : draft.possible) {
      const std::vector<std::uint32_t>& peers = peers_of(relation);
      const Agreed agreed = agree(peers, draft.item.kind);
      if (agreed.count == 0 || (one_size && !agreed.one_size)) continue;
      if (before.seen && one_size && !close(before.bytes, agreed.bytes, 1e-6)) continue;
      if (agreed.count > best.count) {
        best = agreed;
        best_peers = &peers;
        possible.clear();
      }
      if (peers == *best_peers) possible.push_back(relation);
    }
    if (best_peers == nullptr) return false;
    Seen now = before;
    now.seen = true;
    now.bytes = best.bytes;
    now.possible = std::move(possible);
    take(*best_peers, &now);
    change(draft.number, std::move(now));
    return true;
  }

  bool read_loop(const Draft& draft) {
    std::uint64_t count = 0;
    while (!as_often_ || count < draft.count) {
      Mark before = mark();
      if (!read_list(draft.body) || at_ == before.at) {
        undo(std::move(before));
        break;
      }
      ++count;
    }
    Seen now = seen_[draft.number];
    now.seen = true;
    now.count = count;
    change(draft.number, std::move(now));
    return true;
  }

  // Of the first step: which one it is.
  std::optional<std::int32_t> first_index(const Draft& steps) {
    for (const Draft& one : steps.body) {
      if (one.kind != Kind::operation) continue;
      Relation relation = one.possible.front();
      std::optional<std::int32_t> best;
      std::uint32_t most = 0;
      for (std::int32_t index = 0; index < static_cast<std::int32_t>(ranks_.size()); ++index) {
        relation.index = index;
        const std::uint32_t count = agree(peers_of(relation), one.item.kind).count;
        if (count > most) {
          most = count;
          best = index;
        }
      }
      return best;
    }
    return std::nullopt;
  }

  bool read_steps(const Draft& steps) {
    const std::optional<std::int32_t> first = first_index(steps);
    if (!first) return true;  // none at this size
    std::int32_t index = *first;
    std::uint64_t count = 0;
    for (;; index += steps.way, ++count) {
      Mark before = mark();
      if (!read_step(steps, index, count)) {
        undo(std::move(before));
        break;
      }
    }
    if (count == 0) return true;
    Seen now = seen_[steps.number];
    now.seen = true;
    now.count = count;
    now.first = *first;
    now.last = index - steps.way;
    change(steps.number, std::move(now));
    return true;
  }

  bool read_step(const Draft& steps, std::int32_t index, std::uint64_t count) {
    if (index < 0) return false;
    for (const Draft& one : steps.body) {
      if (one.kind != Kind::operation) continue;
      Relation relation = one.possible.front();
      relation.index = index;
      const std::vector<std::uint32_t>& peers = peers_of(relation);
      const Agreed agreed = agree(peers, one.item.kind);
      if (agreed.count == 0) return false;
      Seen now = seen_[one.number];
      if (count == 0) {
        if (now.seen && !close(now.bytes, agreed.bytes, 1e-6)) return false;
        now.seen = true;
        now.bytes = agreed.bytes;
        now.possible = one.possible;
      } else if (!close(now.bytes * std::pow(one.ratio, static_cast<double>(count)), agreed.bytes,
                        0.02)) {
        return false;
      }
      take(peers, &now);
      change(one.number, std::move(now));
    }
    return true;
  }

  const std::vector<RankStarts>& ranks_;
  std::vector<std::size_t> at_;  // by rank: its next operation
  std::vector<Seen> seen_;       // by number
  std::vector<std::pair<std::uint32_t, Seen>> trail_;
  std::map<Relation, std::vector<std::uint32_t>> peers_;
  bool as_often_;  // loops repeat as often as at the largest size
};

}  // namespace

std::optional<ReadSize> read_size(const std::vector<RankStarts>& ranks, const Drafts& program,
                                  std::uint32_t largest) {
  const std::uint32_t drafts = count_of(program);
  for (const bool as_often : {false, true}) {
    SizeReader reader(ranks, drafts, as_often);
    if (reader.read(program)) return ReadSize{reader.seen(), 0};
  }
  const Lockstep lockstep = read_lockstep(ranks);
  std::optional<ReadSize> best;
  for (const bool as_often : {false, true}) {
    SizeReader reader(ranks, drafts, as_often);
    const std::optional<double> left_out =
        reader.read_around(program, largest, lockstep.waits_before);
    if (left_out && (!best || *left_out < best->left_out)) best = {reader.seen(), *left_out};
  }
  return best;
}

}  // namespace turnout::sim::plan
