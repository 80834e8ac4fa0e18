// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "sim/plan/lockstep.h"

namespace turnout::sim::plan {
namespace {

using Kind = Node::Kind;

// A node of the largest size before its laws are known.
struct Draft {
  Kind kind = Kind::operation;
  Item item;                       // operation, wait
  std::vector<Relation> possible;  // that all sizes read so far agree with; of steps: the one
  double ratio = 1;
  std::uint64_t count = 1;
  std::int32_t first = 0, last = 0, way = 1;
  std::vector<Draft> body;
  std::uint32_t number = 0;  // of the draft, from 0
};
using Drafts = std::vector<Draft>;

constexpr std::uint64_t kLeastRepeats = 3;  // twice may be two neighbours that are one at this size
constexpr std::size_t kLongestStep = 6;     // items of one step of a collective
constexpr std::size_t kLongestBody = 4096;
constexpr std::uint32_t kMostRanks = 1024;  // of a trace: all relations are tried with all of them

bool close(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::max({std::abs(a), std::abs(b), 1.0});
}

bool same_item(const Item& a, const Item& b) {
  if (a.is_wait != b.is_wait) return false;
  if (a.is_wait) return a.all == b.all && a.back == b.back;
  return a.kind == b.kind && a.map == b.map && a.tag == b.tag && a.bytes.least == b.bytes.least &&
         a.bytes.most == b.bytes.most && close(a.bytes.mean(), b.bytes.mean(), 1e-9);
}

void add_amounts(const Item& from, Item* to) {
  to->compute.add(from.compute);
}

// --- Steps of collectives ---

class StepFinder {
 public:
  explicit StepFinder(const Lockstep& lockstep) : lockstep_(lockstep), items_(lockstep.items) {}

  Drafts find() {
    Drafts drafts;
    for (std::size_t at = 0; at < items_.size();) {
      Found best;
      for (std::size_t body = 1; body <= kLongestStep && at + 2 * body <= items_.size(); ++body) {
        const Found found = try_at(at, body);
        if (found.repeats * found.body > best.repeats * best.body) best = found;
      }
      if (best.repeats < 2) {
        drafts.push_back(draft_of(items_[at++]));
        continue;
      }
      drafts.push_back(steps_of(at, best));
      at += best.repeats * best.body;
    }
    return drafts;
  }

 private:
  struct Found {
    std::size_t body = 0, repeats = 0;
    std::int32_t first = 0, way = 1;
    std::vector<Relation> relations;  // of the items of the body; any of a wait
    std::vector<double> ratios;
  };

  Draft draft_of(const Item& item) const {
    Draft draft;
    draft.kind = item.is_wait ? Kind::wait : Kind::operation;
    draft.item = item;
    if (!item.is_wait) draft.possible = lockstep_.maps[item.map].relations;
    return draft;
  }

  [[nodiscard]] bool agrees(const Item& item, Relation relation, std::int32_t index) const {
    relation.index = index;
    const auto& known = lockstep_.maps[item.map].relations;
    return std::find(known.begin(), known.end(), relation) != known.end();
  }

  // The ratio of two messages that follow each other in a collective.
  [[nodiscard]] static double ratio_of(double former, double latter) {
    for (const double ratio : {1.0, 2.0, 0.5}) {
      if (close(former * ratio, latter, 0.02)) return ratio;
    }
    return 0;
  }

  // Is the item before or behind the same as the one inside it? Then neighbours on a small grid
  // look like steps.
  [[nodiscard]] bool has_twin(std::size_t at, std::size_t body, std::size_t repeats) const {
    const auto same_bodies = [&](std::size_t one, std::size_t other) {
      for (std::size_t q = 0; q < body; ++q) {
        if (!same_item(items_[one + q], items_[other + q])) return false;
      }
      return true;
    };
    const std::size_t last = at + (repeats - 1) * body;
    return (at >= body && same_bodies(at - body, at)) ||
           (last + 2 * body <= items_.size() && same_bodies(last + body, last));
  }

  Found try_at(std::size_t at, std::size_t body) const {
    Found best;
    if (items_[at].is_wait) return best;
    for (const Relation& relation : lockstep_.maps[items_[at].map].relations) {
      if (!relation.is_indexed()) continue;
      for (const std::int32_t way : {1, -1}) {
        Found found = try_steps(at, body, relation, way);
        if (found.repeats >= 2 && found.repeats > best.repeats &&
            !has_twin(at, body, found.repeats)) {
          best = std::move(found);
        }
      }
    }
    return best;
  }

