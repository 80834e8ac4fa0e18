// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/grid.h"

#include <utility>

namespace turnout::sim {
namespace {

// Largest divisor that is no more than the `dimensions`-th root.
std::uint32_t near_root(std::uint32_t n, std::size_t dimensions) {
  std::uint32_t best = 1;
  for (std::uint32_t d = 1;; ++d) {
    std::uint64_t power = 1;
    for (std::size_t i = 0; i < dimensions && power <= n; ++i) power *= d;
    if (power > n) return best;
    if (n % d == 0) best = d;
  }
}

}  // namespace

Extents balanced(std::uint32_t ranks, std::size_t dimensions) {
  Extents extents{1, 1, 1};
  std::uint32_t rest = ranks;
  for (std::size_t d = 0; d + 1 < dimensions; ++d) {
    extents[d] = near_root(rest, dimensions - d);
    rest /= extents[d];
  }
  extents[dimensions - 1] = rest;
  // Largest first, by insertion: gcc 12 sees std::sort's other half as out of bounds of three.
  for (std::size_t i = 1; i < dimensions; ++i) {
    for (std::size_t k = i; k > 0 && extents[k - 1] < extents[k]; --k) {
      std::swap(extents[k - 1], extents[k]);
    }
  }
  return extents;
}

std::optional<std::uint32_t> neighbour(const Extents& extents, std::uint32_t rank,
                                       std::size_t dimension, int way, bool periodic) {
  std::uint32_t stride = 1;
  for (std::size_t d = extents.size() - 1; d > dimension; --d) stride *= extents[d];
  const std::uint32_t extent = extents[dimension];
  const std::uint32_t place = rank / stride % extent;
  if (!periodic && (way < 0 ? place == 0 : place == extent - 1)) return std::nullopt;
  const std::uint32_t next = (place + extent + (way < 0 ? extent - 1 : 1)) % extent;
  return rank - place * stride + next * stride;
}

std::uint64_t faces_of(const Extents& extents, bool periodic) {
  std::uint64_t ranks = 1, faces = 0;
  for (const std::uint32_t extent : extents) ranks *= extent;
  for (const std::uint32_t extent : extents) {
    if (extent > 1) faces += 2 * (ranks / extent) * (periodic ? extent : extent - 1);
  }
  return faces;
}

}  // namespace turnout::sim
