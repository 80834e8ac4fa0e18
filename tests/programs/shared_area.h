// SPDX-License-Identifier: BSD-3-Clause
// SharedArea: what the processes of one test program share to start, to bound their windows and to
// be watched. Lives in an anonymous shared mapping made before the fork; nothing of the library
// under test is in it, so that the program does not depend on what it tests.
//
// Every field is written by one process (named) and read by all. Times are CLOCK_MONOTONIC ns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tests/programs/fi_node.h"

namespace turnout::programs {

inline constexpr std::uint32_t kMaxRanks = 64;

struct RankArea {  // written by its rank
  AddressBytes address{};
  std::atomic<std::uint64_t> sent{0}, received{0}, posted{0};
  std::atomic<std::uint64_t> tries_again{0};   // operations answered FI_EAGAIN
  std::atomic<std::int64_t> peer_error_at{0};  // first error that named the dead rank
  std::atomic<bool> released{false};           // all operations to the dead rank have ended
  // A receive for each of the first `designated[s]` messages of source s has been posted.
  std::array<std::atomic<std::uint64_t>, kMaxRanks> designated{};
  std::array<char, 1024> text{};  // why it failed, or what the error entry said
};

struct SharedArea {
  std::atomic<std::uint32_t> addressed{0};  // ranks that wrote their address
  std::atomic<std::uint32_t> done{0};       // ranks that have nothing left to do but to help
  std::atomic<bool> stop{false};            // somebody failed: end
  std::atomic<std::int32_t> victim{-1};     // launcher: the rank that was killed
  std::atomic<std::int64_t> killed_at{0};   // launcher
  std::array<RankArea, kMaxRanks> rank{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// CLOCK_MONOTONIC.
[[nodiscard]] std::int64_t now_ns() noexcept;

}  // namespace turnout::programs
