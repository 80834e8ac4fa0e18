// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/lockstep.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/split_mix.h"

namespace turnout::sim::plan {
namespace {

using Kind = TraceEvent::Kind;
constexpr std::array kKinds = {Kind::receive, Kind::send, Kind::put, Kind::get};
constexpr std::uint32_t kHalfReady = 1U << 31, kTree = 1U << 30, kHalf = 1U << 29,
                        kReady = 1U << 28;
constexpr std::uint32_t kOneSize = 4;  // see Reader::agreeing
constexpr std::array kParts = {Part::even, Part::odd, Part::lower_half, Part::upper_half};
// Do messages of each pair match in the order in which they were started, whatever their tags?
bool in_order(const Trace& trace) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> sent, received;
  const auto step = [](std::uint64_t* hash, const TraceEvent& event) {
    *hash = SplitMix64(*hash ^ (event.tag * 31 + event.communicator)).next();
  };
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    for (const TraceEvent& event : trace.programs[rank]) {
      if (event.kind == Kind::send) step(&sent[{rank, event.peer}], event);
      if (event.kind == Kind::receive) step(&received[{event.peer, rank}], event);
    }
  }
  return sent == received;
}

RankStarts list_of(const std::vector<TraceEvent>& events, std::uint32_t rank, bool with_tags) {
  RankStarts list;
  std::unordered_map<std::uint32_t, std::uint32_t> pending;
  double early = 0, compute = 0;
  bool waited = false;
  for (const TraceEvent& event : events) {
    if (event.kind == Kind::compute) {
      (waited ? compute : early) += static_cast<double>(event.amount);
      continue;
    }
    if (event.kind == Kind::wait) {
      const auto found = pending.find(event.request);
      if (found == pending.end()) continue;  // of a message to itself
      list.list[found->second].waited = static_cast<std::uint32_t>(list.list.size() - 1);
      pending.erase(found);
      waited = true;
      continue;
    }
    if (event.peer == rank) continue;
    pending[event.request] = static_cast<std::uint32_t>(list.list.size());
    Start start;
    start.kind = event.kind;
    start.peer = event.peer;
    start.bytes = static_cast<double>(event.amount);
    if (with_tags && event.is_message()) {
      start.tag = SplitMix64(event.tag ^ (std::uint64_t{event.communicator} << 32)).next() >> 17;
    }
    start.early = waited ? early : 0;
    start.compute = waited ? compute : early;
    list.list.push_back(start);
    early = compute = 0;
    waited = false;
  }
  list.end_compute = early + compute;
  return list;
}

// Steps of a binomial tree with root 0: messages from the parent and to the children, or the other
// way.
enum class TreeStep : std::uint8_t { none, from_parent, to_child, from_child, to_parent };

TreeStep tree_step(const Start& start, std::uint32_t rank) {
  const auto is_parent = [](std::uint32_t parent, std::uint32_t child) {
    return child != 0 &&
           (parent == (child & (child - 1)) || parent == child - std::bit_floor(child));
  };
  const bool receives = start.kind == Kind::receive;
  if (!receives && start.kind != Kind::send) return TreeStep::none;
  if (start.peer == kEveryPeer) return TreeStep::none;
  if (is_parent(start.peer, rank)) return receives ? TreeStep::from_parent : TreeStep::to_parent;
  if (is_parent(rank, start.peer)) return receives ? TreeStep::from_child : TreeStep::to_child;
  return TreeStep::none;
}

// A rank that goes on in a tree computes before the first step of its own only.
void find_trees(std::vector<RankStarts>* ranks) {
  for (std::uint32_t rank = 0; rank < ranks->size(); ++rank) {
    std::vector<Start>& list = (*ranks)[rank].list;
    for (std::size_t i = 1; i < list.size(); ++i) {
      const TreeStep before = tree_step(list[i - 1], rank), now = tree_step(list[i], rank);
      const bool down = (before == TreeStep::from_parent || before == TreeStep::to_child) &&
                        now == TreeStep::to_child;
      const bool up = before == TreeStep::from_child &&
                      (now == TreeStep::from_child || now == TreeStep::to_parent);
      list[i].goes_on = (down || up) && list[i].bytes == list[i - 1].bytes;
    }
  }
}

class Reader {
 public:
  explicit Reader(std::vector<RankStarts> ranks) : lists_(std::move(ranks)) {
    out_.ranks = static_cast<std::uint32_t>(lists_.size());
    at_.resize(out_.ranks);
    for (const KnownMap& known : relations_at(out_.ranks)) {
      const std::uint32_t map = intern(known.peers, known.relation);
      if (known.relation.kind == Relation::Kind::everyone) everyone_ = map;
    }
    known_ = out_.maps.size();
  }

