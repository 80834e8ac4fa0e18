// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/source_order.h"

#include <algorithm>
#include <array>

#include "core/selection/costs.h"

namespace turnout::selection {

namespace {

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
constexpr std::size_t kFew = 512;  // below, comparing is faster

std::uint32_t favour(const SourceView& source) {
  return source.current == ChannelKind::rc_rdma ? 2 : over_ring(source.current) ? 1 : 0;
}

// Messages, favour and the place in the input, in one word while they fit.
using Key = std::uint64_t;
constexpr unsigned kPlaceBits = 18, kFavourBits = 2;
constexpr std::size_t kMostPlaces = std::size_t{1} << kPlaceBits;
constexpr std::uint64_t kMostMessages = ~std::uint64_t{0} >> (kPlaceBits + kFavourBits);

// Stable, largest digit first.
void sort_by(std::vector<Key>* keys, std::vector<Key>* other, unsigned shift) {
  const auto digit = [shift](Key key) { return (key >> shift) & (kDigits - 1); };
  std::array<std::uint32_t, kDigits> begin{};
  for (const Key key : *keys) ++begin[digit(key)];
  std::uint32_t sum = 0;
  for (std::size_t d = kDigits; d-- > 0;) {
    const std::uint32_t count = begin[d];
    begin[d] = sum;
    sum += count;
  }
  for (const Key key : *keys) (*other)[begin[digit(key)]++] = key;
  keys->swap(*other);
}

}  // namespace

bool busier(const SourceView& a, const SourceView& b) {
  if (a.messages != b.messages) return a.messages > b.messages;
  if (favour(a) != favour(b)) return favour(a) > favour(b);
  return a.peer < b.peer;
}

std::vector<SourceView> busiest_first(std::span<const SourceView> sources) {
  std::vector<SourceView> sorted;
  std::uint64_t most = 0;
  bool by_peer = true;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    most = std::max(most, sources[i].messages);
    by_peer = by_peer && (i == 0 || sources[i - 1].peer < sources[i].peer);
  }
  if (sources.size() < kFew || sources.size() > kMostPlaces || most > kMostMessages || !by_peer) {
    sorted.assign(sources.begin(), sources.end());
    std::sort(sorted.begin(), sorted.end(), busier);
    return sorted;
  }
  std::vector<Key> keys, other(sources.size());
  keys.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    keys.push_back((sources[i].messages << kFavourBits | favour(sources[i])) << kPlaceBits | i);
  }
  // What is above the last digit of the largest key is 0 in all.
  const Key largest = (most << kFavourBits | 3) << kPlaceBits;
  for (unsigned shift = kPlaceBits; shift < 64 && largest >> shift > 0; shift += kDigitBits) {
    sort_by(&keys, &other, shift);
  }
  sorted.reserve(sources.size());
  for (const Key key : keys) sorted.push_back(sources[key & (kMostPlaces - 1)]);
  return sorted;
}

}  // namespace turnout::selection
