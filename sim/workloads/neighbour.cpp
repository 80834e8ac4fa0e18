// SPDX-License-Identifier: BSD-3-Clause
// Random neighbours: every rank exchanges with a few ranks drawn at random, as sparse solvers and
// graph programs do.
//
// Pattern k puts all ranks on a circle in the order of a permutation drawn from the simulation's
// seed; each sends to the next one on it. So everyone knows who sends, and nobody sends to itself.

#include <algorithm>

#include "sim/workloads/families.h"
#include "sim/workloads/permutation.h"

namespace turnout::sim {

namespace {

struct Pattern {
  std::uint64_t messages, bytes, seed;
  std::uint32_t neighbours;
};

Task neighbours(Rank rank, Pattern p, SharedPhases phases) {
  const std::uint64_t n = rank.size();
  std::vector<std::uint32_t> to, from;
  Random keys(p.seed);
  for (std::uint32_t k = 0; k < p.neighbours; ++k) {
    const Permutation circle(rank.size(), keys.next());
    const std::uint64_t place = circle.inverse(rank.id());
    to.push_back(circle(static_cast<std::uint32_t>((place + 1) % n)));
    from.push_back(circle(static_cast<std::uint32_t>((place + n - 1) % n)));
  }
  if (rank.id() == 0) phases->begin("random", rank.now());
  std::vector<Request> requests;
  requests.reserve(2 * std::size_t{p.neighbours});
  for (std::uint64_t done = 0; done < p.messages; done += p.neighbours) {
    const std::uint64_t turn = std::min<std::uint64_t>(p.neighbours, p.messages - done);
    requests.clear();
    // Two circles may give the same neighbour: the circle is the tag.
    for (std::uint64_t k = 0; k < turn; ++k) {
      requests.push_back(co_await rank.irecv(from[k], p.bytes, kDataTag + k));
    }
    for (std::uint64_t k = 0; k < turn; ++k) {
      requests.push_back(co_await rank.isend(to[k], p.bytes, kDataTag + k));
    }
    co_await rank.wait_all(requests);
  }
  if (rank.id() == 0) phases->end(rank.now(), p.messages * n);
}

Result<Program> make(const Values& v, const Place& place, const SharedPhases& phases) {
  const Pattern p{v["messages"], v["bytes"], place.seed, v.small("neighbours")};
  return Program([p, phases](Rank rank) { return neighbours(rank, p, phases); });
}

}  // namespace

std::vector<Workload> neighbour_family() {
  using namespace parameter;
  return {{"random",
           "every rank exchanges messages with a few randomly chosen ranks",
           {count("messages", 100, 1, kMostCount, "messages per rank"),
            count("neighbours", 10, 1, kMostRequests, "ranks that each rank sends to"), bytes(8)},
           make}};
}

}  // namespace turnout::sim
