// SPDX-License-Identifier: BSD-3-Clause
// ContextCache: which queue pairs' state an adapter has at hand, in two levels, least recently used
// out (cost-model.md, Context cache).
//
// A level without a limit holds everything. Contexts are named by 64-bit numbers. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

namespace turnout::hca {

class ContextCache {
 public:
  enum class Found : std::uint8_t { first, second, memory };

  // Entries of each level; 0: no limit.
  void limit(std::int64_t first, std::int64_t second) noexcept {
    limits_[0] = static_cast<std::size_t>(first);
    limits_[1] = static_cast<std::size_t>(second);
  }
  // Where the context was; it is in the first level afterwards.
  Found use(std::uint64_t context) {
    if (limits_[0] == 0) return Found::first;
    const auto found = places_.find(context);
    Found where = Found::memory;
    if (found != places_.end()) {
      where = found->second.level == 0 ? Found::first : Found::second;
      levels_[found->second.level].erase(found->second.at);
    }
    levels_[0].push_front(context);
    places_[context] = {0, levels_[0].begin()};
    if (levels_[0].size() > limits_[0]) sink();
    return where;
  }
  void forget(std::uint64_t context) {
    const auto found = places_.find(context);
    if (found == places_.end()) return;
    levels_[found->second.level].erase(found->second.at);
    places_.erase(found);
  }

 private:
  struct Place {
    std::uint8_t level;
    std::list<std::uint64_t>::iterator at;
  };
  // The last of the first level goes to the second, the last of that to memory.
  void sink() {
    const std::uint64_t moved = levels_[0].back();
    levels_[0].pop_back();
    levels_[1].push_front(moved);
    places_[moved] = {1, levels_[1].begin()};
    if (limits_[1] != 0 && levels_[1].size() > limits_[1]) {
      places_.erase(levels_[1].back());
      levels_[1].pop_back();
    }
  }
  std::size_t limits_[2] = {0, 0};
  std::list<std::uint64_t> levels_[2];
  std::unordered_map<std::uint64_t, Place> places_;
};

}  // namespace turnout::hca
