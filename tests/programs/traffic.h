// SPDX-License-Identifier: BSD-3-Clause
// Traffic: what every rank of a random test sends to every other, a function of the seed alone.
//
// Both ends of a pair generate the same stream, so the receiver knows what must come, to the byte,
// without being told. Messages belong to one of four classes, told apart by tag bits, and each
// class is received by one kind of receive, so that no receive can take a message that another
// needs:
//   exact      directed, tag exact         k-th receive of (source, tag) gets its k-th message
//   any_source wildcard source, tag exact  per source in order
//   any_any    wildcard source and tag     per source in order, across tags
//   any_tag    directed, wildcard tag      k-th receive of the source gets its k-th message
// Plain values, no owner; one thread per object. Sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace turnout::programs {

enum class Kind : std::uint8_t { exact, any_source, any_any, any_tag };
inline constexpr std::uint32_t kKinds = 4;
inline constexpr std::uint32_t kTags = 4;               // per class
inline constexpr std::uint32_t kKeys = kKinds * kTags;  // what receives are told apart by
inline constexpr std::uint64_t kTagBits = kTags - 1;    // of a tag; the class lies above
inline constexpr std::size_t kMaxSize = std::size_t{1} << 20;

// A small generator of good quality (Steele, Lea, Flood: splitmix64, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept;
  // Uniform enough in [0, n) for n far below 2^64.
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }

 private:
  std::uint64_t state_;
};

struct Message {
  std::uint32_t source = 0, target = 0;
  std::uint64_t sequence = 0;  // within the pair
  std::size_t size = 0;
  Kind kind = Kind::exact;
  std::uint32_t tag_index = 0;
  bool with_data = false;  // carries remote CQ data
  [[nodiscard]] std::uint64_t tag() const noexcept {
    return static_cast<std::uint64_t>(kind) * kTags + tag_index;
  }
  // Receives of one key match these messages of a source in their order.
  [[nodiscard]] std::uint32_t key() const noexcept {
    const bool any_tag = kind == Kind::any_any || kind == Kind::any_tag;
    return static_cast<std::uint32_t>(kind) * kTags + (any_tag ? 0 : tag_index);
  }
};

// The stream of messages of one pair, in the order of their sending.
class PairStream {
 public:
  PairStream(std::uint64_t seed, std::uint32_t source, std::uint32_t target,
             std::size_t max_size) noexcept;
  [[nodiscard]] Message next() noexcept;

 private:
  Random random_;
  std::uint32_t source_, target_;
  std::uint64_t sequence_ = 0;
  std::size_t max_size_;
};

// How many messages each pair exchanges: total in all, uneven, so that busy and rare pairs exist.
[[nodiscard]] std::vector<std::uint64_t> pair_counts(std::uint64_t seed, std::uint32_t ranks,
                                                     std::uint64_t total);

// Contents: a slice of a table of random bytes, behind a header that names the message when there
// is room for one. Differs for any two messages of a run with overwhelming probability.
class Contents {
 public:
  explicit Contents(std::uint64_t seed);
  void fill(const Message& message, std::span<std::byte> buffer) const noexcept;
  // Index of the first byte that is not as filled, or buffer.size().
  [[nodiscard]] std::size_t compare(const Message& message,
                                    std::span<const std::byte> buffer) const noexcept;
  struct Header {
    std::uint32_t source = 0, target = 0;
    std::uint64_t sequence = 0;
    std::uint64_t size = 0;
  };
  static constexpr std::size_t kHeader = sizeof(Header);

 private:
  [[nodiscard]] const std::byte* slice(const Message& message) const noexcept;
  std::vector<std::byte> table_;
};

}  // namespace turnout::programs
