// SPDX-License-Identifier: BSD-3-Clause
// What the processes of hca_kill share, and the messages that they send each other.
//
// SharedArea lies in an anonymous shared mapping made before the first fork; nothing of the adapter
// under test is in it. Every field is written by one process (named) and read by all. A rank lives
// several times: its incarnations count from 1. Times are CLOCK_MONOTONIC nanoseconds.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace turnout::hca::kill_test {

inline constexpr std::uint32_t kMaxRanks = 16;
inline constexpr std::uint32_t kMaxMessageBytes = 4096;
inline constexpr std::uint32_t kSharedReceives = 32;  // of each process's SRQ
inline constexpr std::uint8_t kTimeout = 10;          // 4.096 us * 2^10
inline constexpr std::uint8_t kRetries = 3;

enum class Phase : std::uint32_t { load, stop, leave };

// Of one end of a connection, written by the rank that has it. A ticket names the two incarnations,
// the writer's first.
struct End {
  std::atomic<std::uint32_t> number{0};  // of the queue pair; written before `offered`
  std::atomic<std::uint64_t> offered{0}, ready{0};
  std::atomic<std::uint64_t> taken{0};  // messages received and checked
  std::atomic<std::uint64_t> sent{0};   // told when the load has ended
  std::atomic<std::uint64_t> dc_taken{0}, dc_sent{0};
  std::atomic<std::uint64_t> moved{0};  // as taken, but over all connections of the rank
  // The peer's incarnation up to which its death is known here, and when the error completion that
  // told it was polled; 0: there was no connection yet.
  std::atomic<std::int64_t> told_at{0};
  std::atomic<std::uint32_t> told{0};  // written after told_at
};
constexpr std::uint64_t ticket(std::uint32_t mine, std::uint32_t peers) {
  return std::uint64_t{mine} << 32 | peers;
}

struct RankArea {
  std::atomic<std::uint32_t> killed{0};  // parent, before it kills: the last incarnation killed
  // The rank's, for peers; all written before `open`, the incarnation that they are of.
  std::atomic<std::uint32_t> open{0};
  std::atomic<std::uint32_t> key{0}, dct{0}, ud{0};
  std::atomic<std::uint64_t> address{0};
  std::atomic<std::uint32_t> quiet{0};  // the incarnation that has nothing under way any more
  std::atomic<std::uint64_t> checked{0}, errors{0};  // over all incarnations
  std::array<End, kMaxRanks> end{};
  std::array<char, 512> text{};  // why it failed
};
struct SharedArea {
  std::atomic<Phase> phase{Phase::load};
  std::array<RankArea, kMaxRanks> rank{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

[[nodiscard]] inline std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// splitmix64.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

enum class Kind : std::uint32_t { rc, dc, ud };

// In front of every message; the rest is a pattern that follows from it.
struct MessageHead {
  std::uint32_t from, to, incarnation;  // incarnation: of `from`
  Kind kind;
  std::uint64_t sequence;
  std::uint32_t length, unused;
};
inline constexpr std::uint32_t kLeastMessageBytes = sizeof(MessageHead);
static_assert(kLeastMessageBytes == 32);

[[nodiscard]] inline std::uint64_t pattern(const MessageHead& head, std::uint32_t word) noexcept {
  const std::uint64_t who = std::uint64_t{head.from} << 48 | std::uint64_t{head.to} << 40 |
                            std::uint64_t(head.kind) << 32 | head.incarnation;
  return mix(mix(who) + head.sequence * 1024 + word);
}
inline void write_message(std::uint8_t* to, const MessageHead& head) noexcept {
  std::memcpy(to, &head, sizeof head);
  for (std::uint32_t at = sizeof head; at < head.length; at += 8) {
    const std::uint64_t word = pattern(head, at / 8);
    std::memcpy(to + at, &word, 8);
  }
}
// Is what follows the head as it must be?
[[nodiscard]] inline bool is_whole(const std::uint8_t* data, const MessageHead& head) noexcept {
  for (std::uint32_t at = sizeof head; at < head.length; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, 8);
    if (word != pattern(head, at / 8)) return false;
  }
  return true;
}

// What every process holds for the others to read.
inline constexpr std::uint32_t kConstantBytes = 64U << 10;
[[nodiscard]] inline std::uint64_t constant(std::uint32_t rank, std::uint32_t incarnation,
                                            std::uint32_t word) noexcept {
  return mix((std::uint64_t{rank} << 56 | std::uint64_t{incarnation} << 24) + word);
}

}  // namespace turnout::hca::kill_test
