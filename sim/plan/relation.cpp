// SPDX-License-Identifier: BSD-3-Clause
#include "sim/plan/relation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "sim/workloads/grid.h"

namespace turnout::sim::plan {
namespace {

// Shifts and exchanges by a distance that does not depend on n.
constexpr std::int32_t kNear = 16;

std::uint32_t shifted(std::uint32_t rank, std::uint32_t n, std::int64_t by) noexcept {
  const std::int64_t to = ((rank + by) % n + n) % n;
  return static_cast<std::uint32_t>(to);
}

std::uint32_t below(std::uint64_t peer, std::uint32_t n) noexcept {
  return peer < n ? static_cast<std::uint32_t>(peer) : kNoPeer;
}

std::uint32_t on_grid(const Relation& r, std::uint32_t rank, std::uint32_t n,
                      std::int32_t index) noexcept {
  Extents extents;
  if (r.square) {
    const std::uint32_t edge = edge_of(n);
    extents = {edge, edge, 1};
  } else {
    extents = balanced(n, r.dimensions);
  }
  if (rank >= extents[0] * extents[1] * extents[2]) return kNoPeer;
  std::uint32_t at = rank;
  for (std::size_t d = 0; d < r.dimensions; ++d) {
    const int way = index % 3 - 1;
    index /= 3;
    if (way == 0) continue;
    if (extents[d] == 1) return kNoPeer;
    const std::optional<std::uint32_t> next = neighbour(extents, at, d, way, r.periodic);
    if (!next) return kNoPeer;
    at = *next;
  }
  return at;
}

std::uint32_t transposed(std::uint32_t rank, std::uint32_t n) noexcept {
  const std::uint32_t rows = edge_of(n), pairs = n / (rows * rows);
  if (rows * rows * pairs != n || pairs > 2) {
    // Twice a square: the square of pairs.
    const std::uint32_t half = edge_of(n / 2);
    if (half * half * 2 != n) return kNoPeer;
    const std::uint32_t cell = rank / 2;
    return 2 * (cell % half * half + cell / half) + rank % 2;
  }
  const std::uint32_t cell = rank / pairs;
  return pairs * (cell % rows * rows + cell / rows) + rank % pairs;
}

std::uint32_t reach(const Relation& r, std::uint32_t rank, std::uint32_t n,
                    std::int32_t index) noexcept {
  using Kind = Relation::Kind;
  const auto i = static_cast<std::uint32_t>(std::max(index, 0));
  const std::uint32_t low = rank & (~rank + 1);  // lowest bit
  const std::uint64_t bit = std::uint64_t{1} << std::min<std::uint32_t>(i, 32);
  switch (r.kind) {
    case Kind::grid:
      return on_grid(r, rank, n, index);
    case Kind::shift:
      return shifted(rank, n, index);
    case Kind::shift_back:
      return shifted(rank, n, -std::int64_t{index});
    case Kind::shift_bit:
      return shifted(rank, n, static_cast<std::int64_t>(bit));
    case Kind::shift_bit_back:
      return shifted(rank, n, -static_cast<std::int64_t>(bit));
    case Kind::shift_part:
      return n % bit == 0 ? shifted(rank, n, static_cast<std::int64_t>(n / bit)) : kNoPeer;
    case Kind::shift_part_back:
      return n % bit == 0 ? shifted(rank, n, -static_cast<std::int64_t>(n / bit)) : kNoPeer;
    case Kind::exchange:
      return below(rank ^ i, n);
    case Kind::exchange_bit:
      return below(rank ^ bit, n);
    case Kind::exchange_top:
      return n % (2 * bit) == 0 ? below(rank ^ (n / (2 * bit)), n) : kNoPeer;
    case Kind::transpose:
      return transposed(rank, n);
    case Kind::tree_parent:
      return rank == 0 ? kNoPeer : rank - low;
    case Kind::tree_child:
      return rank % (2 * bit) == 0 ? below(rank + bit, n) : kNoPeer;
    case Kind::tree_rise:
      return low == bit ? rank - low : kNoPeer;
    case Kind::fan_parent:
      return rank == 0 ? kNoPeer : rank - std::bit_floor(rank);
    case Kind::fan_child:
      return rank < bit ? below(rank + bit, n) : kNoPeer;
    case Kind::fan_rise:
      return rank != 0 && std::bit_floor(rank) == bit ? rank - std::bit_floor(rank) : kNoPeer;
    case Kind::heap_parent:
      return rank == 0 ? kNoPeer : (rank - 1) / 2;
    case Kind::heap_child:
      return below(std::uint64_t{2} * rank + 1 + i, n);
    case Kind::to_rank:
      return rank == i ? kNoPeer : below(i, n);
    case Kind::root_to:
      return rank == 0 ? below(i, n) : kNoPeer;
    case Kind::one_to_root:
      return rank == i ? 0 : kNoPeer;
    case Kind::row_shift:
    case Kind::row_shift_back:
    case Kind::column_shift:
    case Kind::column_shift_back: {
      const std::uint32_t columns = columns_of(n), rows = n / columns;
      const std::uint32_t row = rank / columns, column = rank % columns;
      const std::int64_t by =
          r.kind == Kind::row_shift || r.kind == Kind::column_shift ? index : -std::int64_t{index};
      return r.kind == Kind::row_shift || r.kind == Kind::row_shift_back
                 ? row * columns + shifted(column, columns, by)
                 : shifted(row, rows, by) * columns + column;
    }
    case Kind::mirror:
      return n - 1 - rank;
    case Kind::everyone:
      return kEveryPeer;
    case Kind::blocks:
      break;
  }
  return kNoPeer;
}

void add(Relation relation, std::uint32_t n, std::vector<KnownMap>* maps) {
  std::vector<std::uint32_t> peers(n);
  bool any = false;
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    peers[rank] = relation.peer(rank, n);
    any = any || peers[rank] != kNoPeer;
  }
  if (any) maps->push_back({relation, std::move(peers)});
}

void add_grids(std::uint32_t n, std::vector<KnownMap>* maps) {
  constexpr std::int32_t kPowers[] = {1, 3, 9, 27};
  for (const std::uint8_t dimensions : {std::uint8_t{2}, std::uint8_t{3}, std::uint8_t{1}}) {
    const std::int32_t all = kPowers[dimensions], centre = (all - 1) / 2;
    for (const bool periodic : {true, false}) {
      for (const bool square : {false, true}) {
        if (square && dimensions != 2) continue;
        for (std::int32_t index = 0; index < all; ++index) {
          if (index == centre) continue;
          add({Relation::Kind::grid, dimensions, periodic, square, Part::all, index}, n, maps);
        }
      }
    }
  }
}

}  // namespace

