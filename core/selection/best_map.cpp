// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/best_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/selection/policy.h"

namespace turnout::selection {

namespace {

// Where a source can be, and the three limits as it meets them. A unit of flow is a ring: it goes
// from `none` through a source to a channel, from there through `queue_pairs` (both RC kinds) and
// `rings` back to `none`. In the residual network each edge can be followed backwards while it
// carries something.
enum Node : std::uint8_t { none, dc, old_rc, new_rc, queue_pairs, rings, kNodes };

struct Edge {
  double gain = kNever;
  std::size_t group = 0;  // between `none`, `dc`, `old_rc` and `new_rc`: whose source moves
};
using Edges = std::array<std::array<Edge, kNodes>, kNodes>;

class Flow {
 public:
  Flow(std::span<const SourceGroup> groups, const RingValue& value, const RingRoom& room)
      : groups_(groups), value_(value), room_(room), shares_(groups.size()) {
    double largest = 1;
    for (const SourceGroup& group : groups) {
      if (!group.counts.empty()) {
        largest = std::max(largest, group.counts.front() * std::max(std::abs(value.saving_rc),
                                                                    std::abs(value.saving_dc)));
      }
    }
    rounding_ = 1e-12 * largest;
  }

  BestShares solve() {
    most_rings_ = room_.rings_beside(0);
    while (in(rings) < most_rings_ && follow_best(none, rings)) {
    }
    BestShares best{shares_, gain_};
    for (std::uint64_t f = 1; f <= room_.rc && room_.holds(f); ++f) {
      most_rings_ = room_.rings_beside(f);
      while (in(rings) > most_rings_) follow(path(rings, none));
      most_new_ = f;
      if (!follow_best(queue_pairs, new_rc))
        break;  // a limit that does not bind: no f above either
      if (gain_ > best.gain + rounding_) best = {shares_, gain_};
    }
    return best;
  }

 private:
  struct Path {
    double gain = kNever;
    std::array<std::uint8_t, kNodes> nodes{};
    std::size_t length = 0;
    Edges edges;
  };

  [[nodiscard]] Node rc_node(std::size_t g) const {
    return groups_[g].new_queue_pair ? new_rc : old_rc;
  }
  [[nodiscard]] double value(std::size_t g, bool rc, std::size_t i) const {
    const SourceGroup& group = groups_[g];
    return rc ? group.counts[i] * value_.saving_rc - value_.poll - group.setup_rc
              : group.counts[i] * value_.saving_dc - value_.poll - group.setup_dc;
  }
  [[nodiscard]] std::uint64_t in(Node node) const { return in_[node]; }

  static void offer(Edges* edges, Node from, Node to, double gain, std::size_t group) {
    Edge& edge = (*edges)[from][to];
    if (gain > edge.gain) edge = {gain, group};
  }

  // The best moves within one group. Its first sources have the channel that saves more (count
  // `first`), the next ones the other, so a source that comes to the better channel from `none`
  // does so by pushing the border of each on by one.
  void offer_moves(Edges* edges, std::size_t g) const {
    const GroupShare& share = shares_[g];
    const Node rc = rc_node(g);
    const std::size_t all = share.rc + share.dc, size = groups_[g].counts.size();
    if (!groups_[g].dc_allowed) {
      if (all < size) offer(edges, none, rc, value(g, true, all), g);
      if (all > 0) offer(edges, rc, none, -value(g, true, all - 1), g);
      return;
    }
    const bool rc_first = value_.rc_first();
    const Node front = rc_first ? rc : dc, back = rc_first ? dc : rc;
    const std::size_t first = rc_first ? share.rc : share.dc;
    const auto step = [&](std::size_t i) { return value(g, rc_first, i) - value(g, !rc_first, i); };
    if (all < size) {
      const double join = value(g, !rc_first, all);
      offer(edges, none, back, join, g);
      offer(edges, none, front, join + step(first), g);
    }
    if (first < all) {
      offer(edges, back, none, -value(g, !rc_first, all - 1), g);
      offer(edges, back, front, step(first), g);
    }
    if (first > 0) {
      offer(edges, front, back, -step(first - 1), g);
      offer(edges, front, none, -value(g, !rc_first, all - 1) - step(first - 1), g);
    }
  }

