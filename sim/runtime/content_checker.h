// SPDX-License-Identifier: BSD-3-Clause
// ContentChecker: fills what a simulated rank sends and checks what it receives: whole, of the
// message it says it is, in MPI's order, and that one only once.
//
// A message begins with its number among those of its source, destination and tag; its other bytes
// follow from these (content_key). One too short for a number has the one its receive must get;
// behind a wildcard that is not known. Owned by the rank; in the simulation's thread. Errors:
// SimulationError says what is wrong with which message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "sim/runtime/rank.h"

namespace turnout::sim {

// The bytes that simulated programs send, put and get, so that a receiver can verify them.
[[nodiscard]] inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  return Random(a * 0x9e3779b97f4a7c15ULL + b).next();
}

// They follow from who, to whom, what kind, and which one of it.
[[nodiscard]] inline std::uint64_t content_key(std::uint32_t from, std::uint32_t to,
                                               std::uint64_t tag, std::uint32_t number) noexcept {
  return mix(mix(mix(from, to), tag), number);
}

[[nodiscard]] inline std::byte content(std::uint64_t key, std::size_t at) noexcept {
  return static_cast<std::byte>((key >> (at % 7 * 8)) + at);
}
inline constexpr std::size_t kContentPeriod = 7 * 256;

// Of `bytes` bytes those from `from` on.
inline void fill_content(std::byte* to, std::size_t from, std::size_t bytes,
                         std::uint64_t key) noexcept {
  std::size_t at = from;
  for (; at < bytes && at < from + kContentPeriod; ++at) to[at] = content(key, at);
  for (; at < bytes; at += kContentPeriod) {
    std::memcpy(to + at, to + at - kContentPeriod, std::min(kContentPeriod, bytes - at));
  }
}

// The first of them that is another; `bytes`: none.
[[nodiscard]] inline std::size_t first_other(const std::byte* in, std::size_t from,
                                             std::size_t bytes, std::uint64_t key) noexcept {
  std::size_t at = from;
  const std::size_t first = std::min(bytes, from + kContentPeriod);
  while (at < first && in[at] == content(key, at)) ++at;
  if (at < first || first == bytes) return std::max(at, from);
  if (std::memcmp(in + first, in + from, bytes - first) == 0) return bytes;
  while (in[at] == in[at - kContentPeriod]) ++at;
  return at;
}

struct MessageContent {
  std::uint32_t number = 0;
  bool ordered = false;  // a receive that must get message `number` of its source and tag
  std::vector<std::byte> buffer;
  std::uint64_t filled = 0;  // the key of what the buffer has; 0: any
};

class ContentChecker {
 public:
  // `last_byte`: what all messages end with; below 0: any. Outlives the checker.
  ContentChecker(std::uint32_t rank, const int& last_byte) noexcept
      : rank_(rank), last_byte_(last_byte) {}

  // The next message to `peer`, into the buffer. A send that waits for room is begun again and
  // again: it is counted when it was accepted.
  void fill(std::uint32_t peer, std::uint64_t tag, MessageContent* send);
  void sent(std::uint32_t peer, std::uint64_t tag) { ++sent_[key_of(peer, tag)]; }
  // The same of a receive.
  void expect(std::uint32_t source, std::uint64_t tag, MessageContent* receive);
  void posted(std::uint32_t source, std::uint64_t tag, const MessageContent& receive) {
    if (receive.ordered) ++posted_[key_of(source, tag)];
  }
  void check(const MessageContent& receive, const Received& received);

 private:
  struct Checked {            // of one (source, tag): numbers received
    std::uint32_t below = 0;  // all of them
    std::vector<std::uint32_t> beyond;
  };
  [[nodiscard]] static std::uint64_t key_of(std::uint32_t peer, std::uint64_t tag) noexcept {
    return mix(peer, tag);
  }
  [[nodiscard]] static bool note(Checked* checked, std::uint32_t number);  // false: a second time

  std::uint32_t rank_;
  const int& last_byte_;
  std::unordered_map<std::uint64_t, std::uint32_t> sent_, posted_;
  bool wild_ = false;  // a wildcard receive was posted: what others get is not known any more
  std::unordered_map<std::uint64_t, Checked> checked_;
};

}  // namespace turnout::sim
