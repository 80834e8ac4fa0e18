// SPDX-License-Identifier: BSD-3-Clause
// Relation: to whom a rank speaks, as a rule that holds for any number of ranks.
//
// Pure values, any thread. A relation maps a rank of n to a peer, or to none; relations_at() lists
// those that are known, in order of preference. Collectives are those of MPI libraries (Thakur et
// al., IJHPCA 2005: recursive doubling, binomial trees, dissemination, shifted exchanges); grids
// are numbered row by row, as MPI_Cart_create does, in the extents of MPI_Dims_create.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace turnout::sim::plan {

inline constexpr std::uint32_t kNoPeer = 0xffffffff;
inline constexpr std::uint32_t kEveryPeer = 0xfffffffe;  // of an all-to-all exchange

// Who takes part.
enum class Part : std::uint8_t { all, even, odd, lower_half, upper_half };
[[nodiscard]] bool takes_part(Part part, std::uint32_t rank, std::uint32_t n) noexcept;

struct Relation {
  enum class Kind : std::uint8_t {
    grid,        // index: a step along each axis, as digits to base 3 (0: -1, 1: 0, 2: +1)
    shift,       // (rank + index) mod n
    shift_back,  // (rank - index) mod n
    shift_bit,   // (rank + 2^index) mod n
    shift_bit_back,
    shift_part,  // (rank + n / 2^index) mod n
    shift_part_back,
    exchange,      // rank xor index
    exchange_bit,  // rank xor 2^index
    exchange_top,  // rank xor n / 2^(index + 1)
    transpose,     // of a square of ranks, or of pairs of them
    tree_parent,   // binomial tree with root 0: rank without its lowest bit
    tree_child,    // rank + 2^index, of ranks that are a multiple of 2^(index + 1)
    tree_rise,     // rank - 2^index, of ranks whose lowest bit that is
    fan_parent,    // rank without its highest bit: the tree that grows from the lowest ranks
    fan_child,     // rank + 2^index, of ranks below 2^index
    fan_rise,      // rank - 2^index, of ranks whose highest bit that is
    heap_parent,
    heap_child,   // (rank - 1) / 2; 2 rank + 1 + index
    to_rank,      // all others to rank index
    root_to,      // rank 0 to rank index
    one_to_root,  // rank index to rank 0
    row_shift,    // within a row of the grid of two dimensions, on by index
    row_shift_back,
    column_shift,
    column_shift_back,
    mirror,    // n - 1 - rank
    everyone,  // kEveryPeer, of all ranks
    blocks,    // what no rule explains: ranks in blocks as they were recorded
  };
  Kind kind = Kind::blocks;
  // Of grids: dimensions, periodic or not, and what part of the ranks is on it.
  std::uint8_t dimensions = 0;
  bool periodic = false;
  bool square = false;  // the largest square number of ranks; others are idle
  Part part = Part::all;
  std::int32_t index = 0;

  // kNoPeer: this rank does not take part. `index`: of this call.
  [[nodiscard]] std::uint32_t peer(std::uint32_t rank, std::uint32_t n,
                                   std::int32_t index) const noexcept;
  [[nodiscard]] std::uint32_t peer(std::uint32_t rank, std::uint32_t n) const noexcept {
    return peer(rank, n, index);
  }
  // What relations of one kind of traffic share: "grid of 2 dimensions", "exchange".
  [[nodiscard]] std::string family() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool is_tree() const noexcept {
    return kind >= Kind::tree_parent && kind <= Kind::heap_child;
  }
  // A collective's steps have consecutive indexes.
  [[nodiscard]] bool is_indexed() const noexcept;
  friend auto operator<=>(const Relation&, const Relation&) = default;
};

// Ranks of a row: the larger of two factors of n that are as equal as can be.
[[nodiscard]] std::uint32_t columns_of(std::uint32_t n) noexcept;
[[nodiscard]] std::uint32_t edge_of(std::uint32_t n) noexcept;  // of the largest square within n

// A relation and whom each rank reaches by it.
struct KnownMap {
  Relation relation;
  std::vector<std::uint32_t> peers;
};
// All of them at n ranks with at least one peer; different relations may have equal maps.
[[nodiscard]] std::vector<KnownMap> relations_at(std::uint32_t n);

}  // namespace turnout::sim::plan
