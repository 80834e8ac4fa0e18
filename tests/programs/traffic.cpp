// SPDX-License-Identifier: BSD-3-Clause
#include "tests/programs/traffic.h"

#include <algorithm>
#include <cstring>

namespace turnout::programs {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  return Random(a ^ (b * 0x9e3779b97f4a7c15u)).next();
}

// Every scale between nothing and max_size occurs, small ones most often.
std::size_t random_size(Random& random, std::size_t max_size) noexcept {
  const std::uint64_t dice = random.below(1000);
  std::uint64_t low = 0, high = 64;  // 55 %
  if (dice >= 990)
    low = std::uint64_t{256} << 10, high = std::uint64_t{1} << 20;  // 1 %
  else if (dice >= 960)
    low = std::uint64_t{32} << 10, high = std::uint64_t{256} << 10;  // 3 %
  else if (dice >= 850)
    low = 4096 - 128, high = 32 << 10;  // 11 %, about the eager limit too
  else if (dice >= 550)
    low = 64, high = 4096;  // 30 %
  return std::min<std::size_t>(low + random.below(high - low + 1), max_size);
}

}  // namespace

std::uint64_t Random::next() noexcept {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

PairStream::PairStream(std::uint64_t seed, std::uint32_t source, std::uint32_t target,
                       std::size_t max_size) noexcept
    : random_(mix(mix(seed, source + 1), target + 1)),
      source_(source),
      target_(target),
      max_size_(max_size) {}

Message PairStream::next() noexcept {
  Message m;
  m.source = source_;
  m.target = target_;
  m.sequence = sequence_++;
  m.size = random_size(random_, max_size_);
  m.kind = static_cast<Kind>(random_.below(kKinds));
  m.tag_index = static_cast<std::uint32_t>(random_.below(kTags));
  m.with_data = random_.below(2) == 0;
  return m;
}

std::vector<std::uint64_t> pair_counts(std::uint64_t seed, std::uint32_t ranks,
                                       std::uint64_t total) {
  Random random(mix(seed, 0));
  std::vector<std::uint64_t> weight(std::size_t{ranks} * ranks, 0);
  std::uint64_t sum = 0;
  for (std::uint32_t s = 0; s < ranks; ++s) {
    for (std::uint32_t t = 0; t < ranks; ++t) {
      if (s == t) continue;
      const std::uint64_t dice = random.below(10);  // of ten pairs two are busy, one is rare
      sum += weight[s * ranks + t] = dice < 2 ? 80 : dice == 2 ? 1 : 10;
    }
  }
  std::vector<std::uint64_t> count(weight.size(), 0);
  std::uint64_t given = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    if (weight[i] == 0) continue;
    count[i] = total * weight[i] / sum;
    given += count[i];
    last = i;
  }
  count[last] += total - given;
  return count;
}

Contents::Contents(std::uint64_t seed) : table_(2 * kMaxSize) {
  Random random(seed ^ 0x7461626cu);
  for (std::size_t i = 0; i + 8 <= table_.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(&table_[i], &word, 8);
  }
}

const std::byte* Contents::slice(const Message& m) const noexcept {
  const std::uint64_t pair = (std::uint64_t{m.source} << 32) | m.target;
  return table_.data() + mix(pair, m.sequence) % (table_.size() - kMaxSize);
}

void Contents::fill(const Message& m, std::span<std::byte> buffer) const noexcept {
  std::memcpy(buffer.data(), slice(m), buffer.size());
  if (buffer.size() < kHeader) return;
  const Header header{m.source, m.target, m.sequence, m.size};
  std::memcpy(buffer.data(), &header, kHeader);
}

std::size_t Contents::compare(const Message& m, std::span<const std::byte> buffer) const noexcept {
  std::size_t start = 0;
  if (buffer.size() >= kHeader) {
    const Header header{m.source, m.target, m.sequence, m.size};
    if (std::memcmp(buffer.data(), &header, kHeader) != 0) return 0;
    start = kHeader;
  }
  const std::byte* expected = slice(m);
  if (std::memcmp(buffer.data() + start, expected + start, buffer.size() - start) == 0) {
    return buffer.size();
  }
  const auto [at, other] = std::mismatch(buffer.begin() + static_cast<std::ptrdiff_t>(start),
                                         buffer.end(), expected + start);
  return static_cast<std::size_t>(at - buffer.begin());
}

}  // namespace turnout::programs
