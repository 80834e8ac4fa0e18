// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/nwchem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/workloads/families.h"
#include "sim/workloads/grid.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kHaloTag = 1, kUpTag = 2, kDownTag = 3;
constexpr std::uint32_t kCounterRank = 0, kCounterCell = 0;
// Each has a bit that says whether it was taken.
constexpr std::uint64_t kMostTasks = std::uint64_t{1} << 28;

// Of all ranks.
struct Shared {
  NwchemPlan plan;
  std::vector<bool> taken;
  std::vector<std::uint64_t> sums;  // by tile, what must be there at the end
  std::shared_ptr<NwchemCounts> counts;
  SharedPhases phases;
};

// One rank's part. Lives in the coroutine's frame.
class Process {
 public:
  Process(Rank rank, std::shared_ptr<Shared> shared)
      : rank_(rank),
        shared_(std::move(shared)),
        plan_(shared_->plan),
        counts_(*shared_->counts),
        node_(plan_.node(rank.id())),
        thread_(plan_.shape().thread && owns()) {}

  Task run() {
    rank_.keep_cells(plan_.cells());
    const bool times = rank_.id() == 0;
    if (times) shared_->phases->begin("nwchem", rank_.now());
    for (std::uint32_t i = 0; i < plan_.shape().iterations; ++i) {
      co_await iterate(i);
      co_await rank_.barrier();  // all have asked the counter, and accumulated
    }
    if (times) shared_->phases->end(rank_.now(), counts_.messages);
    check();
  }

 private:
  // Is it the rank that its node's tiles belong to?
  [[nodiscard]] bool owns() const { return rank_.id() == 0 || plan_.node(rank_.id() - 1) != node_; }
  [[nodiscard]] bool near(std::uint32_t rank) const { return plan_.node(rank) == node_; }

  Task iterate(std::uint32_t iteration) {
    const std::uint64_t chunk = plan_.shape().chunk, chunks = plan_.chunks(iteration);
    const std::uint64_t begin = plan_.first(iteration), end = plan_.first(iteration + 1);
    for (;;) {
      co_await count();
      // In each iteration before, every rank asked once more than there were chunks.
      const std::uint64_t number = counted_ - base_;
      if (number >= chunks) break;
      const std::uint64_t first = begin + number * chunk;
      for (std::uint64_t t = first; t < std::min(first + chunk, end); ++t) co_await work(t);
    }
    base_ += chunks + rank_.size();
    co_await exchange();
    co_await reduce();
  }

  // NXTVAL.
  Task count() {
    if (near(kCounterRank)) {
      ++counts_.counted_in_node;
      counted_ = rank_.add_in_node(kCounterRank, kCounterCell, 1);
      co_return;
    }
    ++counts_.counted;
    const Request add = co_await rank_.iadd(kCounterRank, kCounterCell);
    counted_ = (co_await rank_.wait(add)).tag;
  }

  Task work(std::uint64_t number) {
    if (shared_->taken[number]) {
      throw SimulationError(fmt::format("task {} was taken twice", number));
    }
    shared_->taken[number] = true;
    ++counts_.tasks;
    const NwchemTask task = plan_.task(number);
    const std::array<std::uint32_t, 2> from = {plan_.tile(task.i, task.k).owner,
                                               plan_.tile(task.k, task.j).owner};
    std::array<Request, 2> gets;
    for (std::size_t g = 0; g < 2; ++g) {
      if (near(from[g])) {
        ++counts_.gets_in_node;
        continue;
      }
      ++counts_.gets;
      const Request get = co_await rank_.iget(from[g], plan_.shape().bytes);
      gets[g] = get;
    }
    for (const Request get : gets) {
      if (get.valid()) co_await rank_.wait(get);
    }
    if (thread_) {
      co_await rank_.compute_beside_thread(plan_.compute(number));
    } else {
      co_await rank_.compute(plan_.compute(number));
    }
    co_await accumulate(plan_.tile(task.i, task.j), plan_.value(number));
  }

  Task accumulate(NwchemPlan::Tile tile, std::uint64_t value) {
    if (near(tile.owner)) {
      ++counts_.accumulated_in_node;
      rank_.add_in_node(tile.owner, tile.cell, value);
      co_return;
    }
    ++counts_.accumulated;
    const Request put = co_await rank_.iput(tile.owner, plan_.shape().bytes);
    const Request add = co_await rank_.iadd(tile.owner, tile.cell, value);
    co_await rank_.wait(put);
    co_await rank_.wait(add);
  }