  [[nodiscard]] Edges edges() const {
    Edges edges;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].counts.empty()) offer_moves(&edges, g);
    }
    const auto open = [&](Node from, Node to, bool slack) {
      if (slack) edges[from][to] = {0, 0};
    };
    open(dc, rings, true);
    open(rings, dc, in(dc) > 0);
    open(old_rc, queue_pairs, true);
    open(queue_pairs, old_rc, in(old_rc) > 0);
    open(new_rc, queue_pairs, in(new_rc) < most_new_);
    open(queue_pairs, new_rc, in(new_rc) > 0);
    open(queue_pairs, rings, in(old_rc) + in(new_rc) < room_.rc);
    open(rings, queue_pairs, in(old_rc) + in(new_rc) > 0);
    open(rings, none, in(rings) < most_rings_);
    open(none, rings, in(rings) > 0);
    return edges;
  }

  // The path of greatest gain. There are no cycles that gain, so it visits no node twice.
  Path path(Node from, Node to) {
    Path path;
    path.edges = edges();
    // Where a new unit of flow begins, undoing another one's way back is no step of its path.
    if (from == none && to == rings) path.edges[none][rings] = {};
    std::array<double, kNodes> gain;
    std::array<std::uint8_t, kNodes> before{};
    gain.fill(kNever);
    gain[from] = 0;
    for (int round = 1; round < kNodes; ++round) {
      bool better = false;
      for (std::uint8_t a = 0; a < kNodes; ++a) {
        if (gain[a] == kNever || a == to) continue;
        for (std::uint8_t b = 0; b < kNodes; ++b) {
          if (b == from || !(gain[a] + path.edges[a][b].gain > gain[b] + rounding_)) continue;
          gain[b] = gain[a] + path.edges[a][b].gain;
          before[b] = a;
          better = true;
        }
      }
      if (!better) break;
    }
    if (gain[to] == kNever) return path;
    for (std::uint8_t node = to; path.length < kNodes; node = before[node]) {
      path.nodes[path.length++] = node;
      if (node == from) {
        path.gain = gain[to];
        break;
      }
    }
    return path;
  }

  void follow(const Path& path) {
    if (path.gain == kNever) {  // cannot be: some source can always leave
      most_rings_ = in(rings);
      return;
    }
    gain_ += path.gain;
    for (std::size_t i = path.length - 1; i > 0; --i) {
      const auto from = static_cast<Node>(path.nodes[i]), to = static_cast<Node>(path.nodes[i - 1]);
      if (from >= queue_pairs || to >= queue_pairs) continue;
      GroupShare& share = shares_[path.edges[from][to].group];
      move(&share, from, -1);
      move(&share, to, +1);
    }
  }
  void move(GroupShare* share, Node node, int by) {
    if (node == none) {
      in_[rings] -= static_cast<std::uint64_t>(by);
      return;
    }
    in_[node] += static_cast<std::uint64_t>(by);
    (node == dc ? share->dc : share->rc) += static_cast<std::uint32_t>(by);
  }
  bool follow_best(Node from, Node to) {
    const Path best = path(from, to);
    if (!(best.gain > rounding_)) return false;
    follow(best);
    return true;
  }

  std::span<const SourceGroup> groups_;
  const RingValue& value_;
  const RingRoom& room_;
  std::vector<GroupShare> shares_;
  std::array<std::uint64_t, kNodes> in_{};  // sources in each place; `rings`: with any ring
  std::uint64_t most_rings_ = 0;
  std::uint64_t most_new_ = 0;
  double gain_ = 0;
  double rounding_ = 0;
};

}  // namespace

BestShares best_shares(std::span<const SourceGroup> groups, const RingValue& value,
                       const RingRoom& room) {
  return Flow(groups, value, room).solve();
}

}  // namespace turnout::selection
