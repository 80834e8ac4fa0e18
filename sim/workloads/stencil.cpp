// SPDX-License-Identifier: BSD-3-Clause
// Halo exchange on a grid of ranks, in two and three dimensions.

#include <fmt/format.h>

#include "sim/workloads/families.h"
#include "sim/workloads/grid.h"

namespace turnout::sim {
namespace {

struct Pattern {
  std::uint64_t rounds, face_bytes;
  Picoseconds work;
  bool periodic;
  Extents extents;
};

// A face's tag tells the way it travels: with two ranks in a dimension both neighbours are one.
Task stencil(Rank rank, Pattern p, SharedPhases phases) {
  struct Face {
    std::uint32_t rank;
    std::uint64_t out, in;  // tags
  };
  std::vector<Face> faces;
  for (std::size_t d = 0; d < p.extents.size(); ++d) {
    for (const int way : {-1, 1}) {
      const auto peer = neighbour(p.extents, rank.id(), d, way, p.periodic);
      if (!peer || *peer == rank.id()) continue;
      const std::uint64_t down = kDataTag + 2 * d, up = down + 1;
      faces.push_back({*peer, way < 0 ? down : up, way < 0 ? up : down});
    }
  }
  if (rank.id() == 0) phases->begin("stencil", rank.now());
  std::vector<Request> requests;
  requests.reserve(2 * faces.size());
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    requests.clear();
    for (const Face& face : faces) {
      requests.push_back(co_await rank.irecv(face.rank, p.face_bytes, face.in));
    }
    for (const Face& face : faces) {
      requests.push_back(co_await rank.isend(face.rank, p.face_bytes, face.out));
    }
    co_await rank.wait_all(requests);
    co_await rank.compute(p.work);
  }
  if (rank.id() == 0) phases->end(rank.now(), p.rounds * faces_of(p.extents, p.periodic));
}

template <std::size_t kDimensions>
Result<Program> make(const Values& v, const Place& place, const SharedPhases& phases) {
  std::uint64_t bytes = v["cell_bytes"] * v["halo"];
  for (std::size_t d = 1; d < kDimensions; ++d) bytes *= v["cells"];
  if (bytes > parameter::kMostBytes) {
    return Status{
        Code::invalid,
        fmt::format(
            "stencil: cells^{} x halo x cell_bytes is {} bytes; a message may have at most {}",
            kDimensions - 1, bytes, parameter::kMostBytes)};
  }
  const Pattern p{v["rounds"], bytes, v.time("work"), v["periodic"] != 0,
                  balanced(place.ranks, kDimensions)};
  return Program([p, phases](Rank rank) { return stencil(rank, p, phases); });
}

std::vector<Parameter> parameters(std::uint64_t cells) {
  return {parameter::rounds(100),
          parameter::count("cells", cells, 1, 65536, "cells per rank in each dimension"),
          {"cell_bytes", Parameter::Unit::bytes, 8, 1, 65536, "bytes per cell"},
          parameter::count("halo", 1, 1, 64, "layers of cells to exchange"),
          parameter::count("periodic", 1, 0, 1, "1: periodic boundaries"),
          parameter::time("work", 0, "computation of a rank after each exchange")};
}

}  // namespace

std::vector<Workload> stencil_family() {
  return {
      {"stencil2d", "halo exchange with 4 neighbours on a grid of ranks", parameters(512), make<2>},
      {"stencil3d", "halo exchange with 6 neighbours on a grid of ranks", parameters(32), make<3>}};
}

}  // namespace turnout::sim
