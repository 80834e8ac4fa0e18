// SPDX-License-Identifier: BSD-3-Clause
// Law: how an amount follows from the number of ranks, found from its values at a few numbers.
//
// Pure values, any thread. y = a g(n) + b with one g of a list; b only where three sizes or more
// leave something to check it with. Measured times have two such shapes. Of all g that fit, the
// first one, from simple to less so, that is nearly exact; else the one that predicts each size
// best from the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace turnout::sim::plan {

struct Law {
  // Of a grid of two or three dimensions: ranks along each axis, the largest first.
  enum class Of : std::uint8_t {
    constant,
    inverse,
    linear,
    root,
    inverse_root,
    logarithm,
    two_thirds,  // n^(-2/3)
    square,
    inverse_square,
    columns,
    rows,  // of the grid of two dimensions
    inverse_columns,
    inverse_rows,
    face_0,
    face_1,
    face_2,  // 1 / product of the two other extents of the grid of three
    edge,
    inverse_edge,
    inverse_cells,  // of the largest square within n
    log_columns,
    log_rows,
    logarithm_up,
    // `points` cut into as many pieces, rounded up.
    cut_columns,
    cut_rows,
    cut_edge,
    cut_cells,  // the square of cut_edge
    cut_faces,  // that times edge
    cut_ranks,
  };
  Of of = Of::constant;
  double factor = 0, rest = 0;
  std::uint32_t points = 0;  // of cut_...
  double error = 0;          // largest, relative, of the values that it was made from
  double left_out = 0;       // the same of each value predicted from the others
  Of other = Of::constant;   // of measured times
  double other_factor = 0;

  [[nodiscard]] double at(double n) const;
  void multiply(double by) noexcept;
  [[nodiscard]] std::uint64_t count_at(std::uint32_t n) const;  // rounded, not below 0
  [[nodiscard]] std::string text() const;
};

using SizeValues = std::span<const std::pair<std::uint32_t, double>>;  // by number of ranks

// Bytes and computation. At least one value. `first`: what is tried before all others, and taken
// if it is nearly right.
[[nodiscard]] Law fit_amount(SizeValues values, std::span<const Law::Of> first = {});
// The law of an edge of so many points that is cut along the same axis, if at these sizes it gives
// the same amounts as this one, which divides without a remainder. None: it does not.
[[nodiscard]] std::optional<Law> as_cut(const Law& law, std::uint32_t points,
                                        std::span<const std::uint32_t> sizes);
// Measured times: the sum of two of what is divided among the ranks, what each rank does, what it
// does in each step of a tree and what it does for each other rank.
[[nodiscard]] Law fit_measured(SizeValues values);
// Repetitions: whole numbers, which the first law that gives all of them explains. `exact` says
// whether one did; else as fit_amount().
[[nodiscard]] Law fit_count(SizeValues values, bool* exact);

}  // namespace turnout::sim::plan
