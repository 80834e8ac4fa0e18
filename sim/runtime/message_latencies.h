// SPDX-License-Identifier: BSD-3-Clause
// MessageLatencies: the time from the start of each send to the end of its receive. Messages of one
// source, destination and tag end in the order in which they began (MPI's order).
//
// One for all ranks of a simulation; in its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hca/virtual/profile.h"
#include "sim/runtime/content.h"

namespace turnout::sim {

class MessageLatencies {
 public:
  void begin(std::uint32_t source, std::uint32_t destination, std::uint64_t tag, Picoseconds now) {
    started_[stream(source, destination, tag)].push_back(now);
  }
  void end(std::uint32_t source, std::uint32_t destination, std::uint64_t tag, Picoseconds now) {
    const auto found = started_.find(stream(source, destination, tag));
    if (found == started_.end()) return;
    latencies_.push_back(now - found->second.front());
    found->second.pop_front();
    if (found->second.empty()) started_.erase(found);
  }
  [[nodiscard]] std::vector<Picoseconds> take_sorted() {
    std::sort(latencies_.begin(), latencies_.end());
    return std::exchange(latencies_, {});
  }

 private:
  [[nodiscard]] static std::uint64_t stream(std::uint32_t source, std::uint32_t destination,
                                            std::uint64_t tag) noexcept {
    return content_key(source, destination, tag, 0);
  }
  std::unordered_map<std::uint64_t, std::list<Picoseconds>> started_;  // that were not received
  std::vector<Picoseconds> latencies_;
};

}  // namespace turnout::sim