  // With those before and after it in the ring.
  Task exchange() {
    const std::uint32_t n = rank_.size(), id = rank_.id();
    const std::uint32_t most = std::min(plan_.shape().neighbours, n - 1);
    const std::uint64_t bytes = plan_.shape().halo;
    std::vector<Request> requests;
    for (std::uint32_t d = 1; d <= most; ++d) {
      for (const std::uint32_t peer : {(id + n - d) % n, (id + d) % n}) {
        requests.push_back(co_await rank_.irecv(peer, bytes, kHaloTag));
        requests.push_back(co_await rank_.isend(peer, bytes, kHaloTag));
        ++counts_.messages;
      }
    }
    co_await rank_.wait_all(requests);
  }

  // Up a binomial tree, and down again.
  Task reduce() {
    const std::uint32_t n = rank_.size(), id = rank_.id();
    const std::uint64_t bytes = plan_.shape().reduced;
    std::uint32_t distance = 1;
    for (; distance < n && (id & distance) == 0; distance *= 2) {
      if (id + distance < n) co_await rank_.recv(id + distance, bytes, kUpTag);
    }
    if (id != 0) {
      ++counts_.messages;
      co_await rank_.send(id - distance, bytes, kUpTag);
      co_await rank_.recv(id - distance, bytes, kDownTag);
    }
    for (distance /= 2; distance > 0; distance /= 2) {
      if (id + distance >= n) continue;
      ++counts_.messages;
      co_await rank_.send(id + distance, bytes, kDownTag);
    }
  }

  void check() {
    if (rank_.id() == 0 && counts_.tasks != plan_.shape().tasks) {
      throw SimulationError(
          fmt::format("{} of {} tasks were taken", counts_.tasks, plan_.shape().tasks));
    }
    if (!owns()) return;
    const std::uint32_t tiles = plan_.shape().tiles;
    for (std::uint32_t i = 0; i < tiles; ++i) {
      for (std::uint32_t j = 0; j < tiles; ++j) {
        const NwchemPlan::Tile tile = plan_.tile(i, j);
        if (tile.owner != rank_.id()) continue;
        const std::uint64_t sum = rank_.add_in_node(rank_.id(), tile.cell, 0);
        const std::uint64_t right = shared_->sums[std::size_t{i} * tiles + j];
        if (sum == right) continue;
        throw SimulationError(fmt::format("tile ({}, {}) of rank {} is {}, expected {}", i, j,
                                          rank_.id(), sum, right));
      }
    }
  }

  Rank rank_;
  std::shared_ptr<Shared> shared_;
  const NwchemPlan& plan_;
  NwchemCounts& counts_;
  std::uint32_t node_;
  bool thread_;
  std::uint64_t counted_ = 0, base_ = 0;
};

Task play(Rank rank, std::shared_ptr<Shared> shared) {
  Process process(rank, std::move(shared));
  co_await process.run();
}

std::uint32_t parts(std::uint32_t whole, std::uint32_t part) {
  return (whole + part - 1) / part;
}

}  // namespace

NwchemPlan::NwchemPlan(const NwchemShape& shape, const Place& place)
    : shape_(shape), per_node_(place.ranks_per_node), seed_(place.seed) {
  const Extents grid = balanced(parts(place.ranks, per_node_), 2);
  grid_rows_ = std::min(grid[0], grid[1]);
  grid_columns_ = std::max(grid[0], grid[1]);
  rows_ = parts(shape.tiles, grid_rows_);
  columns_ = parts(shape.tiles, grid_columns_);
}

std::uint64_t NwchemPlan::draw(std::uint64_t task, std::uint64_t what) const {
  SplitMix64 mixed(seed_ ^ (task << 2 | what));
  (void)mixed.next();
  return mixed.next();
}

NwchemTask NwchemPlan::task(std::uint64_t number) const {
  const std::uint32_t near = 2 * shape_.reach + 1, tiles = shape_.tiles;
  const std::uint64_t triples = std::uint64_t{tiles} * near * near;
  // Evenly over the triples: some of them, or several tasks each.
  const auto triple =
      static_cast<std::uint64_t>(static_cast<unsigned __int128>(number) * triples / shape_.tasks);
  const auto beside = [&](std::uint32_t tile, std::uint64_t way) {
    return static_cast<std::uint32_t>((tile + tiles - shape_.reach % tiles + way) % tiles);
  };
  NwchemTask task{};
  task.i = static_cast<std::uint32_t>(triple / near / near);
  task.j = beside(task.i, triple / near % near);
  task.k = draw(number, 0) % 1000 < shape_.far ? static_cast<std::uint32_t>(draw(number, 1) % tiles)
                                               : beside(task.j, triple % near);
  return task;
}