  Found try_steps(std::size_t at, std::size_t body, const Relation& of_first,
                  std::int32_t way) const {
    Found found;
    found.body = body;
    found.first = of_first.index;
    found.way = way;
    const auto item = [&](std::size_t step, std::size_t q) -> const Item& {
      return items_[at + step * body + q];
    };
    for (std::size_t q = 0; q < body; ++q) {
      if (item(0, q).is_wait) {
        found.relations.push_back({});
        found.ratios.push_back(1);
        continue;
      }
      std::optional<Relation> relation;
      for (const Relation& one : lockstep_.maps[item(0, q).map].relations) {
        if (!one.is_indexed() || one.index != of_first.index) continue;
        if (q == 0 && one != of_first) continue;
        if (!agrees(item(1, q), one, one.index + way)) continue;
        relation = one;
        break;
      }
      const double ratio = ratio_of(item(0, q).bytes.mean(), item(1, q).bytes.mean());
      if (!relation || ratio == 0) return {};
      found.relations.push_back(*relation);
      found.ratios.push_back(ratio);
    }
    for (found.repeats = 1; at + (found.repeats + 1) * body <= items_.size(); ++found.repeats) {
      for (std::size_t q = 0; q < body; ++q) {
        const Item &now = item(found.repeats, q), &before = item(found.repeats - 1, q);
        if (now.is_wait != before.is_wait) return found;
        if (now.is_wait) {
          if (now.all != before.all || now.back != before.back) return found;
          continue;
        }
        const std::int32_t index = found.first + way * static_cast<std::int32_t>(found.repeats);
        if (index < 0 || now.kind != before.kind || now.tag != before.tag ||
            !agrees(now, found.relations[q], index) ||
            !close(before.bytes.mean() * found.ratios[q], now.bytes.mean(), 0.02)) {
          return found;
        }
      }
    }
    return found;
  }

  Draft steps_of(std::size_t at, const Found& found) const {
    Draft steps;
    steps.kind = Kind::steps;
    steps.first = found.first;
    steps.way = found.way;
    steps.last = found.first + found.way * static_cast<std::int32_t>(found.repeats - 1);
    for (std::size_t q = 0; q < found.body; ++q) {
      Draft one = draft_of(items_[at + q]);
      if (one.kind == Kind::operation) one.possible = {found.relations[q]};
      one.ratio = found.ratios[q];
      for (std::size_t step = 1; step < found.repeats; ++step) {
        add_amounts(items_[at + step * found.body + q], &one.item);
      }
      steps.body.push_back(std::move(one));
    }
    return steps;
  }

  const Lockstep& lockstep_;
  const std::vector<Item>& items_;
};

// --- Loops ---

bool same_draft(const Draft& a, const Draft& b) {
  if (a.kind != b.kind || a.body.size() != b.body.size()) return false;
  if (a.kind == Kind::wait) return same_item(a.item, b.item);
  if (a.kind == Kind::operation) {
    // Of steps: the relation, for their map is that of the first.
    return same_item(a.item, b.item) && a.possible == b.possible && a.ratio == b.ratio;
  }
  return a.count == b.count && a.first == b.first && a.last == b.last && a.way == b.way &&
         std::equal(a.body.begin(), a.body.end(), b.body.begin(), same_draft);
}

void merge_into(const Draft& from, Draft* to) {
  add_amounts(from.item, &to->item);
  for (std::size_t i = 0; i < to->body.size(); ++i) merge_into(from.body[i], &to->body[i]);
}

// Neighbours of one block may have the same peer on a small grid: only what ends with a wait
// repeats.
bool ends_with_wait(const Draft& draft) {
  if (draft.kind == Kind::wait) return true;
  return !draft.body.empty() && ends_with_wait(draft.body.back());
}

class Folder {
 public:
  Drafts fold(Drafts list) {
    for (std::size_t before = 0; before != list.size();) {
      before = list.size();
      for (std::size_t body = 1; body <= std::min(kLongestBody, list.size() / kLeastRepeats);
           ++body) {
        list = pass(std::move(list), body);
      }
    }
    return list;
  }

