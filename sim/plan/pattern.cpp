// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "sim/plan/fold.h"
#include "sim/plan/lockstep.h"
#include "sim/plan/size_reader.h"

namespace turnout::sim::plan {
namespace {

using Kind = Node::Kind;

constexpr std::uint32_t kMostRanks = 1024;  // of a trace: all relations are tried with all of them

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
  std::vector<double> computed;    // of each, ns of all ranks, but what is behind everything
  Law compute_scale, bytes_scale;  // of the whole; of bytes only where one size alone explains
  bool whole_only = false;
};

// Computation is measured: it has no exact law, and what a rank that has no neighbour on one side
// computes stands before another operation than elsewhere. So what is computed in one pass through
// a loop has one law, is spread over the loop as at the largest size, and is computed by all.
class Laws {
 public:
  Laws(const Lockstep& largest, const Sizes& sizes, Pattern* pattern)
      : largest_(largest), sizes_(sizes), pattern_(pattern) {}

  std::vector<Node> program(const Drafts& drafts) {
    std::vector<double> computed = sizes_.computed;
    for (std::size_t i = 0; i < sizes_.seen.size(); ++i) {
      for (const Seen& seen : *sizes_.seen[i]) computed[i] -= seen.compute.sum + seen.inside.sum;
    }
    std::vector<Node> list = nodes(drafts);
    share_out(drafts, std::vector<double>(sizes_.ranks.size(), 1), std::move(computed), &list);
    return list;
  }

 private:
  std::vector<Node> nodes(const Drafts& drafts) {
    std::vector<Node> list;
    double waited = 0;  // ns of the wait before the next operation, of one rank
    for (const Draft& draft : drafts) {
      list.push_back(node_of(draft, waited));
      waited = draft.kind == Kind::wait ? draft.item.compute.mean() : 0;
    }
    return list;
  }

  // One pass through `drafts`: what their operations without an exact law compute, by size; added
  // to `computed`. Those of the largest are in `shares`, by draft.
  double add_measured(const Drafts& drafts, const std::vector<Node>& list,
                      std::vector<double>* computed) const {
    double largest = 0;
    const bool uneven = is_uneven(list);
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      if (drafts[i].kind == Kind::steps) {
        largest += add_measured(drafts[i].body, list[i].body, computed);
      }
      if (drafts[i].kind != Kind::operation || !is_measured(list[i], uneven)) continue;
      for (std::size_t size = 0; size < sizes_.seen.size(); ++size) {
        (*computed)[size] += (*sizes_.seen[size])[drafts[i].number].compute.sum;
      }
      largest += sum_before(drafts, i);
    }
    return largest;
  }
  // ns of all ranks at the largest size, before an operation.
  static double sum_before(const Drafts& drafts, std::size_t i) {
    const bool waits = i > 0 && drafts[i - 1].kind == Kind::wait;
    return drafts[i].item.compute.sum + (waits ? drafts[i - 1].item.compute.sum : 0);
  }
  // Of those who take part in an operation some computed before another one: what each computes is
  // known of all of them together only, even if the mean has an exact law.
  static bool is_uneven(const std::vector<Node>& list) {
    constexpr double kAlike = 0.1;  // noise is less, one rank in a hundred that has none is more
    return std::any_of(list.begin(), list.end(), [](const Node& node) {
      return node.kind == Kind::operation && node.compute_spread > kAlike;
    });
  }
  // `uneven`: is_uneven() of its list.
  [[nodiscard]] bool is_measured(const Node& node, bool uneven) const {
    // Two numbers that three values give nearly may be chance.
    constexpr double kSure = 1e-4, kNearlyExact = 0.004;
    if (sizes_.whole_only) return false;
    if (node.in_tree) return true;  // each rank computes before its first step only
    if (sizes_.ranks.size() == 1) return false;
    if (uneven) return true;
    return node.compute.error > (node.compute.rest == 0 ? kNearlyExact : kSure);
  }

