// SPDX-License-Identifier: BSD-3-Clause
// sum_of(): the total of one field of an array, such as the length of a list of buffers.
//
// Owns nothing. Any thread. The unit is the field's. No errors: a sum that overflows wraps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout::record {

template <class Piece, class Number>
[[nodiscard]] std::uint64_t sum_of(const Piece* pieces, std::size_t count,
                                   Number Piece::*field) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += pieces[i].*field;
  return sum;
}

}  // namespace turnout::record
