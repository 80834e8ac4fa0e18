// SPDX-License-Identifier: BSD-3-Clause
// Permutation: a pseudo-random permutation of 0..n-1 that takes no memory and knows its inverse.
//
// A Feistel network over the next even number of bits, walked until the value is below n. So every
// rank knows whom it sends to and who sends to it, without a table of all ranks. Pure; any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "sim/runtime/rank.h"

namespace turnout::sim {

class Permutation {
 public:
  Permutation(std::uint32_t n, std::uint64_t key) noexcept
      : n_(n),
        bits_(static_cast<std::uint32_t>((std::bit_width(n > 1 ? n - 1 : 1U) + 1) / 2)),
        key_(key) {}

  [[nodiscard]] std::uint32_t operator()(std::uint32_t value) const noexcept {
    return walk(value, /*back=*/false);
  }
  [[nodiscard]] std::uint32_t inverse(std::uint32_t value) const noexcept {
    return walk(value, /*back=*/true);
  }

 private:
  [[nodiscard]] std::uint32_t walk(std::uint32_t value, bool back) const noexcept {
    const std::uint64_t mask = (std::uint64_t{1} << bits_) - 1;
    std::uint64_t v = value;
    do {
      auto left = static_cast<std::uint32_t>(v >> bits_),
           right = static_cast<std::uint32_t>(v & mask);
      if (back) std::swap(left, right);  // the way back is the same with the halves exchanged
      for (std::uint32_t i = 0; i < kRounds; ++i) {
        left = std::exchange(right, left ^ round(right, back ? kRounds - 1 - i : i));
      }
      if (back) std::swap(left, right);
      v = std::uint64_t{left} << bits_ | right;
    } while (v >= n_);
    return static_cast<std::uint32_t>(v);
  }
  [[nodiscard]] std::uint32_t round(std::uint32_t half, std::uint32_t number) const noexcept {
    Random mixed(key_ ^ (std::uint64_t{half} << 8 | number));
    return static_cast<std::uint32_t>(mixed.next() & ((std::uint64_t{1} << bits_) - 1));
  }
  static constexpr std::uint32_t kRounds = 4;
  std::uint32_t n_;
  std::uint32_t bits_;  // of one half
  std::uint64_t key_;
};

}  // namespace turnout::sim