 private:
  // Equal drafts have equal numbers.
  std::uint32_t number_of(const Draft& draft) {
    std::vector<std::uint32_t>& alike = by_kind_[key(draft)];
    for (const std::uint32_t one : alike) {
      if (same_draft(examples_[one], draft)) return one;
    }
    alike.push_back(static_cast<std::uint32_t>(examples_.size()));
    examples_.push_back(draft);
    return alike.back();
  }
  static std::uint64_t key(const Draft& draft) {
    std::uint64_t key = static_cast<std::uint64_t>(draft.kind) + (draft.count << 8);
    if (draft.kind == Kind::operation) key ^= std::uint64_t{draft.item.map} << 20;
    key ^= (std::uint64_t{draft.body.size()} << 44);
    key ^= static_cast<std::uint64_t>(draft.item.bytes.mean()) << 3;
    return key;
  }

  Drafts pass(Drafts list, std::size_t body) {
    std::vector<std::uint32_t> numbers;
    numbers.reserve(list.size());
    for (Draft& draft : list) {
      if (draft.number == 0) draft.number = number_of(draft) + 1;
      numbers.push_back(draft.number);
    }
    Drafts out;
    for (std::size_t at = 0; at < list.size();) {
      const std::size_t repeats = repeats_at(numbers, at, body);
      if (repeats < kLeastRepeats || !ends_with_wait(list[at + body - 1])) {
        out.push_back(std::move(list[at++]));
        continue;
      }
      Draft loop;
      loop.kind = Kind::loop;
      loop.count = repeats;
      for (std::size_t q = 0; q < body; ++q) loop.body.push_back(std::move(list[at + q]));
      for (std::size_t r = 1; r < repeats; ++r) {
        for (std::size_t q = 0; q < body; ++q) {
          merge_into(list[at + r * body + q], &loop.body[q]);
        }
      }
      out.push_back(std::move(loop));
      at += repeats * body;
    }
    return out;
  }

  static std::size_t repeats_at(const std::vector<std::uint32_t>& numbers, std::size_t at,
                                std::size_t body) {
    std::size_t same = 0;
    while (at + body + same < numbers.size() && numbers[at + same] == numbers[at + body + same]) {
      ++same;
    }
    return same / body + 1;
  }

  std::vector<Draft> examples_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_kind_;
};

// --- Other sizes, read as the same program ---

void number_all(Drafts* list, std::uint32_t* next) {
  for (Draft& draft : *list) {
    draft.number = (*next)++;
    number_all(&draft.body, next);
  }
}

// What a node of the program is at one size.
struct Seen {
  bool seen = false;
  double bytes = 0;
  Amount compute;
  std::uint64_t count = 0;
  std::int32_t first = 0, last = 0;
  std::vector<Relation> possible;
};

// Goes through the program with all ranks of a size at once: each operation is taken from those
// whom one of its possible relations names, and they must all have it next.
class SizeReader {
 public:
  SizeReader(const std::vector<RankStarts>& ranks, std::size_t drafts, bool as_often)
      : ranks_(ranks), at_(ranks.size()), seen_(drafts), as_often_(as_often) {}

  // False: it is not this program.
  bool read(const Drafts& program) {
    if (!read_list(program)) return false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (at_[rank] < ranks_[rank].list.size()) return false;
    }
    return true;
  }
  [[nodiscard]] const std::vector<Seen>& seen() const noexcept { return seen_; }

 private:
  struct Mark {
    std::size_t trail;
    std::vector<std::size_t> at;
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
      seen->compute.add(start.early + start.compute);
    }
  }