  Lockstep read() {
    while (step()) {
    }
    place_waits();
    return std::move(out_);
  }

 private:
  struct Choice {
    Kind kind;
    std::uint32_t map;
  };

  std::uint32_t intern(const std::vector<std::uint32_t>& peers,
                       std::optional<Relation> relation = std::nullopt) {
    const auto [found, is_new] =
        interned_.emplace(peers, static_cast<std::uint32_t>(out_.maps.size()));
    if (is_new) out_.maps.push_back({peers, {}});
    if (relation) out_.maps[found->second].relations.push_back(*relation);
    return found->second;
  }

  [[nodiscard]] const Start* head(std::uint32_t rank) const {
    const auto& starts = lists_[rank].list;
    return at_[rank] < starts.size() ? &starts[at_[rank]] : nullptr;
  }

  // Has the message that the rank receives next been sent in the list so far?
  [[nodiscard]] bool is_ready(std::uint32_t rank, const Start& next) const {
    if (next.kind != Kind::receive) return true;
    const auto found = under_way_.find(std::uint64_t{next.peer} << 32 | rank);
    return found != under_way_.end() && found->second > 0;
  }

  // How many ranks take part, times four if their messages have one size: what does not is rarely
  // one operation. More if they are the half of those that are left, or can all go on at once: the
  // steps of a tree follow each other. 0: one of them would disagree.
  [[nodiscard]] std::uint32_t agreeing(const PeerMap& map, Kind kind, Part part) const {
    const std::vector<std::uint32_t>& peers = map.peers;
    const bool of_tree = std::any_of(map.relations.begin(), map.relations.end(),
                                     [](const Relation& one) { return one.is_tree(); });
    std::uint32_t count = 0;
    double bytes = -1;
    bool one_size = true, ready = true;
    for (std::uint32_t rank = 0; rank < out_.ranks; ++rank) {
      if (peers[rank] == kNoPeer || !takes_part(part, rank, out_.ranks)) continue;
      const Start* const next = head(rank);
      if (next == nullptr || next->kind != kind || next->peer != peers[rank]) return 0;
      one_size = one_size && (bytes < 0 || bytes == next->bytes);
      bytes = next->bytes;
      ready = ready && is_ready(rank, *next);
      ++count;
    }
    if (count == 0) return 0;
    const std::uint32_t score = one_size ? kOneSize * count : count;
    if (2 * count >= left_) return score + (ready ? kHalfReady : kHalf);
    if (!ready) return score;
    return score + (kind == Kind::receive && of_tree ? kTree : kReady);
  }

  // A part of a known relation; its map is made when it is first needed.
  std::optional<Choice> choose_part() {
    std::uint32_t most = 0, best = 0;
    Kind best_kind = Kind::send;
    Part best_part = Part::all;
    for (std::uint32_t map = 0; map < known_; ++map) {
      if (out_.maps[map].relations.front().kind == Relation::Kind::everyone) continue;
      for (const Part part : kParts) {
        for (const Kind kind : kKinds) {
          const std::uint32_t count = agreeing(out_.maps[map], kind, part);
          if (count <= most) continue;
          most = count;
          best = map;
          best_kind = kind;
          best_part = part;
        }
      }
    }
    // A few by chance are no rule.
    most %= kReady;
    if (most * 8 < kOneSize * out_.ranks || most < 2 * kOneSize) return std::nullopt;
    std::vector<std::uint32_t> peers = out_.maps[best].peers;
    for (std::uint32_t rank = 0; rank < out_.ranks; ++rank) {
      if (!takes_part(best_part, rank, out_.ranks)) peers[rank] = kNoPeer;
    }
    const std::vector<Relation> whole = out_.maps[best].relations;
    const std::uint32_t map = intern(peers);
    if (out_.maps[map].relations.empty()) {
      for (Relation relation : whole) {
        relation.part = best_part;
        out_.maps[map].relations.push_back(relation);
      }
    }
    return Choice{best_kind, map};
  }