  // `passes`: through the list, by size. `computed`: what is computed there beside its operations.
  void share_out(const Drafts& drafts, const std::vector<double>& passes,
                 std::vector<double> computed, std::vector<Node>* list) {
    const double largest = add_measured(drafts, *list, &computed);
    computed.back() = largest;
    Points points;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      if (passes[i] <= 0) continue;
      points.emplace_back(sizes_.ranks[i],
                          std::max(computed[i], 0.0) / passes[i] / sizes_.ranks[i]);
    }
    const Law law = largest > 0 ? fit_measured(points) : Law{};
    const bool uneven = is_uneven(*list);
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      Node& node = (*list)[i];
      if (drafts[i].kind == Kind::loop) {
        std::vector<double> inner = passes;
        for (std::size_t size = 0; size < sizes_.seen.size(); ++size) {
          inner[size] *= static_cast<double>((*sizes_.seen[size])[drafts[i].number].count);
        }
        inner.back() *= static_cast<double>(drafts[i].count);
        share_out(drafts[i].body, inner, std::vector<double>(passes.size()), &node.body);
      } else if (drafts[i].kind == Kind::steps) {
        std::vector<double> unused(passes.size());
        const double share = add_measured(drafts[i].body, node.body, &unused);
        if (share > 0) {
          set_share(law, share / largest, &node);
          const bool body_is_uneven = is_uneven(node.body);
          for (std::size_t q = 0; q < node.body.size(); ++q) {
            if (!is_measured(node.body[q], body_is_uneven)) continue;
            node.compute_spread = std::max(node.compute_spread, node.body[q].compute_spread);
            node.body[q].compute = {};
          }
        }
        split_waits(drafts[i].body, &node.body);
      } else if (drafts[i].kind == Kind::operation && largest > 0 && is_measured(node, uneven)) {
        set_share(law, sum_before(drafts, i) / largest, &node);
      }
    }
    split_waits(drafts, list);
  }
  static void set_share(const Law& law, double share, Node* node) {
    node->compute = law;
    node->compute.multiply(share);
    node->all_compute = true;
  }
  static void split_waits(const Drafts& drafts, std::vector<Node>* list) {
    for (std::size_t i = 1; i < drafts.size(); ++i) {
      if (drafts[i].kind == Kind::operation && drafts[i - 1].kind == Kind::wait) {
        share_compute(drafts[i - 1], drafts[i], &(*list)[i - 1], &(*list)[i]);
      }
    }
  }

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
      if (draft.item.all_to_all.exchange != Exchange::none) {
        set_all_to_all(draft, &node);
      } else if (draft.item.inside.count > 0) {
        node.in_tree = true;
        Points inside;
        for (std::size_t i = 0; i < sizes_.seen.size(); ++i) {
          const Seen& seen = (*sizes_.seen[i])[draft.number];
          if (seen.inside.count > 0) inside.emplace_back(sizes_.ranks[i], seen.inside.mean());
        }
        inside.emplace_back(sizes_.ranks.back(), draft.item.inside.mean());
        if (draft.item.inside.sum > 0) node.inside = fit_measured(inside);
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

  // What is computed between the messages follows from the sizes that have the same algorithm.
  void set_all_to_all(const Draft& draft, Node* node) const {
    node->all_to_all = draft.item.all_to_all;
    const std::uint32_t most = sizes_.ranks.back();
    node->usual = draft.item.all_to_all.exchange == usual_exchange(most, draft.item.bytes.mean());
    Points inside;
    for (std::size_t i = 0; i < sizes_.seen.size(); ++i) {
      const Seen& seen = (*sizes_.seen[i])[draft.number];
      if (!seen.seen) continue;
      const Exchange there = seen.all_to_all.exchange;
      node->usual = node->usual && there == usual_exchange(sizes_.ranks[i], seen.bytes);
      if (there == node->all_to_all.exchange) {
        inside.emplace_back(sizes_.ranks[i], seen.inside.mean());
      }
    }
    inside.emplace_back(most, draft.item.inside.mean());
    if (draft.item.inside.mean() > 0) node->inside = fit_measured(inside);
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
    law->multiply(value / there);
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
    wait_node->all_compute = node->all_compute;
    wait_node->compute_spread = wait.item.compute.spread();
    const double share = first / (first + second);
    wait_node->compute.multiply(share);
    node->compute.multiply(1 - share);
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

// A size and what its trace is.
struct Sample {
  const Trace* trace;
  std::vector<RankStarts> starts;
  Totals totals;
};

Points of_whole(std::span<const Sample> samples, double (*value)(const Totals&)) {
  Points points;
  for (const Sample& one : samples) points.emplace_back(one.trace->ranks(), value(one.totals));
  return points;
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

// `found` is called with each node, which it may change if the program may be.
template <class Nodes, class Found>
void for_each_node(Nodes& program, Found&& found) {
  for (auto& node : program) {
    found(node);
    for_each_node(node.body, found);
  }
}

}  // namespace

AllToAll all_to_all_at(const Pattern& pattern, const Node& node, std::uint32_t n) {
  AllToAll what = node.all_to_all;
  if (pattern.as_recorded) return what;
  if (node.usual) what.exchange = usual_exchange(n, std::max(node.bytes.at(n), 0.0));
  // A recording of more ranks shows whether the library waits between.
  const bool shown =
      pattern.sizes.back() > kAtOnce && node.all_to_all.exchange == Exchange::scattered;
  if (what.exchange == Exchange::scattered && !shown) what.at_once = kAtOnce;
  return what;
}

bool goes_to_all_at_once(const Pattern& pattern, const Node& steps) {
  // Recordings with more partners at once show that nothing holds them back.
  if (steps.kind != Kind::steps || pattern.sizes.back() > kAtOnce) return false;
  const bool waits = std::any_of(steps.body.begin(), steps.body.end(),
                                 [](const Node& inner) { return inner.kind == Kind::wait; });
  const auto goes_to_all = [&](TraceEvent::Kind kind) {
    return std::any_of(steps.body.begin(), steps.body.end(), [&](const Node& inner) {
      return inner.kind == Kind::operation && inner.operation == kind &&
             (inner.relation.kind == Relation::Kind::shift ||
              inner.relation.kind == Relation::Kind::shift_back ||
              inner.relation.kind == Relation::Kind::exchange);
    });
  };
  // Receives alone are not waited for before anything was sent.
  return !waits && goes_to_all(TraceEvent::Kind::send) && goes_to_all(TraceEvent::Kind::receive);
}

std::vector<std::string> assumptions_at(const Pattern& pattern, std::uint32_t n) {
  std::vector<std::string> texts;
  const auto add = [&](std::string text) {
    if (std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(std::move(text));
  };
  const std::string held_back = fmt::format(
      "exchanges with all of {} ranks: it is assumed that they wait after each {} partners, as "
      "MPICH does (MPIR_CVAR_ALLTOALL_THROTTLE); a recording of more than {} ranks would show it",
      n, kAtOnce, kAtOnce);
  for_each_node(pattern.program, [&](const Node& node) {
    if (goes_to_all_at_once(pattern, node) && node.last.at(n) - node.first.at(n) >= kAtOnce) {
      add(held_back);
    }
    const Exchange recorded = node.all_to_all.exchange;
    if (recorded == Exchange::none) return;
    const AllToAll there = all_to_all_at(pattern, node, n);
    if (there.exchange != recorded) {
      const bool bruck = there.exchange == Exchange::bruck || recorded == Exchange::bruck;
      add(fmt::format(
          "all-to-all exchanges of {:.0f} bytes a partner at {} ranks: {} is assumed, as MPICH "
          "takes it {} {:.0f} bytes ({}); the recording of {} ranks has {}",
          std::max(node.bytes.at(n), 0.0), n, name_of(there.exchange),
          there.exchange == Exchange::pairwise ? "above" : "up to",
          bruck ? kMostOfBruck : kMostOfScattered,
          bruck ? "MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE" : "MPIR_CVAR_ALLTOALL_MEDIUM_MSG_SIZE",
          pattern.sizes.back(), name_of(recorded)));
    } else if (there.at_once != node.all_to_all.at_once && n > kAtOnce) {
      add(held_back);
    }
  });
  return texts;
}

Result<Pattern> find_pattern(std::span<const Trace> traces) {
  const Result<std::vector<Sample>> samples = samples_of(traces);
  if (!samples) return samples.status();
  const std::vector<Sample>& all = samples.value();
  const std::uint32_t most = all.back().trace->ranks();
  const Lockstep largest = read_lockstep(all.back().starts);
  Drafts program = fold(largest);

  Pattern pattern;
  pattern.irregular = static_cast<double>(largest.irregular) / all.back().totals.messages;
  std::vector<std::pair<std::uint32_t, std::vector<Seen>>> read;
  for (std::size_t i = all.size() - 1; i-- > 0;) {
    const std::uint32_t ranks = all[i].trace->ranks();
    std::optional<ReadSize> size = read_size(all[i].starts, program, most);
    if (!size) {
      pattern.notes.push_back(
          fmt::format("{} ranks do not take the same steps as {}: their trace tells only how much "
                      "is sent and computed",
                      ranks, most));
      continue;
    }
    if (size->left_out > 0) {
      pattern.notes.push_back(
          fmt::format("{:.2g} % of the operations of {} ranks are none that {} ranks have: they "
                      "tell nothing of how messages and repetitions grow",
                      100 * size->left_out, ranks, most));
    }
    narrow(&program, size->seen);
    read.emplace_back(ranks, std::move(size->seen));
  }
  std::reverse(read.begin(), read.end());
  Sizes sizes;
  for (const auto& [ranks, seen] : read) {
    sizes.ranks.push_back(ranks);
    sizes.seen.push_back(&seen);
  }
  sizes.ranks.push_back(most);
  sizes.compute_scale = fit_measured(of_whole(all, [](const Totals& one) { return one.compute; }));
  if (read.empty() && all.size() > 1) {
    sizes.whole_only = true;
    sizes.bytes_scale =
        fit_amount(of_whole(all, [](const Totals& one) { return one.bytes / one.messages; }));
  }
  for (const Sample& one : all) {
    if (std::find(sizes.ranks.begin(), sizes.ranks.end(), one.trace->ranks()) == sizes.ranks.end())
      continue;
    sizes.computed.push_back((one.totals.compute - one.totals.end_compute) * one.trace->ranks());
  }
  choose_relations(&program);
  pattern.sizes = sizes.ranks;
  pattern.program = Laws(largest, sizes, &pattern).program(program);
  std::set<std::uint32_t> cuts;
  for_each_node(pattern.program, [&](Node& node) {
    if (node.bytes.points != 0) cuts.insert(node.bytes.points);
  });
  // A domain is cut along all its axes. Where the recorded sizes divide one without a remainder,
  // only another one tells.
  for_each_node(pattern.program, [&](Node& node) {
    for (const std::uint32_t points : cuts) {
      if (const std::optional<Law> cut = as_cut(node.bytes, points, pattern.sizes))
        node.bytes = *cut;
    }
  });
  pattern.end_compute =
      fit_measured(of_whole(all, [](const Totals& one) { return one.end_compute; }));
  if (pattern.sizes.size() == 1) {
    pattern.notes.emplace_back(
        "one size tells nothing of how messages, peers and repetitions grow");
  }
  return pattern;
}

}  // namespace turnout::sim::plan
