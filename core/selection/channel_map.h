// SPDX-License-Identifier: BSD-3-Clause
// ChannelMaps: what the policies that select have in common: which sources' channels are not theirs
// to choose, and whether a map of channels keeps the limits.
//
// Base of the selectors of `aqps` and `turnout`; lives for one selection. Refers to the limits.
// Pure. Sizes are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/selection/policy.h"

namespace turnout::selection {

class ChannelMaps {
 protected:
  using Map = std::vector<ChannelKind>;  // by position in sources_
  struct Usage {
    std::uint64_t rings = 0, rc = 0, bytes = 0;
  };

  ChannelMaps(const Limits& limits, ChannelKind default_channel)
      : limits_(limits), default_channel_(default_channel) {}

  // Not ours to choose: refused, or a kind that is not chosen from here.
  [[nodiscard]] bool fixed(const SourceView& s) const {
    return s.refused || s.stays || (s.current != default_channel_ && !over_ring(s.current));
  }
  [[nodiscard]] static bool rc_exists(const SourceView& s) {
    return s.rc_exists || s.current == ChannelKind::rc_rdma;
  }
  // RC would be, or is, its connection to our node.
  [[nodiscard]] bool over_node(const SourceView& s) const {
    return s.over_node || (nodes_ && !rc_exists(s) && s.feedback.here >= kLeastOfNode);
  }
  [[nodiscard]] std::uint64_t bytes(const SourceView& s, ChannelKind kind) const {
    if (!over_ring(kind)) return 0;
    if (kind != ChannelKind::rc_rdma || rc_exists(s)) return limits_.bytes_per_ring;
    return limits_.bytes_per_ring +
           (over_node(s) ? limits_.bytes_per_target : limits_.bytes_per_rc);
  }
  [[nodiscard]] bool fits(const Usage& u, const SourceView& s, ChannelKind kind) const {
    return !over_ring(kind) ||
           (u.rings < limits_.max_channels &&
            (kind != ChannelKind::rc_rdma || over_node(s) || u.rc < limits_.max_active_rc) &&
            u.bytes <= limits_.bytes_available &&
            bytes(s, kind) <= limits_.bytes_available - u.bytes);
  }
  void take(Usage* u, std::size_t i, ChannelKind kind) const {
    if (!over_ring(kind)) return;
    ++u->rings;
    if (kind == ChannelKind::rc_rdma && !over_node(sources_[i])) ++u->rc;
    u->bytes += bytes(sources_[i], kind);
  }
  // None: beyond a limit.
  [[nodiscard]] std::optional<Usage> usage_of(const Map& map) const {
    Usage usage;
    for (std::size_t i = 0; i < map.size(); ++i) {
      if (!fits(usage, sources_[i], map[i])) return std::nullopt;
      take(&usage, i, map[i]);
    }
    return usage;
  }

  // Source i keeps its channel if that fits.
  void keep(Map* map, Usage* usage, std::size_t i) const {
    if (!fits(*usage, sources_[i], sources_[i].current)) return;
    (*map)[i] = sources_[i].current;
    take(usage, i, (*map)[i]);
  }
  // The default transport for all sources, except those with a fixed channel. Those keep what they
  // have while the limits, which may have shrunk, leave room for it.
  [[nodiscard]] Map fixed_map(Usage* usage) const {
    Map map(sources_.size(), default_channel_);
    for (std::size_t i = 0; i < map.size(); ++i) {
      if (fixed(sources_[i])) keep(&map, usage, i);
    }
    return map;
  }
  // As far as it fits, without silent sources that are not fixed.
  [[nodiscard]] Map current_of_busy(Usage* usage) const {
    Map map = fixed_map(usage);
    for (std::size_t i = 0; i < map.size() && sources_[i].messages > 0; ++i) {
      if (!fixed(sources_[i])) keep(&map, usage, i);
    }
    return map;
  }
  [[nodiscard]] Map current() const {
    Map map;
    map.reserve(sources_.size());
    for (const SourceView& s : sources_) map.push_back(s.current);
    return map;
  }

  static constexpr std::uint32_t kLeastOfNode = 2;  // processes that share a connection

  const Limits& limits_;
  const ChannelKind default_channel_;
  std::vector<SourceView> sources_;  // busiest first
  bool nodes_ = false;               // connections to our node are made rather than queue pairs
};

// Changes that free what others need come first.
[[nodiscard]] inline bool is_downgrade(ChannelKind from, ChannelKind to) {
  return to != from && (!over_ring(to) || from == ChannelKind::rc_rdma);
}

}  // namespace turnout::selection