  std::optional<Choice> choose() {
    std::uint32_t& left = left_;
    left = 0;
    std::uint32_t with_all = 0;  // whose next operation is an all-to-all exchange
    std::array<std::uint32_t, 8> kinds{};
    for (std::uint32_t rank = 0; rank < out_.ranks; ++rank) {
      const Start* const next = head(rank);
      if (next == nullptr) continue;
      ++left;
      if (next->peer == kEveryPeer) {
        ++with_all;
        continue;
      }
      ++kinds[static_cast<std::size_t>(next->kind)];
    }
    if (left == 0) return std::nullopt;
    if (with_all == out_.ranks) return Choice{Kind::send, everyone_};
    std::uint32_t most = 0;
    Choice best{};
    for (std::uint32_t map = 0; map < known_; ++map) {
      for (const Kind kind : kKinds) {
        if (kinds[static_cast<std::size_t>(kind)] == 0) continue;
        const std::uint32_t count = agreeing(out_.maps[map], kind, Part::all);
        if (count <= most) continue;
        most = count;
        best = {kind, map};
      }
    }
    const auto common = std::max_element(kinds.begin(), kinds.end());
    const auto common_kind = static_cast<Kind>(common - kinds.begin());
    const bool together = *common == left && left == out_.ranks;
    // Steps of a tree may find all others waiting for what follows.
    const bool goes_on = most >= kReady && best.kind == Kind::receive;
    if (most > 0 && (most >= kHalf || goes_on || !together)) return best;
    if (!together) {
      if (const std::optional<Choice> part = choose_part()) return part;
    }
    std::vector<std::uint32_t> peers(out_.ranks, kNoPeer);
    for (std::uint32_t rank = 0; rank < out_.ranks; ++rank) {
      const Start* const next = head(rank);
      if (next != nullptr && next->kind == common_kind && next->peer != kEveryPeer) {
        peers[rank] = next->peer;
      }
    }
    return Choice{common_kind, intern(peers)};
  }

  // Programs repeat: what was chosen for the same next operations is chosen again.
  bool step() {
    std::vector<std::uint64_t> heads(out_.ranks);
    for (std::uint32_t rank = 0; rank < out_.ranks; ++rank) {
      const Start* const next = head(rank);
      heads[rank] = next == nullptr ? 0
                                    : SplitMix64((std::uint64_t{next->peer} << 8) +
                                                 static_cast<std::uint64_t>(next->kind) + 1 +
                                                 (is_ready(rank, *next) ? 128 : 0) +
                                                 (static_cast<std::uint64_t>(next->bytes) << 40))
                                              .next() |
                                          1;
    }
    auto found = chosen_.find(heads);
    if (found == chosen_.end()) {
      const std::optional<Choice> choice = choose();
      if (!choice) return false;
      found = chosen_.emplace(std::move(heads), *choice).first;
    }
    const Choice choice = found->second;
    Item item;
    item.kind = choice.kind;
    item.map = choice.map;
    const PeerMap& map = out_.maps[choice.map];
    for (std::uint32_t rank = 0; rank < out_.ranks; ++rank) {
      if (map.peers[rank] == kNoPeer) continue;
      Start& start = lists_[rank].list[at_[rank]++];
      start.item = static_cast<std::uint32_t>(out_.items.size());
      item.bytes.add(start.bytes);
      ++item.takers;
      if (start.goes_on) {
        item.inside.add(start.early + start.compute);
      } else {
        item.compute.add(start.compute);
      }
      item.tag = start.tag;
      item.all_to_all = start.all_to_all;
      if (start.peer == kEveryPeer) item.inside.add(start.inside);
      if (start.kind == Kind::send) ++under_way_[std::uint64_t{rank} << 32 | start.peer];
      if (start.kind == Kind::receive) --under_way_[std::uint64_t{start.peer} << 32 | rank];
      if (choice.kind == Kind::receive) continue;
      if (map.relations.empty()) ++out_.irregular;
    }
    out_.items.push_back(std::move(item));
    return true;
  }

