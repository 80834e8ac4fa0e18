// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/law.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "sim/plan/relation.h"
#include "sim/workloads/grid.h"

namespace turnout::sim::plan {
namespace {

using Of = Law::Of;
constexpr double kExact = 0.004;  // relative: sizes are cut to whole numbers
constexpr double kMostBytes = 1e15;

double pieces(std::uint32_t points, std::uint32_t among) {
  return std::ceil(static_cast<double>(points) / std::max(among, 1U));
}

double shape(Of of, double n, std::uint32_t points = 0) {
  const auto ranks = static_cast<std::uint32_t>(std::clamp(n, 1.0, 4e9));
  const auto extents = [&](std::size_t dimensions) { return balanced(ranks, dimensions); };
  switch (of) {
    case Of::constant:
      return 1;
    case Of::inverse:
      return 1 / n;
    case Of::linear:
      return n;
    case Of::root:
      return std::sqrt(n);
    case Of::inverse_root:
      return 1 / std::sqrt(n);
    case Of::logarithm:
      return std::floor(std::log2(n));
    case Of::logarithm_up:
      return std::ceil(std::log2(n));
    case Of::two_thirds:
      return std::pow(n, -2.0 / 3);
    case Of::square:
      return n * n;
    case Of::inverse_square:
      return 1 / (n * n);
    case Of::columns:
      return extents(2)[0];
    case Of::rows:
      return extents(2)[1];
    case Of::inverse_columns:
      return 1.0 / extents(2)[0];
    case Of::inverse_rows:
      return 1.0 / extents(2)[1];
    case Of::face_0:
      return 1.0 / extents(3)[1] / extents(3)[2];
    case Of::face_1:
      return 1.0 / extents(3)[0] / extents(3)[2];
    case Of::face_2:
      return 1.0 / extents(3)[0] / extents(3)[1];
    case Of::edge:
      return edge_of(ranks);
    case Of::inverse_edge:
      return 1.0 / std::max(edge_of(ranks), 1U);
    case Of::cut_columns:
      return pieces(points, extents(2)[0]);
    case Of::cut_rows:
      return pieces(points, extents(2)[1]);
    case Of::cut_edge:
      return pieces(points, edge_of(ranks));
    case Of::cut_cells:
      return pieces(points, edge_of(ranks)) * pieces(points, edge_of(ranks));
    case Of::cut_faces:
      return shape(Of::cut_cells, n, points) * edge_of(ranks);
    case Of::cut_ranks:
      return pieces(points, ranks);
    case Of::inverse_cells:
      return shape(Of::inverse_edge, n) * shape(Of::inverse_edge, n);
    case Of::log_columns:
      return std::floor(std::log2(extents(2)[0]));
    case Of::log_rows:
      return std::floor(std::log2(extents(2)[1]));
  }
  return 1;
}

constexpr std::array kAmounts = {
    Of::constant,     Of::inverse,       Of::inverse_root,   Of::inverse_columns,
    Of::inverse_rows, Of::face_0,        Of::face_1,         Of::face_2,
    Of::inverse_edge, Of::inverse_cells, Of::inverse_square, Of::two_thirds,
    Of::linear,       Of::root,          Of::logarithm_up,   Of::columns,
    Of::rows,         Of::edge,          Of::square};
constexpr std::array kCounts = {Of::constant,    Of::logarithm, Of::logarithm_up, Of::linear,
                                Of::log_columns, Of::log_rows,  Of::edge,         Of::columns,
                                Of::rows,        Of::root,      Of::square,       Of::inverse};

// What errors are relative to: a value that is next to nothing among others counts as one of them.
double least_of(SizeValues values) {
  double most = 0;
  for (const auto& [n, y] : values) most = std::max(most, std::abs(y));
  return std::max(most / 100, 1e-9);
}

double worst(const Law& law, SizeValues values, double least) {
  double most = 0;
  for (const auto& [n, y] : values) {
    most = std::max(most, std::abs(law.at(n) - y) / std::max(std::abs(y), least));
  }
  return most;
}

// Least squares of relative errors.
std::optional<Law> fit(Of of, bool with_rest, SizeValues values) {
  const double least = least_of(values);
  double ww = 0, wg = 0, gg = 0, wy = 0, gy = 0;
  for (const auto& [n, y] : values) {
    const double w = 1 / std::max(std::abs(y), least), g = shape(of, n) * w;
    ww += w * w;
    wg += w * g;
    gg += g * g;
    wy += w * y * w;
    gy += g * y * w;
  }
  Law law;
  law.of = of;
  if (!with_rest) {
    if (gg <= 0) return std::nullopt;
    law.factor = gy / gg;
  } else {
    const double determinant = gg * ww - wg * wg;
    if (std::abs(determinant) < 1e-12 * gg * ww) return std::nullopt;
    law.factor = (gy * ww - wy * wg) / determinant;
    law.rest = (gg * wy - wg * gy) / determinant;
    if (law.factor < 0) return std::nullopt;
  }
  law.error = worst(law, values, least);
  return law;
}

// Each value predicted from the others; with fewer than two others as bad as it can be.
double left_out(Of of, bool with_rest, SizeValues values) {
  if (values.size() < (with_rest ? 3U : 2U)) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t out = 0; out < values.size(); ++out) {
    std::vector<std::pair<std::uint32_t, double>> others;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i != out) others.push_back(values[i]);
    }
    const std::optional<Law> law = fit(of, with_rest, others);
    if (!law) return std::numeric_limits<double>::infinity();
    most = std::max(most, worst(*law, values.subspan(out, 1), least_of(values)));
  }
  return most;
}

