// SPDX-License-Identifier: BSD-3-Clause
// SplitMix64: a small generator of good quality whose whole state is its seed (Steele, Lea, Flood,
// OOPSLA 2014). For simulations that must repeat to the bit; not for secrets. One thread.
#pragma once

#include <cstdint>

namespace turnout {

class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace turnout
