// SPDX-License-Identifier: BSD-3-Clause
// NAS-like skeletons: who sends how much to whom in the NAS Parallel Benchmarks 3.3 (is, ft, cg,
// mg, lu, sp, bt), without their arithmetic. What the memory claims of SC'06
// (spec/eager-channels.md) and the NAS figures of EuroMPI'13 are about.
//
// Sizes are those of the classes' npbparams; messages are those of the programs' communication
// routines (rank in is.c, transpose_* in ft.f, conj_grad in cg.f, comm3 in mg.f, exchange_1 and
// exchange_3 in lu, copy_faces and *_solve in sp and bt), read as patterns. Simplified: collectives
// are recursive doubling and shifted exchanges; keys of is are spread evenly; mg is cut as equally
// as can be, and on coarse grids an axis with fewer points than ranks exchanges nothing.
//
// Ranks beyond the largest number that a program can use (a power of 2; of sp and bt a square) are
// idle, but for the barrier at the end.

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "sim/workloads/families.h"
#include "sim/workloads/grid.h"

namespace turnout::sim {
namespace {

struct Class {
  std::uint64_t keys;  // is
  std::array<std::uint64_t, 3> ft;
  std::uint64_t cg, mg, lu, sp, bt;  // order, or points along an edge
};
// W, A, B, C.
constexpr std::array<Class, 4> kClasses = {{
    {1u << 20, {128, 128, 32}, 7000, 128, 33, 36, 24},
    {1u << 23, {256, 256, 128}, 14'000, 256, 64, 64, 64},
    {1u << 25, {512, 256, 256}, 75'000, 256, 102, 102, 102},
    {1u << 27, {512, 512, 512}, 150'000, 512, 162, 162, 162},
}};
constexpr std::uint64_t kBucketBytes = 4 * (1024 + 5);  // is: counts of all buckets, and test keys
constexpr int kInner = 25;                              // cg: steps of one conjugate gradient
constexpr std::uint64_t kAtOnce = 32;                   // partners of a collective before a wait
constexpr std::uint64_t kDouble = 8, kVariables = 5;

struct Nas {
  Class size;
  std::uint64_t rounds;
  Picoseconds compute;
};

// One rank's part of the program; `active` ranks take part. `sent` counts messages of all.
struct Part {
  Rank rank;
  std::uint32_t active;
  std::uint64_t* sent;
};

// Both ways at once; each may be with another rank.
Task exchange(Part p, std::uint32_t to, std::uint32_t from, std::uint64_t bytes) {
  const Request in = co_await p.rank.irecv(from, bytes, kDataTag);
  const Request out = co_await p.rank.isend(to, bytes, kDataTag);
  ++*p.sent;
  co_await p.rank.wait(in);
  co_await p.rank.wait(out);
}

Task all_reduce(Part p, std::uint64_t bytes) {
  for (std::uint32_t distance = 1; distance < p.active; distance *= 2) {
    const std::uint32_t partner = p.rank.id() ^ distance;
    co_await exchange(p, partner, partner, bytes);
  }
}

// Among `count` ranks: this one's first, and then every `stride`th.
Task all_to_all(Part p, std::uint32_t first, std::uint32_t stride, std::uint32_t count,
                std::uint64_t bytes) {
  const std::uint64_t me = (p.rank.id() - first) / stride;
  std::vector<Request> requests;
  for (std::uint64_t begin = 1; begin < count; begin += kAtOnce) {
    requests.clear();
    for (std::uint64_t k = begin; k < std::min<std::uint64_t>(begin + kAtOnce, count); ++k) {
      const auto to = static_cast<std::uint32_t>(first + (me + k) % count * stride);
      const auto from = static_cast<std::uint32_t>(first + (me + count - k) % count * stride);
      requests.push_back(co_await p.rank.irecv(from, bytes, kDataTag));
      requests.push_back(co_await p.rank.isend(to, bytes, kDataTag));
      ++*p.sent;
    }
    co_await p.rank.wait_all(requests);
  }
}

Task is_once(Part p, Nas nas) {
  const std::uint64_t n = p.active;
  co_await all_reduce(p, kBucketBytes);
  co_await all_to_all(p, 0, 1, p.active, 4);
  co_await all_to_all(p, 0, 1, p.active, std::max<std::uint64_t>(4 * nas.size.keys / n / n, 4));
}

// In one dimension while there are planes for all, else in two.
Task ft_once(Part p, Nas nas) {
  const auto [nx, ny, nz] = nas.size.ft;
  const std::uint64_t own = 2 * kDouble * nx * ny * nz / p.active;
  const auto planes = static_cast<std::uint32_t>(nz);
  if (p.active <= planes) {
    co_await all_to_all(p, 0, 1, p.active, std::max<std::uint64_t>(own / p.active, 1));
  } else {
    const std::uint32_t columns = planes, rows = p.active / columns;
    const std::uint32_t row = p.rank.id() / columns, column = p.rank.id() % columns;
    co_await all_to_all(p, row * columns, 1, columns, std::max<std::uint64_t>(own / columns, 1));
    co_await all_to_all(p, column, columns, rows, std::max<std::uint64_t>(own / rows, 1));
  }
  co_await all_reduce(p, 2 * kDouble);
}

struct CgPlace {
  std::uint32_t columns, row, column, transposed;
};
CgPlace cg_place(std::uint32_t active, std::uint32_t id) {
  const auto power = static_cast<std::uint32_t>(std::countr_zero(active));
  const std::uint32_t rows = 1u << (power / 2), columns = active / rows;
  const std::uint32_t half = columns / rows;  // 1 or 2
  const std::uint32_t cell = id / half;
  return {columns, id / columns, id % columns,
          half * (cell % rows * rows + cell / rows) + id % half};
}

Task cg_row_sum(Part p, CgPlace place, std::uint64_t bytes) {
  for (std::uint32_t bit = place.columns / 2; bit > 0; bit /= 2) {
    const std::uint32_t partner = place.row * place.columns + (place.column ^ bit);
    co_await exchange(p, partner, partner, bytes);
  }
}

Task cg_once(Part p, Nas nas) {
  const CgPlace place = cg_place(p.active, p.rank.id());
  const std::uint64_t vector = kDouble * nas.size.cg / place.columns;
  for (int step = 0; step <= kInner; ++step) {  // the last one is the residual's
    co_await cg_row_sum(p, place, vector);
    if (place.transposed != p.rank.id()) {
      co_await exchange(p, place.transposed, place.transposed, vector);
    }
    co_await cg_row_sum(p, place, kDouble);
    if (step < kInner) co_await cg_row_sum(p, place, kDouble);
  }
}

Task mg_faces(Part p, Extents extents, std::uint64_t points) {
  std::array<std::uint64_t, 3> own;
  for (std::size_t d = 0; d < 3; ++d) own[d] = points / extents[d];
  for (std::size_t d = 0; d < 3; ++d) {
    if (extents[d] == 1 || own[d] == 0) continue;
    const std::uint64_t bytes = kDouble * (own[(d + 1) % 3] + 2) * (own[(d + 2) % 3] + 2);
    const std::uint32_t back = *neighbour(extents, p.rank.id(), d, -1, true);
    const std::uint32_t on = *neighbour(extents, p.rank.id(), d, +1, true);
    co_await exchange(p, back, on, bytes);
    co_await exchange(p, on, back, bytes);
  }
}

// Down the levels once at each, and up again with three: interpolation, residual, smoothing.
Task mg_once(Part p, Nas nas) {
  const Extents extents = balanced(p.active, 3);
  for (std::uint64_t points = nas.size.mg; points > 2; points /= 2) {
    co_await mg_faces(p, extents, points);
  }
  for (std::uint64_t points = 4; points <= nas.size.mg; points *= 2) {
    for (int i = 0; i < 3; ++i) co_await mg_faces(p, extents, points);
  }
  co_await all_reduce(p, kDouble);
}

// A wave through the planes from one corner of the ranks' grid to the other.
Task lu_sweep(Part p, Extents extents, Nas nas, int way) {
  const std::array<std::uint64_t, 2> bytes = {
      kDouble * kVariables * ((nas.size.lu + extents[1] - 1) / extents[1]),
      kDouble * kVariables * ((nas.size.lu + extents[0] - 1) / extents[0])};
  std::array<Request, 2> sends;
  for (std::uint64_t plane = 2; plane < nas.size.lu; ++plane) {
    for (std::size_t d = 0; d < 2; ++d) {
      const auto before = neighbour(extents, p.rank.id(), d, -way, false);
      if (before) co_await p.rank.recv(*before, bytes[d], kDataTag);
    }
    for (std::size_t d = 0; d < 2; ++d) {
      const auto next = neighbour(extents, p.rank.id(), d, way, false);
      if (!next) continue;
      const Request out = co_await p.rank.isend(*next, bytes[d], kDataTag);
      ++*p.sent;
      sends[d] = out;
    }
    for (Request& out : sends) {
      if (out.valid()) co_await p.rank.wait(std::exchange(out, Request{}));
    }
  }
}

Task lu_once(Part p, Nas nas) {
  const Extents extents = balanced(p.active, 2);
  co_await lu_sweep(p, extents, nas, +1);
  co_await lu_sweep(p, extents, nas, -1);
  for (std::size_t d = 0; d < 2; ++d) {
    const std::uint64_t side = (nas.size.lu + extents[1 - d] - 1) / extents[1 - d];
    const std::uint64_t bytes = kDouble * kVariables * 2 * side * nas.size.lu;
    for (const int way : {+1, -1}) {
      const auto from = neighbour(extents, p.rank.id(), d, -way, false);
      const auto to = neighbour(extents, p.rank.id(), d, way, false);
      Request in, out;
      if (from) in = co_await p.rank.irecv(*from, bytes, kDataTag);
      if (to) {
        out = co_await p.rank.isend(*to, bytes, kDataTag);
        ++*p.sent;
      }
      if (from) co_await p.rank.wait(in);
      if (to) co_await p.rank.wait(out);
    }
  }
}

// sp and bt: each rank has `edge` cells on a diagonal of the cube (multi-partition); along every
// axis its cells' neighbours on one side all belong to one rank.
struct Cells {
  std::uint32_t edge;
  std::array<std::uint32_t, 3> on, back;
};
Cells cells_of(std::uint32_t active, std::uint32_t id) {
  std::uint32_t p = 1;
  while ((p + 1) * (p + 1) <= active) ++p;
  const std::uint32_t i = id % p, j = id / p;
  const std::uint32_t next = (i + 1) % p, last = (i + p - 1) % p;
  const std::uint32_t below = (j + 1) % p, above = (j + p - 1) % p;
  return {p,
          {next + p * j, i + p * below, last + p * below},
          {last + p * j, i + p * above, next + p * above}};
}

// Doubles of a point of a cell's face that go on in an elimination, and come back.
struct Solve {
  std::uint64_t points;  // along an edge of the whole
  std::uint64_t forward, backward;
};

Task partition_once(Part p, Solve solve) {
  const Cells cells = cells_of(p.active, p.rank.id());
  const std::uint64_t side = (solve.points + cells.edge - 1) / cells.edge;
  const std::uint64_t face = side * side;
  if (cells.edge == 1) co_return;
  std::array<Request, 12> requests;
  std::size_t count = 0;
  const std::uint64_t faces = kDouble * kVariables * 2 * face * cells.edge;
  for (std::size_t d = 0; d < 3; ++d) {
    requests[count++] = co_await p.rank.irecv(cells.on[d], faces, kDataTag);
    requests[count++] = co_await p.rank.irecv(cells.back[d], faces, kDataTag);
  }
  for (std::size_t d = 0; d < 3; ++d) {
    requests[count++] = co_await p.rank.isend(cells.back[d], faces, kDataTag);
    requests[count++] = co_await p.rank.isend(cells.on[d], faces, kDataTag);
    *p.sent += 2;
  }
  co_await p.rank.wait_all(requests);
  for (std::size_t d = 0; d < 3; ++d) {
    for (std::uint32_t stage = 1; stage < cells.edge; ++stage) {
      co_await exchange(p, cells.on[d], cells.back[d], kDouble * solve.forward * face);
    }
    for (std::uint32_t stage = 1; stage < cells.edge; ++stage) {
      co_await exchange(p, cells.back[d], cells.on[d], kDouble * solve.backward * face);
    }
  }
}

Task sp_once(Part p, Nas nas) {
  co_await partition_once(p, {nas.size.sp, 22, 10});
}
Task bt_once(Part p, Nas nas) {
  co_await partition_once(p, {nas.size.bt, kVariables * kVariables + kVariables, kVariables});
}

using Once = Task (*)(Part, Nas);

Task program(Rank rank, Nas nas, Once once, std::uint32_t active, const char* name,
             SharedPhases phases, std::shared_ptr<std::uint64_t> sent) {
  if (rank.id() == 0) phases->begin(name, rank.now());
  if (rank.id() < active) {
    for (std::uint64_t i = 0; i < nas.rounds; ++i) {
      if (nas.compute > 0) co_await rank.compute(nas.compute);
      co_await once(Part{rank, active, sent.get()}, nas);
    }
  }
  co_await rank.barrier();  // all have counted
  if (rank.id() == 0) phases->end(rank.now(), *sent);
}

template <const char* kName, Once kOnce, bool kSquare>
Result<Program> make(const Values& v, const Place& place, const SharedPhases& phases) {
  std::uint32_t active = std::bit_floor(place.ranks);
  if (kSquare) {
    const std::uint32_t edge = cells_of(place.ranks, 0).edge;
    active = edge * edge;
  }
  const Nas nas{kClasses[v["class"] - 1], v["rounds"], v.time("compute")};
  const auto sent = std::make_shared<std::uint64_t>(0);
  return Program([nas, active, phases, sent](Rank rank) {
    return program(rank, nas, kOnce, active, kName, phases, sent);
  });
}

template <const char* kName, Once kOnce, bool kSquare = false>
Workload skeleton(std::string_view help, std::uint64_t rounds) {
  using namespace parameter;
  return {kName,
          help,
          {count("rounds", rounds, 1, kMostCount,
                 "iterations of the program [all of them: 10 to 400, by program and class]"),
           count("class", 3, 1, 4, "1: W, 2: A, 3: B, 4: C"),
           time("compute", 0, "computation of a rank in one iteration")},
          make<kName, kOnce, kSquare>};
}

constexpr char kIs[] = "nas-is", kFt[] = "nas-ft", kCg[] = "nas-cg", kMg[] = "nas-mg",
               kLu[] = "nas-lu", kSp[] = "nas-sp", kBt[] = "nas-bt";

}  // namespace

std::vector<Workload> nas_family() {
  return {
      skeleton<kIs, is_once>("integer sort: all to all, small and large [NPB 3.3]", 2),
      skeleton<kFt, ft_once>("3-D FFT: all to all, large [NPB 3.3]", 2),
      skeleton<kCg, cg_once>("conjugate gradient: sums along rows, transposes [NPB 3.3]", 1),
      skeleton<kMg, mg_once>("multigrid: faces, from large to tiny [NPB 3.3]", 2),
      skeleton<kLu, lu_once>("wavefronts of small messages in two dimensions [NPB 3.3]", 1),
      skeleton<kSp, sp_once, true>("multi-partition, scalar pentadiagonal [NPB 3.3]", 2),
      skeleton<kBt, bt_once, true>("multi-partition, block tridiagonal [NPB 3.3]", 2),
  };
}

}  // namespace turnout::sim
