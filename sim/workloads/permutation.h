// SPDX-License-Identifier: BSD-3-Clause
// Permutation: a pseudo-random permutation of 0..n-1 that takes no memory and knows its inverse.
//
// A Feistel network over the next even number of bits, walked until the value is below n. So every
// rank knows whom it sends to and who sends to it, without a table of all ranks. Pure; any thread.
#pragma once

#include <cstdint>

namespace turnout::sim {

class Permutation {
 public:
  Permutation(std::uint32_t n, std::uint64_t key) noexcept;

  [[nodiscard]] std::uint32_t operator()(std::uint32_t value) const noexcept {
    return walk(value, /*back=*/false);
  }
  [[nodiscard]] std::uint32_t inverse(std::uint32_t value) const noexcept {
    return walk(value, /*back=*/true);
  }

 private:
  [[nodiscard]] std::uint32_t walk(std::uint32_t value, bool back) const noexcept;
  [[nodiscard]] std::uint32_t round(std::uint32_t half, std::uint32_t number) const noexcept;
  static constexpr std::uint32_t kRounds = 4;
  std::uint32_t n_;
  std::uint32_t bits_;  // of one half
  std::uint64_t key_;
};

}  // namespace turnout::sim
