// SPDX-License-Identifier: BSD-3-Clause
// Eviction: chooses the connection that frees its slot for another peer.
//
// lru    the least recently used one.
// lru-m  one queue per number of times that a peer's connection was evicted before; the least
//        recently used one of the queue with the lowest number [ACTS: LRU-M].
// cost   the one with the smallest H = L + F * C. C: the time to set up the connection again, ns.
//        F: its predicted use: the peer's uses, halved for all peers after ten uses per slot
//        [TinyLFU's reset, Einziger, Friedman, Manes 2017; ten: Caffeine's FrequencySketch].
//        L: H of the latest eviction, taken at the connection's latest use, which ages connections
//        that were valuable once [GreedyDual, Young 1994; with frequency GDSF, Cherkasova 1998;
//        every connection takes one slot, so its size is 1].
//
// A use costs a few additions in the peer's record. The order is computed at an eviction by
// visiting each connection: there are at most `max_conn`, and the two control messages and the
// RESET that follow take a thousand times longer (tests/core/connection/victims_test.cpp counts).
//
// No clock, no device. Owned by the endpoint; the records are part of its peers. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/index_of.h"
#include "base/settings.h"

namespace turnout {

enum class VictimOrder : std::uint8_t { none, lru, lru_m, cost };
// Of the setting `eviction`: in the order of kEvictionNames.
[[nodiscard]] inline std::optional<VictimOrder> victim_order_named(std::string_view name) noexcept {
  const std::optional<std::size_t> i = index_of(kEvictionNames, name);
  return i ? std::optional(static_cast<VictimOrder>(*i)) : std::nullopt;
}

// What is known of one peer's use, with a connection or without.
struct ConnectionUse {
  std::uint32_t peer = 0;
  std::uint32_t torn_down = 0;       // times
  std::uint64_t last = 0;            // when it was used: that many uses of all peers were counted
  std::uint32_t count = 0;           // uses, aged as of
  std::uint32_t halvings = 0;        // so many
  double inflation = 0;              // L at its latest use
  double cost = 0;                   // C; ns
  std::uint32_t place = UINT32_MAX;  // in Victims, of the connection; else it has none
  bool carried = false;              // the connection carried something
  [[nodiscard]] bool connected() const noexcept { return place != UINT32_MAX; }
};

class Victims {
 public:
  static constexpr std::uint64_t kSampleOfPlace = 10;

  explicit Victims(VictimOrder order = VictimOrder::none, std::uint64_t places = 1) noexcept
      : order_(order), sample_(kSampleOfPlace * (places > 0 ? places : 1)) {}
  [[nodiscard]] VictimOrder order() const noexcept { return order_; }

  // The hot path: the peer was sent to or heard, over its connection or not.
  void touch(ConnectionUse& use, bool over_connection) noexcept {
    use.last = ++uses_;
    if (use.halvings != halvings_) age(use);
    if (use.count < UINT32_MAX) ++use.count;
    use.inflation = inflation_;
    use.carried |= over_connection;
    if (++counted_ >= sample_) [[unlikely]] {
      counted_ = 0;
      ++halvings_;
    }
  }

  // Its connection is there, `cost` ns to make it again. `use` stays where it is until remove().
  void add(ConnectionUse& use, double cost) {
    if (use.connected()) remove(use);
    connected_.push_back(&use);
    use.place = static_cast<std::uint32_t>(connected_.size() - 1);
    use.cost = cost;
    use.carried = false;
    use.last = uses_;
    use.inflation = inflation_;
  }
  void remove(ConnectionUse& use) noexcept {
    if (!use.connected()) return;
    connected_[use.place] = connected_.back();
    connected_[use.place]->place = use.place;
    connected_.pop_back();
    use.place = UINT32_MAX;
  }
  [[nodiscard]] const std::vector<ConnectionUse*>& connected() const noexcept { return connected_; }

  // First in the order of those with a connection that `may` go; null: none may.
  template <class May>
  [[nodiscard]] ConnectionUse* choose(May&& may) const {
    ConnectionUse* first = nullptr;
    for (ConnectionUse* const use : connected_) {
      if ((first == nullptr || goes_before(*use, *first)) && may(*use)) first = use;
    }
    return first;
  }
  // Its connection is being torn down, by our choice or the peer's.
  void tear_down(ConnectionUse& use, bool chosen) noexcept {
    ++use.torn_down;
    if (chosen) inflation_ = std::max(inflation_, value(use));
  }

 private:
  // A count halved this often is 0.
  static constexpr std::uint32_t kBits = 32;

  [[nodiscard]] std::uint32_t aged(const ConnectionUse& use) const noexcept {
    const std::uint32_t missed = halvings_ - use.halvings;
    return missed < kBits ? use.count >> missed : 0;
  }
  void age(ConnectionUse& use) const noexcept {
    use.count = aged(use);
    use.halvings = halvings_;
  }
  [[nodiscard]] double value(const ConnectionUse& use) const noexcept {
    return use.inflation + static_cast<double>(aged(use)) * use.cost;
  }
  [[nodiscard]] bool goes_before(const ConnectionUse& a, const ConnectionUse& b) const noexcept {
    if (order_ == VictimOrder::lru_m && a.torn_down != b.torn_down)
      return a.torn_down < b.torn_down;
    if (order_ == VictimOrder::cost) {
      const double of_a = value(a), of_b = value(b);
      if (of_a < of_b || of_b < of_a) return of_a < of_b;
    }
    return a.last != b.last ? a.last < b.last : a.peer < b.peer;
  }

  VictimOrder order_;
  std::uint64_t sample_;
  std::uint64_t uses_ = 0;
  std::uint64_t counted_ = 0;  // since the latest halving
  std::uint32_t halvings_ = 0;
  double inflation_ = 0;
  std::vector<ConnectionUse*> connected_;
};

}  // namespace turnout