bool takes_part(Part part, std::uint32_t rank, std::uint32_t n) noexcept {
  switch (part) {
    case Part::all:
      return true;
    case Part::even:
      return rank % 2 == 0;
    case Part::odd:
      return rank % 2 == 1;
    case Part::lower_half:
      return rank < n / 2;
    case Part::upper_half:
      return rank >= n / 2;
  }
  return false;
}

std::uint32_t columns_of(std::uint32_t n) noexcept {
  return balanced(n, 2)[0];
}

std::uint32_t edge_of(std::uint32_t n) noexcept {
  std::uint32_t edge = 0;
  while (std::uint64_t{edge + 1} * (edge + 1) <= n) ++edge;
  return edge;
}

std::uint32_t Relation::peer(std::uint32_t rank, std::uint32_t n, std::int32_t at) const noexcept {
  if (!takes_part(part, rank, n)) return kNoPeer;
  const std::uint32_t to = reach(*this, rank, n, at);
  return to == rank ? kNoPeer : to;
}

bool Relation::is_indexed() const noexcept {
  switch (kind) {
    case Kind::grid:
    case Kind::shift_part:
    case Kind::shift_part_back:
    case Kind::exchange_top:
    case Kind::transpose:
    case Kind::tree_parent:
    case Kind::fan_parent:
    case Kind::heap_parent:
    case Kind::heap_child:
    case Kind::to_rank:
    case Kind::mirror:
    case Kind::everyone:
    case Kind::blocks:
      return false;
    default:
      return true;
  }
}

std::string Relation::family() const {
  switch (kind) {
    case Kind::grid:
      return fmt::format("stencil on a {}{}grid of {} dimension{}", periodic ? "periodic " : "",
                         square ? "square " : "", dimensions, dimensions == 1 ? "" : "s");
    case Kind::shift:
    case Kind::shift_back:
    case Kind::shift_part:
    case Kind::shift_part_back:
      return "shifts";
    case Kind::shift_bit:
    case Kind::shift_bit_back:
      return "dissemination";
    case Kind::exchange:
    case Kind::exchange_bit:
    case Kind::exchange_top:
      return "exchanges";
    case Kind::transpose:
      return "transposition";
    case Kind::tree_parent:
    case Kind::tree_child:
    case Kind::tree_rise:
    case Kind::fan_parent:
    case Kind::fan_child:
    case Kind::fan_rise:
      return "binomial tree";
    case Kind::heap_parent:
    case Kind::heap_child:
      return "binary tree";
    case Kind::to_rank:
    case Kind::root_to:
    case Kind::one_to_root:
      return "one rank with all";
    case Kind::row_shift:
    case Kind::row_shift_back:
    case Kind::column_shift:
    case Kind::column_shift_back:
      return "shifts in rows and columns";
    case Kind::mirror:
      return "mirror";
    case Kind::everyone:
      return "all to all";
    case Kind::blocks:
      break;
  }
  return "irregular";
}