// The first that is nearly exact, else the one that predicts best.
std::optional<Law> best_of(std::span<const Of> shapes, SizeValues values) {
  std::optional<Law> best;
  for (const bool with_rest : {false, true}) {
    if (with_rest && values.size() < 3) break;
    for (const Of of : shapes) {
      if ((with_rest && of == Of::constant) || of >= Of::cut_columns) continue;
      std::optional<Law> law = fit(of, with_rest, values);
      if (!law) continue;
      law->left_out = left_out(of, with_rest, values);
      if (law->error <= kExact) return law;
      // A second number must earn its place.
      const double penalty = with_rest ? 2 : 1;
      if (!best || law->left_out * penalty < best->left_out) best = law;
    }
  }
  return best;
}

constexpr double kSame = 1e-9;  // relative: of laws of points that are cut

// With which so many points, cut, give all values. Pieces of a few points say little.
std::optional<double> factor_of_cut(Of of, std::uint32_t points, SizeValues values) {
  constexpr double kFewestPieces = 4;
  const double each = values.front().second / shape(of, values.front().first, points);
  const bool agree = std::all_of(values.begin(), values.end(), [&](const auto& value) {
    const double piece = shape(of, value.first, points);
    return piece >= kFewestPieces && std::abs(each * piece - value.second) <= kSame * value.second;
  });
  return agree ? std::optional(each) : std::nullopt;
}

// Points along an edge that were cut among ranks, rounded up. Three sizes that agree to the byte
// are no chance.
std::optional<Law> fit_cut(SizeValues values, std::span<const Of> shapes) {
  constexpr std::uint32_t kMostPoints = 8192;
  if (values.size() < 3) return std::nullopt;
  for (const Of of : shapes) {
    if (of < Of::cut_columns) continue;
    std::uint32_t least = 0, most = 0;
    double factor = 0;
    for (std::uint32_t points = 2; points <= kMostPoints; ++points) {
      const std::optional<double> each = factor_of_cut(of, points, values);
      if (!each) {
        if (least != 0) break;
        continue;
      }
      if (least == 0) least = points;
      most = points;
      factor = *each;
    }
    if (least == 0) continue;
    Law law;
    law.of = of;
    law.points = (least + most) / 2;
    law.factor = factor;
    if (worst(law, values, least_of(values)) <= kSame) return law;
  }
  return std::nullopt;
}

}  // namespace

double Law::at(double n) const {
  const double more = other_factor == 0 ? 0 : other_factor * shape(other, n);
  return factor * shape(of, n, points) + more + rest;
}

void Law::multiply(double by) noexcept {
  factor *= by;
  rest *= by;
  other_factor *= by;
}

std::uint64_t Law::count_at(std::uint32_t n) const {
  return static_cast<std::uint64_t>(std::llround(std::clamp(at(n), 0.0, kMostBytes)));
}

std::string Law::text() const {
  constexpr std::array<std::string_view, 28> kNames = {"1",
                                                       "1/n",
                                                       "n",
                                                       "sqrt n",
                                                       "1/sqrt n",
                                                       "log2 n",
                                                       "n^(-2/3)",
                                                       "n^2",
                                                       "1/n^2",
                                                       "columns",
                                                       "rows",
                                                       "1/columns",
                                                       "1/rows",
                                                       "1/(y z)",
                                                       "1/(x z)",
                                                       "1/(x y)",
                                                       "edge",
                                                       "1/edge",
                                                       "1/edge^2",
                                                       "log2 columns",
                                                       "log2 rows",
                                                       "log2 n",
                                                       "/columns",
                                                       "/rows",
                                                       "/edge",
                                                       "/edge, squared",
                                                       "/edge, squared, times edge",
                                                       "/n"};
  const std::string_view name = kNames[static_cast<std::size_t>(of)];
  if (points > 0) return fmt::format("{:.4g} times {}{}, rounded up", factor, points, name);
  if (of == Of::constant) return fmt::format("{:.6g}", factor + rest);
  std::string text = fmt::format("{:.4g} {}", factor, name);
  if (rest != 0) text += fmt::format(" {} {:.4g}", rest < 0 ? '-' : '+', std::abs(rest));
  return text;
}