  bool read_list(const Drafts& list) {
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
      if (at_[rank] < list.size() && list[at_[rank]].kind == kind) {
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

// --- One relation of those possible ---

using Group = std::string;

void collect(Drafts* list, bool in_steps, std::vector<Draft*>* out) {
  for (Draft& draft : *list) {
    if (draft.kind == Kind::operation && !in_steps && draft.possible.size() > 1) {
      out->push_back(&draft);
    }
    collect(&draft.body, in_steps || draft.kind == Kind::steps, out);
  }
}

int way_of(const Relation& relation) {
  if (relation.kind == Relation::Kind::grid) {
    for (std::int32_t rest = relation.index, d = 0; d < relation.dimensions; ++d, rest /= 3) {
      if (rest % 3 != 1) return rest % 3 - 1;
    }
  }
  return 0;
}

// The fewest kinds of traffic that explain everything: always the kind that explains most of what
// is left. Both neighbours along an axis of two ranks are one rank: which of them is meant is taken
// from the axis before.
void choose_relations(Drafts* program) {
  std::vector<Draft*> open;
  collect(program, false, &open);
  std::vector<Draft*> left = open;
  while (!left.empty()) {
    std::map<Group, std::size_t> explains;
    for (const Draft* const draft : left) {
      std::set<Group> groups;
      for (const Relation& relation : draft->possible) groups.insert(relation.family());
      for (const Group& group : groups) ++explains[group];
    }
    // Of those that explain as much, the one that is known from all the fewest axes: by name,
    // exchanges and shifts come before stencils.
    const auto best =
        std::max_element(explains.begin(), explains.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const Group group = best->first;
    std::vector<Draft*> rest;
    for (Draft* const draft : left) {
      std::vector<Relation> of_group;
      for (const Relation& relation : draft->possible) {
        if (relation.family() == group) of_group.push_back(relation);
      }
      if (of_group.empty()) {
        rest.push_back(draft);
      } else {
        draft->possible = std::move(of_group);
      }
    }
    left = std::move(rest);
  }
  std::map<TraceEvent::Kind, std::vector<int>> ways;
  for (Draft* const draft : open) {
    std::vector<int>& former = ways[draft->item.kind];
    if (draft->possible.size() > 1 && former.size() >= 2) {
      const int wanted = former[former.size() - 2];
      const auto found = std::find_if(draft->possible.begin(), draft->possible.end(),
                                      [&](const Relation& r) { return way_of(r) == wanted; });
      if (found != draft->possible.end()) std::swap(draft->possible.front(), *found);
    }
    former.push_back(way_of(draft->possible.front()));
  }
}

// --- Laws ---

// How faces between neighbours shrink.
std::vector<Law::Of> shapes_of(const Relation& relation) {
  if (relation.kind != Relation::Kind::grid) return {Law::Of::cut_ranks};
  if (relation.square) {
    return {Law::Of::cut_edge, Law::Of::cut_cells, Law::Of::cut_faces, Law::Of::inverse_edge,
            Law::Of::inverse_cells};
  }
  std::vector<int> axes;
  for (std::int32_t rest = relation.index, d = 0; d < relation.dimensions; ++d, rest /= 3) {
    if (rest % 3 != 1) axes.push_back(d);
  }
  if (axes.size() != 1) return {};
  if (relation.dimensions == 3) {
    constexpr Law::Of kFaces[] = {Law::Of::face_0, Law::Of::face_1, Law::Of::face_2};
    return {kFaces[axes.front()]};
  }
  if (relation.dimensions != 2) return {};
  if (axes.front() == 0) return {Law::Of::cut_rows, Law::Of::inverse_rows};
  return {Law::Of::cut_columns, Law::Of::inverse_columns};
}

using Points = std::vector<std::pair<std::uint32_t, double>>;

struct Sizes {
  std::vector<std::uint32_t> ranks;            // rising; the last is the largest
  std::vector<const std::vector<Seen>*> seen;  // of each but the largest
  Law compute_scale, bytes_scale;  // of the whole; of bytes only where one size alone explains
  bool whole_only = false;
};

class Laws {
 public:
  Laws(const Lockstep& largest, const Sizes& sizes, Pattern* pattern)
      : largest_(largest), sizes_(sizes), pattern_(pattern) {}

  std::vector<Node> nodes(const Drafts& drafts) {
    std::vector<Node> list;
    double waited = 0;  // ns of the wait before the next operation, of one rank
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      list.push_back(node_of(drafts[i], waited));
      waited = drafts[i].kind == Kind::wait ? drafts[i].item.compute.mean() : 0;
      if (drafts[i].kind == Kind::operation && i > 0 && drafts[i - 1].kind == Kind::wait) {
        share_compute(drafts[i - 1], drafts[i], &list[i - 1], &list[i]);
      }
    }
    return list;
  }

 private:
  Points points(const Draft& draft, double of_largest, double (*value)(const Seen&)) const {
    Points list;
    for (std::size_t i = 0; i < sizes_.seen.size(); ++i) {
      const Seen& seen = (*sizes_.seen[i])[draft.number];
      if (seen.seen) list.emplace_back(sizes_.ranks[i], value(seen));
    }
    list.emplace_back(sizes_.ranks.back(), of_largest);
    return list;
  }

  void note_error(const Law& law) {
    pattern_->fit_error = std::max(pattern_->fit_error, law.error);
  }

  Node node_of(const Draft& draft, double waited) {
    Node node;
    node.kind = draft.kind;
    if (draft.kind == Kind::wait) {
      node.all = draft.item.all;
      node.back = draft.item.back;
      set_relation(draft, &node);
      return node;
    }
    if (draft.kind == Kind::operation) {
      node.operation = draft.item.kind;
      node.tag = draft.item.tag;
      node.step_ratio = draft.ratio;
      set_relation(draft, &node);
      node.bytes = fit_amount(
          points(draft, draft.item.bytes.mean(), [](const Seen& seen) { return seen.bytes; }),
          shapes_of(node.relation));
      note_error(node.bytes);
      const double own = draft.item.compute.mean() + waited;
      if (own > 0) {
        node.compute =
            fit_amount(points(draft, own, [](const Seen& seen) { return seen.compute.mean(); }));
        node.compute_spread = draft.item.compute.spread();
      }
      if (sizes_.whole_only) {
        scale(&node.bytes, sizes_.bytes_scale, draft.item.bytes.mean());
        scale(&node.compute, sizes_.compute_scale, own);
      }
      return node;
    }
    if (draft.kind == Kind::loop) {
      bool exact = true;
      node.count =
          fit_count(points(draft, static_cast<double>(draft.count),
                           [](const Seen& seen) { return static_cast<double>(seen.count); }),
                    &exact);
      if (!exact) note_error(node.count);
    } else {
      bool exact = true;
      node.way = draft.way;
      node.first = step_law(
          points(draft, draft.first, [](const Seen& seen) { return double{1} * seen.first; }),
          &exact);
      node.last = step_law(
          points(draft, draft.last, [](const Seen& seen) { return double{1} * seen.last; }),
          &exact);
      if (!exact) note_error(node.last);
    }
    node.body = nodes(draft.body);
    return node;
  }

  // One size alone: a collective ends with its last rank, or its last power of two.
  static Law step_law(const Points& points, bool* exact) {
    if (points.size() == 1 && points.front().second > 1) {
      const auto [ranks, value] = points.front();
      Law law;
      law.factor = 1;
      for (const Law::Of of : {Law::Of::linear, Law::Of::logarithm}) {
        for (const double rest : {-1.0, -2.0}) {
          law.of = of;
          law.rest = rest;
          if (static_cast<double>(law.count_at(ranks)) == value) return law;
        }
      }
    }
    return fit_count(points, exact);
  }

  // Of the whole program: the value at the largest size, with its growth.
  void scale(Law* law, const Law& of_whole, double value) const {
    const double there = of_whole.at(sizes_.ranks.back());
    *law = of_whole;
    if (there <= 0) {
      *law = Law{Law::Of::constant, value, 0, 0, 0};
      return;
    }
    law->factor *= value / there;
    law->rest *= value / there;
  }

  void set_relation(const Draft& draft, Node* node) {
    if (!draft.possible.empty()) {
      node->relation = draft.possible.front();
      return;
    }
    node->relation = {};
    if (draft.kind == Kind::wait) return;
    std::shared_ptr<const std::vector<std::uint32_t>>& block = blocks_[draft.item.map];
    if (block == nullptr) {
      block =
          std::make_shared<const std::vector<std::uint32_t>>(largest_.maps[draft.item.map].peers);
    }
    node->block = block;
  }

  // The computation of an operation was fitted together with that of the wait before it.
  static void share_compute(const Draft& wait, const Draft& operation, Node* wait_node,
                            Node* node) {
    wait_node->relation = node->relation;
    wait_node->block = node->block;
    const double first = wait.item.compute.mean(), second = operation.item.compute.mean();
    if (first + second <= 0) return;
    wait_node->compute = node->compute;
    wait_node->compute_spread = wait.item.compute.spread();
    const double share = first / (first + second);
    wait_node->compute.factor *= share;
    wait_node->compute.rest *= share;
    node->compute.factor *= 1 - share;
    node->compute.rest *= 1 - share;
  }

  const Lockstep& largest_;
  const Sizes& sizes_;
  Pattern* pattern_;
  std::map<std::uint32_t, std::shared_ptr<const std::vector<std::uint32_t>>> blocks_;
};

void narrow(Drafts* list, const std::vector<Seen>& seen) {
  for (Draft& draft : *list) {
    if (draft.kind == Kind::operation && seen[draft.number].seen &&
        !seen[draft.number].possible.empty()) {
      draft.possible = seen[draft.number].possible;
    }
    narrow(&draft.body, seen);
  }
}

std::optional<std::vector<Seen>> read_size(const std::vector<RankStarts>& ranks,
                                           const Drafts& program, std::size_t drafts) {
  for (const bool as_often : {false, true}) {
    SizeReader reader(ranks, drafts, as_often);
    if (reader.read(program)) return reader.seen();
  }
  return std::nullopt;
}

// A size and what its trace is.
struct Sample {
  const Trace* trace;
  std::vector<RankStarts> starts;
  Totals totals;
};

Law whole_law(std::span<const Sample> samples, double (*value)(const Totals&)) {
  Points points;
  for (const Sample& one : samples) points.emplace_back(one.trace->ranks(), value(one.totals));
  return fit_amount(points);
}

// Rising by size. Errors: invalid.
Result<std::vector<Sample>> samples_of(std::span<const Trace> traces) {
  if (traces.empty()) return Status{Code::invalid, "no trace given"};
  std::vector<Sample> samples;
  for (const Trace& trace : traces) {
    if (trace.ranks() < 2 || trace.ranks() > kMostRanks) {
      return Status{Code::invalid, fmt::format("{}: a trace of {} ranks: expected 2 to {}",
                                               trace.name, trace.ranks(), kMostRanks)};
    }
    if (Status s = check_trace(trace); !s.ok()) return s;
    std::vector<RankStarts> starts = starts_of(trace);
    const Totals totals = totals_of(starts);
    if (totals.messages == 0) {
      return Status{Code::invalid,
                    fmt::format("{}: {} ranks exchange no messages", trace.name, trace.ranks())};
    }
    samples.push_back({&trace, std::move(starts), totals});
  }
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.trace->ranks() < b.trace->ranks(); });
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const Trace &a = *samples[i - 1].trace, &b = *samples[i].trace;
    if (a.ranks() == b.ranks()) {
      return Status{Code::invalid, fmt::format("two traces have {} ranks ({}, {}): give one of "
                                               "each size",
                                               a.ranks(), a.name, b.name)};
    }
  }
  return samples;
}

}  // namespace

