// The bytes that simulated programs send, put and get, so that who has them can tell whether they
// are the right ones. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/rank.h"

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

}  // namespace turnout::sim
