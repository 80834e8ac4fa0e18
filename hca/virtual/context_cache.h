// SPDX-License-Identifier: BSD-3-Clause
// ContextCache: which queue pairs' state an adapter has at hand, in two levels, least recently used
// out (cost-model.md, Context cache).
//
// A level without a limit holds everything. Contexts are named by 64-bit numbers. One thread.
#pragma once

#include <tsl/robin_map.h>

#include <cstdint>
#include <vector>

namespace turnout::hca {

class ContextCache {
 public:
  enum class Found : std::uint8_t { first, second, memory };

  // Entries of each level; 0: no limit.
  void limit(std::int64_t first, std::int64_t second) noexcept {
    levels_[0].most = static_cast<std::size_t>(first);
    levels_[1].most = static_cast<std::size_t>(second);
  }
  // Where the context was; it is in the first level afterwards.
  Found use(std::uint64_t context) {
    if (levels_[0].most == 0) return Found::first;
    const auto [place, is_new] = places_.try_emplace(context, 0);
    if (is_new) place.value() = reserve(context);
    const std::uint32_t at = place->second;
    const Found where = is_new                    ? Found::memory
                        : entries_[at].level == 0 ? Found::first
                                                  : Found::second;
    if (!is_new && levels_[0].newest == at) return where;
    if (!is_new) take_out(at);
    put_first(at, 0);
    if (levels_[0].size > levels_[0].most) sink();
    return where;
  }
  void forget(std::uint64_t context) {
    if (const auto place = places_.find(context); place != places_.end()) drop(place->second);
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Entry {
    std::uint64_t context;
    std::uint32_t newer, older;
    std::uint8_t level;
  };
  struct Level {
    std::size_t most = 0, size = 0;
    std::uint32_t newest = kNone, oldest = kNone;
  };

  [[nodiscard]] std::uint32_t reserve(std::uint64_t context) {
    if (free_ == kNone) {
      entries_.push_back({context, kNone, kNone, 0});
      return static_cast<std::uint32_t>(entries_.size() - 1);
    }
    const std::uint32_t at = free_;
    free_ = entries_[at].older;
    entries_[at].context = context;
    return at;
  }
  void put_first(std::uint32_t at, std::uint8_t to) noexcept {
    Level& level = levels_[to];
    entries_[at] = {entries_[at].context, kNone, level.newest, to};
    (level.newest == kNone ? level.oldest : entries_[level.newest].newer) = at;
    level.newest = at;
    ++level.size;
  }
  void take_out(std::uint32_t at) noexcept {
    const Entry& entry = entries_[at];
    Level& level = levels_[entry.level];
    (entry.newer == kNone ? level.newest : entries_[entry.newer].older) = entry.older;
    (entry.older == kNone ? level.oldest : entries_[entry.older].newer) = entry.newer;
    --level.size;
  }
  void drop(std::uint32_t at) {
    take_out(at);
    places_.erase(entries_[at].context);
    entries_[at].older = free_;
    free_ = at;
  }
  // The last of the first level goes to the second, the last of that to memory.
  void sink() {
    const std::uint32_t moved = levels_[0].oldest;
    take_out(moved);
    put_first(moved, 1);
    if (levels_[1].most != 0 && levels_[1].size > levels_[1].most) drop(levels_[1].oldest);
  }

  Level levels_[2];
  std::vector<Entry> entries_;
  std::uint32_t free_ = kNone;  // the first of the free entries, which `older` chains
  tsl::robin_map<std::uint64_t, std::uint32_t> places_;
};

}  // namespace turnout::hca
