// SPDX-License-Identifier: BSD-3-Clause
// The bytes that simulated programs send, put and get, so that a receiver can verify them. Pure;
// any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "sim/runtime/rank.h"

namespace turnout::sim {

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

}  // namespace turnout::sim
