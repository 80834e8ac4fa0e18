// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/permutation.h"

#include <bit>
#include <utility>

#include "sim/runtime/rank.h"

namespace turnout::sim {

Permutation::Permutation(std::uint32_t n, std::uint64_t key) noexcept
    : n_(n),
      bits_(static_cast<std::uint32_t>((std::bit_width(n > 1 ? n - 1 : 1U) + 1) / 2)),
      key_(key) {}

std::uint32_t Permutation::round(std::uint32_t half, std::uint32_t number) const noexcept {
  Random mixed(key_ ^ (std::uint64_t{half} << 8 | number));
  return static_cast<std::uint32_t>(mixed.next() & ((std::uint64_t{1} << bits_) - 1));
}

std::uint32_t Permutation::walk(std::uint32_t value, bool back) const noexcept {
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

}  // namespace turnout::sim
