// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/fold.h"

#include <optional>
#include <unordered_map>
#include <utility>

namespace turnout::sim::plan {
namespace {

using Kind = Node::Kind;

constexpr std::uint64_t kLeastRepeats = 3;  // twice may be two neighbours that are one at this size
constexpr std::size_t kLongestStep = 6;     // items of one step of a collective
constexpr std::size_t kLongestBody = 4096;

bool same_item(const Item& a, const Item& b) {
  if (a.is_wait != b.is_wait) return false;
  if (a.is_wait) return a.all == b.all && a.back == b.back;
  return a.kind == b.kind && a.map == b.map && a.tag == b.tag && a.all_to_all == b.all_to_all &&
         a.bytes.least == b.bytes.least && a.bytes.most == b.bytes.most &&
         close(a.bytes.mean(), b.bytes.mean(), 1e-9);
}

void add_amounts(const Item& from, Item* to) {
  to->compute.add(from.compute);
  to->inside.add(from.inside);
  to->takers += from.takers;
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

void number_all(Drafts* list, std::uint32_t* next) {
  for (Draft& draft : *list) {
    draft.number = (*next)++;
    number_all(&draft.body, next);
  }
}

}  // namespace

Drafts fold(const Lockstep& lockstep) {
  Drafts program = Folder().fold(StepFinder(lockstep).find());
  std::uint32_t drafts = 0;
  number_all(&program, &drafts);
  return program;
}

std::uint32_t count_of(const Drafts& drafts) noexcept {
  std::uint32_t count = 0;
  for (const Draft& draft : drafts) count += 1 + count_of(draft.body);
  return count;
}

}  // namespace turnout::sim::plan