std::string Relation::text() const {
  std::string of;
  if (part == Part::even) of = "even ranks: ";
  if (part == Part::odd) of = "odd ranks: ";
  if (part == Part::lower_half) of = "lower half: ";
  if (part == Part::upper_half) of = "upper half: ";
  switch (kind) {
    case Kind::grid: {
      std::string steps;
      std::int32_t rest = index;
      for (std::uint8_t d = 0; d < dimensions; ++d, rest /= 3) {
        steps += fmt::format("{}{}", d == 0 ? "" : ",", rest % 3 - 1);
      }
      return fmt::format("{}{} ({})", of, family(), steps);
    }
    case Kind::shift:
      return fmt::format("{}rank + {}", of, index);
    case Kind::shift_back:
      return fmt::format("{}rank - {}", of, index);
    case Kind::shift_bit:
      return fmt::format("{}rank + 2^{}", of, index);
    case Kind::shift_bit_back:
      return fmt::format("{}rank - 2^{}", of, index);
    case Kind::shift_part:
      return fmt::format("{}rank + n/{}", of, std::int64_t{1} << index);
    case Kind::shift_part_back:
      return fmt::format("{}rank - n/{}", of, std::int64_t{1} << index);
    case Kind::exchange:
      return fmt::format("{}rank xor {}", of, index);
    case Kind::exchange_bit:
      return fmt::format("{}rank xor 2^{}", of, index);
    case Kind::exchange_top:
      return fmt::format("{}rank xor n/{}", of, std::int64_t{2} << index);
    default:
      return fmt::format("{}{} {}", of, family(), index);
  }
}

std::vector<KnownMap> relations_at(std::uint32_t n) {
  using Kind = Relation::Kind;
  std::vector<KnownMap> maps;
  const auto simple = [&](Kind kind, std::int32_t index) {
    Relation relation;
    relation.kind = kind;
    relation.index = index;
    add(relation, n, &maps);
  };
  add_grids(n, &maps);
  const auto bits = static_cast<std::int32_t>(std::bit_width(n - 1));
  for (std::int32_t i = 0; i < bits; ++i) {
    for (const Kind kind :
         {Kind::exchange_bit, Kind::exchange_top, Kind::shift_bit, Kind::shift_bit_back,
          Kind::tree_child, Kind::tree_rise, Kind::fan_child, Kind::fan_rise}) {
      simple(kind, i);
    }
    simple(Kind::shift_part, i + 1);
    simple(Kind::shift_part_back, i + 1);
  }
  for (const Kind kind : {Kind::tree_parent, Kind::fan_parent, Kind::heap_parent, Kind::transpose,
                          Kind::mirror, Kind::everyone}) {
    simple(kind, 0);
  }
  simple(Kind::heap_child, 0);
  simple(Kind::heap_child, 1);
  const auto all = static_cast<std::int32_t>(n);
  for (std::int32_t k = 1; k < all; ++k) {
    if (k <= kNear) {
      simple(Kind::shift, k);
      simple(Kind::shift_back, k);
    }
    simple(Kind::exchange, k);
    simple(Kind::root_to, k);
    simple(Kind::one_to_root, k);
  }
  for (std::int32_t k = kNear + 1; k < all; ++k) {
    simple(Kind::shift, k);
    simple(Kind::shift_back, k);
  }
  for (std::int32_t k = 0; k < all; ++k) simple(Kind::to_rank, k);
  const auto columns = static_cast<std::int32_t>(columns_of(n)), rows = all / columns;
  for (std::int32_t k = 1; k < columns; ++k) {
    simple(Kind::row_shift, k);
    simple(Kind::row_shift_back, k);
  }
  for (std::int32_t k = 1; k < rows; ++k) {
    simple(Kind::column_shift, k);
    simple(Kind::column_shift_back, k);
  }
  return maps;
}

}  // namespace turnout::sim::plan