Picoseconds NwchemPlan::compute(std::uint64_t task) const {
  const std::uint64_t time = shape_.work / 2 + draw(task, 3) % (shape_.work + 1);
  return static_cast<Picoseconds>(time) * hca::kNanosecond;
}

std::uint64_t NwchemPlan::first(std::uint32_t iteration) const {
  const std::uint64_t each = shape_.tasks / shape_.iterations;
  const std::uint64_t rest = shape_.tasks % shape_.iterations;  // one more in the first ones
  return each * iteration + std::min<std::uint64_t>(iteration, rest);
}

NwchemPlan::Tile NwchemPlan::tile(std::uint32_t i, std::uint32_t j) const {
  const std::uint32_t owner = i % grid_rows_ * grid_columns_ + j % grid_columns_;
  return {owner * per_node_, 1 + i / grid_rows_ * columns_ + j / grid_columns_};
}

Program make_nwchem(const NwchemShape& shape, const Place& place, const SharedPhases& phases,
                    std::shared_ptr<NwchemCounts> counts) {
  if (!counts) counts = std::make_shared<NwchemCounts>();
  const auto shared = std::make_shared<Shared>(
      Shared{NwchemPlan(shape, place), std::vector<bool>(shape.tasks),
             std::vector<std::uint64_t>(std::size_t{shape.tiles} * shape.tiles), std::move(counts),
             phases});
  for (std::uint64_t t = 0; t < shape.tasks; ++t) {
    const NwchemTask task = shared->plan.task(t);
    shared->sums[std::size_t{task.i} * shape.tiles + task.j] += shared->plan.value(t);
  }
  return [shared](Rank rank) { return play(rank, shared); };
}

namespace {

Result<Program> make(const Values& v, const Place& place, const SharedPhases& phases) {
  NwchemShape shape;
  shape.tasks = v["tasks"] * place.ranks;
  if (shape.tasks > kMostTasks) {
    return Status{Code::invalid, fmt::format("nwchem, tasks = {}: of {} ranks {}, at most {}",
                                             v["tasks"], place.ranks, shape.tasks, kMostTasks)};
  }
  shape.chunk = v["chunk"];
  shape.iterations = v.small("iterations");
  shape.tiles = v.small("tiles");
  shape.reach = v.small("reach");
  shape.far = v.small("far");
  shape.bytes = v["bytes"];
  shape.neighbours = v.small("neighbours");
  shape.halo = v["halo"];
  shape.reduced = v["reduced"];
  shape.work = v["work"];
  shape.thread = v["thread"] != 0;
  return make_nwchem(shape, place, phases, nullptr);
}

}  // namespace

std::vector<Workload> nwchem_family() {
  using namespace parameter;
  constexpr std::uint64_t kMostSide = std::uint64_t{256} << 20;  // one-sided operations' most
  return {
      {"nwchem",
       "tasks from a shared counter get, compute and accumulate tiles; neighbour exchange, sums "
       "[ACTS]",
       {count("tasks", 1024, 1, 1'000'000,
              "mean number of tasks per process [assumed; docs/nwchem.md]"),
        count("chunk", 1, 1, 1'000'000, "tasks taken from the counter at a time [assumed]"),
        count("iterations", 64, 1, 100'000,
              "parts of the tasks, each followed by a neighbour exchange, a sum and a barrier "
              "[assumed; docs/nwchem.md]"),
        count("tiles", 32, 1, 4096,
              "rows of the array of tiles [assumed: as 512 owners, 16 x 32, need]"),
        count("reach", 2, 0, 4096,
              "tiles on either side that each tile is combined with [assumed; docs/nwchem.md]"),
        count("far", 200, 0, 1000, "tasks out of 1000 that use any tile [assumed; docs/nwchem.md]"),
        {"bytes", Parameter::Unit::bytes, 8192, 0, kMostSide,
         "bytes per tile [assumed: 32 x 32 doubles]"},
        count("neighbours", 1, 0, 16, "neighbour ranks on either side [assumed]"),
        {"halo", Parameter::Unit::bytes, 8192, 0, kMostBytes,
         "bytes to each neighbour [assumed: a tile]"},
        {"reduced", Parameter::Unit::bytes, 8, 0, kMostBytes,
         "bytes of the sum [assumed: an energy]"},
        {"work", Parameter::Unit::duration, 128'000'000, 0, kMostTime,
         "mean time per task [ACTS V: 131 s of 2048 processes, by the number of tasks]"},
        count("thread", 1, 0, 1,
              "1: owners make progress in a thread while they compute, as ARMCI's data server "
              "[ACTS III]")},
       make}};
}

}  // namespace turnout::sim
