// SPDX-License-Identifier: BSD-3-Clause
// BestMap: which sources get an RC-RDMA ring, which a DC-RDMA ring and which none, so that the sum
// of what they gain is largest under three limits at once: rings, RC queue pairs in use, and bytes,
// where a ring has one size and a queue pair that must be made another. Exact.
//
// Why it is fast: sources that get queue pairs are part of those that get rings, so for a given
// number f of new queue pairs the bytes limit is one on rings, all limits are nested, and the
// problem is a flow of greatest value. Sources that differ only in their counts form a group, where
// the busiest have the better channel: the state is two numbers a group, the network has six nodes,
// and raising f or the rings by one changes the flow along one best path. O(rings + h) paths of a
// fixed cost once counts are sorted.
//
// Pure. Any thread. Times are nanoseconds, sizes bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace turnout::selection {

// Sources alike but for their counts. Set-up is 0 where the ring, or the queue pair, exists.
struct SourceGroup {
  std::span<const double> counts;  // messages, busiest first
  double setup_dc = 0;
  double setup_rc = 0;
  bool dc_allowed = false;
  bool new_queue_pair = false;  // an RC takes bytes_per_rc
};

struct RingRoom {
  std::uint64_t rings = 0;
  std::uint64_t rc = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_per_ring = 0;
  std::uint64_t bytes_per_rc = 0;
  // As many rings as fit beside this many new queue pairs, which must fit themselves.
  [[nodiscard]] std::uint64_t rings_beside(std::uint64_t new_queue_pairs) const {
    if (bytes_per_ring == 0) return rings;
    return std::min(rings, (bytes - new_queue_pairs * bytes_per_rc) / bytes_per_ring);
  }
  [[nodiscard]] bool holds(std::uint64_t new_queue_pairs) const {
    return bytes_per_rc == 0 || new_queue_pairs <= bytes / bytes_per_rc;
  }
};

// What one message saves on each channel (credits taken off), what one ring costs in the window.
struct RingValue {
  double saving_dc = 0;
  double saving_rc = 0;
  double poll = 0;
  // The busiest sources of a group get the channel that saves more, the next ones the other.
  [[nodiscard]] bool rc_first() const { return saving_rc >= saving_dc; }
};

struct GroupShare {
  std::uint32_t rc = 0;
  std::uint32_t dc = 0;
};

struct BestShares {
  std::vector<GroupShare> shares;  // of each group
  double gain = 0;
};

[[nodiscard]] BestShares best_shares(std::span<const SourceGroup> groups, const RingValue& value,
                                     const RingRoom& room);

}  // namespace turnout::selection