Result<Pattern> find_pattern(std::span<const Trace> traces) {
  const Result<std::vector<Sample>> samples = samples_of(traces);
  if (!samples) return samples.status();
  const std::vector<Sample>& all = samples.value();
  const std::uint32_t most = all.back().trace->ranks();
  const Lockstep largest = read_lockstep(all.back().starts);
  Drafts program = Folder().fold(StepFinder(largest).find());
  std::uint32_t drafts = 0;
  number_all(&program, &drafts);

  Pattern pattern;
  pattern.irregular = static_cast<double>(largest.irregular) / all.back().totals.messages;
  std::vector<std::pair<std::uint32_t, std::vector<Seen>>> read;
  for (std::size_t i = all.size() - 1; i-- > 0;) {
    const std::uint32_t ranks = all[i].trace->ranks();
    std::optional<std::vector<Seen>> seen = read_size(all[i].starts, program, drafts);
    if (!seen) {
      pattern.notes.push_back(
          fmt::format("{} ranks do not take the same steps as {}: their trace tells only how much "
                      "is sent and computed",
                      ranks, most));
      continue;
    }
    narrow(&program, *seen);
    read.emplace_back(ranks, std::move(*seen));
  }
  std::reverse(read.begin(), read.end());
  Sizes sizes;
  for (const auto& [ranks, seen] : read) {
    sizes.ranks.push_back(ranks);
    sizes.seen.push_back(&seen);
  }
  sizes.ranks.push_back(most);
  sizes.compute_scale = whole_law(all, [](const Totals& one) { return one.compute; });
  if (read.empty() && all.size() > 1) {
    sizes.whole_only = true;
    sizes.bytes_scale = whole_law(all, [](const Totals& one) { return one.bytes / one.messages; });
  }
  choose_relations(&program);
  pattern.sizes = sizes.ranks;
  pattern.program = Laws(largest, sizes, &pattern).nodes(program);
  pattern.end_compute = whole_law(all, [](const Totals& one) { return one.end_compute; });
  if (pattern.sizes.size() == 1) {
    pattern.notes.emplace_back(
        "one size tells nothing of how messages, peers and repetitions grow");
  }
  return pattern;
}

}  // namespace turnout::sim::plan
