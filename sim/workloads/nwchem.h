// SPDX-License-Identifier: BSD-3-Clause
// A program in the manner of NWChem over Global Arrays, as ACTS (spec/teardown.md) describes it:
// processes take tasks from one counter, get tiles of an array from whoever owns them, compute, and
// accumulate into other tiles; at times they exchange with neighbours and sum up over all.
//
// A global array of T x T tiles is distributed block-cyclically over owners in a grid of P x Q:
// tile (i, j) belongs to owner (i mod P) Q + j mod Q, the first rank of that node, as ARMCI's data
// server of a node does for all its processes. Processes of that node reach it through memory, all
// others one-sidedly. The tasks are the triples (i, j, k), i slowest, with j at most `reach` tiles
// from i and k from j, modulo T; task (i, j, k) gets (i, k) and (k, j), computes, and accumulates
// into (i, j). So tasks that follow each other share tiles, all processes work near the same few
// rows, and with these rows the owners that are needed change. Of some tasks k is anywhere.
//
// An accumulation is a put of the tile's bytes, and an addition to a cell that stands for the tile:
// what was added up is checked at the end, as is that each task was taken once.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/workloads/workload.h"

namespace turnout::sim {

// At least one chunk, iteration and tile.
struct NwchemShape {
  std::uint64_t tasks = 0;  // of all processes
  std::uint64_t chunk = 1;  // taken at one time
  std::uint32_t iterations = 1;
  std::uint32_t tiles = 1, reach = 0;   // T
  std::uint32_t far = 0;                // of 1000 tasks
  std::uint64_t bytes = 0;              // of a tile
  std::uint32_t neighbours = 0;         // on either side
  std::uint64_t halo = 0, reduced = 0;  // bytes
  std::uint64_t work = 0;               // mean of a task, ns
  bool thread = true;                   // owners make progress while they compute
};

struct NwchemTask {
  std::uint32_t i, j, k;
};

// What is needed where; a function of shape and place.
class NwchemPlan {
 public:
  struct Tile {
    std::uint32_t owner, cell;  // a rank, and the tile's cell there
  };

  NwchemPlan(const NwchemShape& shape, const Place& place);

  [[nodiscard]] const NwchemShape& shape() const noexcept { return shape_; }
  [[nodiscard]] NwchemTask task(std::uint64_t number) const;
  // What it accumulates.
  [[nodiscard]] std::uint64_t value(std::uint64_t task) const { return 1 + draw(task, 2) % 1000; }
  [[nodiscard]] Picoseconds compute(std::uint64_t task) const;       // its time
  [[nodiscard]] std::uint64_t first(std::uint32_t iteration) const;  // its first task
  [[nodiscard]] std::uint64_t chunks(std::uint32_t iteration) const {
    return (first(iteration + 1) - first(iteration) + shape_.chunk - 1) / shape_.chunk;
  }
  [[nodiscard]] Tile tile(std::uint32_t i, std::uint32_t j) const;
  // Cells of an owner: the counter's (used on rank 0), one for each tile.
  [[nodiscard]] std::uint32_t cells() const noexcept { return 1 + rows_ * columns_; }
  [[nodiscard]] std::uint32_t node(std::uint32_t rank) const { return rank / per_node_; }

 private:
  [[nodiscard]] std::uint64_t draw(std::uint64_t task, std::uint64_t what) const;

  NwchemShape shape_;
  std::uint32_t per_node_, grid_rows_, grid_columns_;
  std::uint32_t rows_, columns_;  // of the tiles of one owner
  std::uint64_t seed_;
};

// What the ranks did; those of a node are what went through its memory.
struct NwchemCounts {
  std::uint64_t tasks = 0;
  std::uint64_t counted = 0, counted_in_node = 0;
  std::uint64_t gets = 0, gets_in_node = 0;
  std::uint64_t accumulated = 0, accumulated_in_node = 0;
  std::uint64_t messages = 0;
};

// `counts` may be null. A task taken twice or by nobody, or a sum that is wrong, ends the program
// with a SimulationError.
[[nodiscard]] Program make_nwchem(const NwchemShape& shape, const Place& place,
                                  const SharedPhases& phases, std::shared_ptr<NwchemCounts> counts);

}  // namespace turnout::sim
