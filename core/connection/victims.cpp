// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/victims.h"

#include <algorithm>

#include "base/index_of.h"
#include "base/settings.h"

namespace turnout {
namespace {
// A count halved this often is 0.
constexpr std::uint32_t kBits = 32;
}  // namespace

std::optional<VictimOrder> victim_order_named(std::string_view name) noexcept {
  const std::optional<std::size_t> i = index_of(kEvictionNames, name);
  return i ? std::optional(static_cast<VictimOrder>(*i)) : std::nullopt;
}

std::uint32_t Victims::aged(const ConnectionUse& use) const noexcept {
  const std::uint32_t missed = halvings_ - use.halvings;
  return missed < kBits ? use.count >> missed : 0;
}

void Victims::age(ConnectionUse& use) const noexcept {
  use.count = aged(use);
  use.halvings = halvings_;
}

void Victims::add(ConnectionUse& use, double cost) {
  if (use.connected()) remove(use);
  connected_.push_back(&use);
  use.place = static_cast<std::uint32_t>(connected_.size() - 1);
  use.cost = cost;
  use.carried = false;
  use.last = uses_;
  use.inflation = inflation_;
}

void Victims::remove(ConnectionUse& use) noexcept {
  if (!use.connected()) return;
  connected_[use.place] = connected_.back();
  connected_[use.place]->place = use.place;
  connected_.pop_back();
  use.place = UINT32_MAX;
}

double Victims::value(const ConnectionUse& use) const noexcept {
  return use.inflation + static_cast<double>(aged(use)) * use.cost;
}

bool Victims::goes_before(const ConnectionUse& a, const ConnectionUse& b) const noexcept {
  if (order_ == VictimOrder::lru_m && a.torn_down != b.torn_down) return a.torn_down < b.torn_down;
  if (order_ == VictimOrder::cost) {
    const double of_a = value(a), of_b = value(b);
    if (of_a < of_b || of_b < of_a) return of_a < of_b;
  }
  return a.last != b.last ? a.last < b.last : a.peer < b.peer;
}

void Victims::tear_down(ConnectionUse& use, bool chosen) noexcept {
  ++use.torn_down;
  if (chosen) inflation_ = std::max(inflation_, value(use));
}

}  // namespace turnout