Law fit_amount(SizeValues values, std::span<const Law::Of> first) {
  if (values.size() == 1) {
    Law law;
    law.factor = values.front().second;
    return law;
  }
  constexpr double kNearlyRight = 0.08;
  // No growth needs no explanation.
  if (const std::optional<Law> none = best_of(std::array{Of::constant}, values);
      none && none->error <= kExact) {
    return *none;
  }
  // In proportion to a cut without a remainder.
  for (const Of of : first) {
    if (of >= Of::cut_columns) continue;
    if (const std::optional<Law> law = fit(of, false, values); law && law->error < 1e-9)
      return *law;
  }
  if (const std::optional<Law> cut = fit_cut(values, first)) return *cut;
  if (const std::optional<Law> best = best_of(first, values); best && best->error <= kNearlyRight) {
    return *best;
  }
  return best_of(kAmounts, values).value_or(Law{Of::constant, values.back().second, 0, 1, 1});
}

std::optional<Law> as_cut(const Law& law, std::uint32_t points,
                          std::span<const std::uint32_t> sizes) {
  constexpr std::array kAlong = {
      std::pair{Of::inverse_columns, Of::cut_columns}, std::pair{Of::inverse_rows, Of::cut_rows},
      std::pair{Of::inverse_edge, Of::cut_edge}, std::pair{Of::inverse_cells, Of::cut_cells},
      std::pair{Of::inverse, Of::cut_ranks}};
  const auto* const along = std::find_if(kAlong.begin(), kAlong.end(),
                                         [&](const auto& pair) { return pair.first == law.of; });
  if (along == kAlong.end() || law.rest != 0 || law.other_factor != 0 || sizes.empty())
    return std::nullopt;
  std::vector<std::pair<std::uint32_t, double>> values;
  for (const std::uint32_t n : sizes) values.emplace_back(n, law.at(n));
  const std::optional<double> factor = factor_of_cut(along->second, points, values);
  if (!factor) return std::nullopt;
  Law cut;
  cut.of = along->second;
  cut.points = points;
  cut.factor = *factor;
  cut.left_out = law.left_out;
  return cut;
}

Law fit_measured(SizeValues values) {
  constexpr std::array kShapes = {Of::constant, Of::inverse, Of::logarithm_up, Of::linear};
  // A second shape must earn its place.
  constexpr double kSecond = 1.5, kRight = 0.01;
  const double least = least_of(values);
  Law best{Of::constant, values.back().second, 0};
  double best_error = std::numeric_limits<double>::infinity();
  const auto try_law = [&](const Law& law, double penalty) {
    if (law.factor < 0 || law.other_factor < 0) return;
    double squares = 0;
    for (const auto& [n, y] : values) {
      const double off = (law.at(n) - y) / std::max(std::abs(y), least);
      squares += off * off;
    }
    const double error = std::max(std::sqrt(squares / static_cast<double>(values.size())), kRight);
    if (error * penalty >= best_error) return;
    best = law;
    best.error = worst(law, values, least);
    best_error = error * penalty;
  };
  for (const Of of : kShapes) {
    if (const std::optional<Law> one = fit(of, false, values)) try_law(*one, 1);
  }
  for (std::size_t i = 0; i < kShapes.size() && values.size() > 1; ++i) {
    for (std::size_t j = i + 1; j < kShapes.size(); ++j) {
      // Least squares of relative errors.
      double gg = 0, gh = 0, hh = 0, gy = 0, hy = 0;
      for (const auto& [n, y] : values) {
        const double w = 1 / std::max(std::abs(y), least);
        const double g = shape(kShapes[i], n) * w, h = shape(kShapes[j], n) * w;
        gg += g * g;
        gh += g * h;
        hh += h * h;
        gy += g * y * w;
        hy += h * y * w;
      }
      const double determinant = gg * hh - gh * gh;
      if (std::abs(determinant) < 1e-12 * gg * hh) continue;
      Law law;
      law.of = kShapes[i];
      law.factor = (gy * hh - hy * gh) / determinant;
      law.other = kShapes[j];
      law.other_factor = (gg * hy - gh * gy) / determinant;
      try_law(law, kSecond);
    }
  }
  return best;
}

Law fit_count(SizeValues values, bool* exact) {
  const auto is_right = [&](const Law& law) {
    return std::all_of(values.begin(), values.end(), [&](const auto& value) {
      return static_cast<double>(law.count_at(value.first)) == value.second;
    });
  };
  for (const Of of : kCounts) {
    for (const int rest : {0, -1, 1, -2, 2}) {
      for (const double factor : {1.0, 2.0, 0.5}) {
        Law law;
        law.of = of;
        if (of == Of::constant) {
          law.factor = values.back().second;
        } else {
          law.factor = factor;
          law.rest = rest;
        }
        if (is_right(law)) {
          *exact = true;
          return law;
        }
      }
    }
  }
  Law law = fit_amount(values);
  *exact = law.error <= kExact;
  return law;
}

}  // namespace turnout::sim::plan