  // Where the programs wait: of several ranks the latest, for a recording may show an end before
  // its program asked for it.
  void place_waits() {
    const auto count = static_cast<std::uint32_t>(out_.items.size());
    std::vector<std::uint32_t> wait(count, 0);  // before this item
    std::vector<Amount> early(count + 1);
    for (const RankStarts& list : lists_) {
      for (const Start& start : list.list) {
        const std::uint32_t before =
            start.waited == Start::kNever ? count : list.list[start.waited].item + 1;
        wait[start.item] = std::max(wait[start.item], before);
        if (!start.goes_on) early[start.item].add(start.early);
      }
    }
    std::vector<std::vector<std::uint32_t>> at(count + 1);
    for (std::uint32_t item = 0; item < count; ++item) at[wait[item]].push_back(item);
    std::vector<std::uint32_t> waits_before;  // by item
    for (std::uint32_t item = 0, waits = 0; item < count; ++item) {
      if (!at[item].empty()) ++waits;
      waits_before.push_back(waits);
    }
    for (const RankStarts& list : lists_) {
      std::vector<std::uint32_t>& of_rank = out_.waits_before.emplace_back();
      for (const Start& start : list.list) of_rank.push_back(waits_before[start.item]);
    }
    std::vector<Item> all;
    std::vector<Item> items = std::move(out_.items);
    std::uint32_t outstanding = 0;
    for (std::uint32_t i = 0; i <= count; ++i) {
      if (!at[i].empty()) {
        Item one;
        one.is_wait = true;
        outstanding -= static_cast<std::uint32_t>(at[i].size());
        one.all = outstanding == 0;
        if (!one.all) {
          for (const std::uint32_t item : at[i]) one.back.push_back(i - item);
        }
        if (i < count) {
          one.map = items[i].map;
          one.compute = early[i];
        }
        all.push_back(std::move(one));
      } else if (i < count) {
        Amount both = items[i].compute;
        // The two of each rank belong together; their sum is what counts.
        both.sum += early[i].sum;
        items[i].compute = both;
      }
      if (i == count) break;
      ++outstanding;
      all.push_back(std::move(items[i]));
    }
    out_.items = std::move(all);
  }

  struct HashPeers {
    std::size_t operator()(const std::vector<std::uint32_t>& list) const noexcept {
      std::uint64_t hash = list.size();
      for (const std::uint32_t one : list) hash = SplitMix64(hash ^ one).next();
      return hash;
    }
  };
  struct HashHeads {
    std::size_t operator()(const std::vector<std::uint64_t>& list) const noexcept {
      std::uint64_t hash = list.size();
      for (const std::uint64_t one : list) hash = SplitMix64(hash ^ one).next();
      return hash;
    }
  };

  Lockstep out_;
  std::vector<RankStarts> lists_;
  std::vector<std::size_t> at_;  // by rank: its next operation
  std::size_t known_ = 0;        // maps of whole relations
  std::uint32_t everyone_ = 0;   // that of all-to-all exchanges
  std::uint32_t left_ = 0;       // ranks that have not ended
  // Sends less receives so far, by source and destination.
  std::unordered_map<std::uint64_t, std::int64_t> under_way_;
  std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, HashPeers> interned_;
  std::unordered_map<std::vector<std::uint64_t>, Choice, HashHeads> chosen_;
};

}  // namespace

void Amount::add(double value) noexcept {
  least = count == 0 ? value : std::min(least, value);
  most = count == 0 ? value : std::max(most, value);
  sum += value;
  squares += value * value;
  ++count;
}

void Amount::add(const Amount& other) noexcept {
  if (other.count == 0) return;
  least = count == 0 ? other.least : std::min(least, other.least);
  most = count == 0 ? other.most : std::max(most, other.most);
  sum += other.sum;
  squares += other.squares;
  count += other.count;
}

double Amount::spread() const noexcept {
  if (count < 2 || sum <= 0) return 0;
  const double average = mean(), variance = squares / count - average * average;
  return variance > 0 ? std::sqrt(variance) / average : 0;
}

std::vector<RankStarts> starts_of(const Trace& trace) {
  const bool with_tags = !in_order(trace);
  std::vector<RankStarts> ranks;
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    ranks.push_back(list_of(trace.programs[rank], rank, with_tags));
  }
  join_all_to_all(&ranks);
  find_trees(&ranks);
  return ranks;
}

Totals totals_of(const std::vector<RankStarts>& ranks) {
  Totals totals;
  for (const RankStarts& rank : ranks) {
    totals.end_compute += rank.end_compute;
    for (const Start& start : rank.list) {
      totals.compute += start.early + start.compute + start.inside;
      if (start.kind == Kind::receive) continue;
      const double partners = start.peer == kEveryPeer ? static_cast<double>(ranks.size()) - 1 : 1;
      totals.messages += partners;
      totals.bytes += partners * start.bytes;
    }
  }
  const double count = std::max(static_cast<double>(ranks.size()), 1.0);
  totals.compute = (totals.compute + totals.end_compute) / count;
  totals.end_compute /= count;
  return totals;
}

Lockstep read_lockstep(std::vector<RankStarts> ranks) {
  return Reader(std::move(ranks)).read();
}

}  // namespace turnout::sim::plan
