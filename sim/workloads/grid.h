// SPDX-License-Identifier: BSD-3-Clause
// A grid of ranks: how many along each dimension, and who is beside whom. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace turnout::sim {

// Ranks along each dimension; the last one varies fastest. Unused dimensions have extent 1.
using Extents = std::array<std::uint32_t, 3>;

// `ranks` cut into `dimensions` (1 to 3) factors as equal as they can be, the largest first, as
// MPI_Dims_create does.
[[nodiscard]] Extents balanced(std::uint32_t ranks, std::size_t dimensions);

// The rank beside `rank`, one step back (way -1) or on (+1); nothing beyond an end that is none.
[[nodiscard]] std::optional<std::uint32_t> neighbour(const Extents& extents, std::uint32_t rank,
                                                     std::size_t dimension, int way, bool periodic);

// Faces that all ranks together send in one exchange; a rank sends none to itself.
[[nodiscard]] std::uint64_t faces_of(const Extents& extents, bool periodic);

}  // namespace turnout::sim
