#include "core/selection/source_order.h"

#include <algorithm>
#include <array>

#include "core/selection/costs.h"

namespace turnout::selection {

namespace {

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
constexpr std::size_t kFew = 512;  // below, comparing is faster

unsigned favour(const SourceView& source) {
  return source.current == ChannelKind::rc_rdma ? 2 : has_ring(source.current) ? 1 : 0;
}

bool before(const SourceView& a, const SourceView& b) {
  if (a.messages != b.messages) return a.messages > b.messages;
  if (favour(a) != favour(b)) return favour(a) > favour(b);
  return a.peer < b.peer;
}

struct Key {
  std::uint64_t messages;
  std::uint32_t at;
};

// Stable, largest digit first.
template <class Digit>
void sort_by(std::vector<Key>* keys, std::vector<Key>* other, Digit digit) {
  std::array<std::uint32_t, kDigits> begin{};
  for (const Key& key : *keys) ++begin[digit(key)];
  std::uint32_t sum = 0;
  for (std::size_t d = kDigits; d-- > 0;) {
    const std::uint32_t count = begin[d];
    begin[d] = sum;
    sum += count;
  }
  for (const Key& key : *keys) (*other)[begin[digit(key)]++] = key;
  keys->swap(*other);
}

}  // namespace

std::vector<SourceView> busiest_first(std::span<const SourceView> sources) {
  std::vector<SourceView> sorted(sources.begin(), sources.end());
  if (sorted.size() < kFew) {
    std::sort(sorted.begin(), sorted.end(), before);
    return sorted;
  }
  const auto by_peer = [](const SourceView& a, const SourceView& b) { return a.peer < b.peer; };
  if (!std::is_sorted(sorted.begin(), sorted.end(), by_peer)) {
    std::sort(sorted.begin(), sorted.end(), by_peer);
  }
  std::vector<Key> keys, other(sorted.size());
  keys.reserve(sorted.size());
  std::uint64_t most = 0;
  for (std::uint32_t i = 0; i < sorted.size(); ++i) {
    keys.push_back({sorted[i].messages, i});
    most = std::max(most, sorted[i].messages);
  }
  sort_by(&keys, &other, [&](const Key& key) { return favour(sorted[key.at]); });
  for (unsigned shift = 0; shift < 64 && most >> shift > 0; shift += kDigitBits) {
    sort_by(&keys, &other,
            [shift](const Key& key) { return (key.messages >> shift) & (kDigits - 1); });
  }
  std::vector<SourceView> ordered;
  ordered.reserve(sorted.size());
  for (const Key& key : keys) ordered.push_back(sorted[key.at]);
  return ordered;
}

}  // namespace turnout::selection
