// SPDX-License-Identifier: BSD-3-Clause
// Partners drawn at random: a few for the whole run, as sparse solvers and graph programs have
// them, or new ones in every phase, and hot spots that move.
//
// A pattern puts all ranks on a circle in the order of a permutation drawn from the simulation's
// seed; each sends to the next one on it. So everyone knows who sends, and nobody sends to itself.
// What a phase does follows from the simulation's seed and its number, so that everyone knows who
// sends to whom. A barrier ends each phase.

#include <algorithm>

#include "sim/workloads/families.h"
#include "sim/workloads/permutation.h"
#include "sim/workloads/window.h"

namespace turnout::sim {
namespace {

struct Pattern {
  std::uint64_t phases, first, messages, bytes, seed;
  std::uint32_t partners;  // of a rank in a phase; of hotspots: hot ranks
  std::uint32_t window, ahead;
};

std::uint64_t key(const Pattern& p, std::uint64_t phase, std::uint64_t number) {
  return Random(p.seed + (phase << 20) + number).next();
}

// Every rank sends to `partners` others in turn, each the next on a circle drawn for the phase.
Task partners_of_a_phase(Rank rank, const Pattern& p, std::uint64_t phase) {
  const std::uint32_t n = rank.size();
  std::vector<std::uint32_t> to, from;
  for (std::uint32_t k = 0; k < p.partners; ++k) {
    const Permutation circle(n, key(p, phase, k));
    const std::uint32_t place = circle.inverse(rank.id());
    to.push_back(circle((place + 1) % n));
    from.push_back(circle((place + n - 1) % n));
  }
  Window sends(p.window), receives(p.ahead);
  std::uint64_t posted = 0;
  for (std::uint64_t i = 0; i < p.messages; ++i) {
    for (; posted < p.messages && !receives.full(); ++posted) {
      const std::uint64_t k = posted % p.partners;  // the tag: two circles may give one neighbour
      receives.push(co_await rank.irecv(from[k], p.bytes, kDataTag + k));
    }
    if (sends.full()) co_await rank.wait(sends.pop());
    const std::uint64_t k = i % p.partners;
    sends.push(co_await rank.isend(to[k], p.bytes, kDataTag + k));
    co_await rank.wait(receives.pop());
  }
  while (!sends.empty()) co_await rank.wait(sends.pop());
}

Task phases_of(Rank rank, Pattern p, SharedPhases phases) {
  if (rank.id() == 0) phases->begin("phases", rank.now());
  for (std::uint64_t phase = 0; phase < p.phases; ++phase) {
    co_await partners_of_a_phase(rank, p, p.first + phase);
    co_await rank.barrier();
  }
  if (rank.id() == 0) phases->end(rank.now(), p.phases * p.messages * rank.size());
}

// Hot ranks take `messages` from each of the others, one after the other; the others send to them
// in turn.
Task moving(Rank rank, Pattern p, SharedPhases phases) {
  const std::uint32_t n = rank.size();
  if (rank.id() == 0) phases->begin("hotspots", rank.now());
  for (std::uint64_t phase = 0; phase < p.phases; ++phase) {
    const Permutation drawn(n, key(p, p.first + phase, 0));  // the first ones are hot
    const bool hot = drawn.inverse(rank.id()) < p.partners;
    Window requests(hot ? p.ahead : p.window);
    for (std::uint64_t i = 0; i < p.messages; ++i) {
      const std::uint32_t others = hot ? n : p.partners;
      for (std::uint32_t k = hot ? p.partners : 0; k < others; ++k) {
        if (requests.full()) co_await rank.wait(requests.pop());
        const Request request = hot ? co_await rank.irecv(drawn(k), p.bytes, kDataTag)
                                    : co_await rank.isend(drawn(k), p.bytes, kDataTag);
        requests.push(request);
      }
    }
    while (!requests.empty()) co_await rank.wait(requests.pop());
    co_await rank.barrier();
  }
  if (rank.id() == 0) {
    phases->end(rank.now(), p.phases * p.messages * p.partners * (n - p.partners));
  }
}

Pattern pattern(const Values& v, const Place& place, std::string_view partners) {
  return {v["phases"], v["first"],        v["messages"],     v["bytes"],
          place.seed,  v.small(partners), v.small("window"), v.small("ahead")};
}

Result<Program> make_phases(const Values& v, const Place& place, const SharedPhases& phases) {
  const Pattern p = pattern(v, place, "partners");
  return Program([p, phases](Rank rank) { return phases_of(rank, p, phases); });
}

Result<Program> make_moving(const Values& v, const Place& place, const SharedPhases& phases) {
  Pattern p = pattern(v, place, "hot");
  p.partners = std::min(p.partners, place.ranks - 1);
  return Program([p, phases](Rank rank) { return moving(rank, p, phases); });
}

constexpr Parameter kPhases =
    parameter::count("phases", 8, 1, 1 << 20, "number of times the pattern changes");
constexpr Parameter kFirst = parameter::count(
    "first", 0, 0, 1 << 20, "number of the first phase: one phase of a longer run by itself");

struct Neighbours {
  std::uint64_t messages, bytes, seed;
  std::uint32_t neighbours;
};

Task neighbours(Rank rank, Neighbours p, SharedPhases phases) {
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

Result<Program> make_random(const Values& v, const Place& place, const SharedPhases& phases) {
  const Neighbours p{v["messages"], v["bytes"], place.seed, v.small("neighbours")};
  return Program([p, phases](Rank rank) { return neighbours(rank, p, phases); });
}

}  // namespace

std::vector<Workload> changing_family() {
  using namespace parameter;
  return {
      {"phases",
       "every rank sends to a few others, which change from phase to phase",
       {kPhases, kFirst, count("messages", 4000, 1, kMostCount, "messages per rank and phase"),
        count("partners", 4, 1, 1024, "ranks that each rank sends to"), bytes(8), window(16),
        ahead(16)},
       make_phases},
      {"hotspots",
       "all ranks send to a few hot ranks, which change from phase to phase",
       {kPhases, kFirst,
        count("messages", 1000, 1, kMostCount, "messages of each rank to each hot rank per phase"),
        count("hot", 2, 1, 1024, "hot ranks per phase, at most all but one"), bytes(8), window(16),
        ahead(64)},
       make_moving},
      {"random",
       "every rank exchanges messages with a few randomly chosen ranks",
       {count("messages", 100, 1, kMostCount, "messages per rank"),
        count("neighbours", 10, 1, kMostRequests, "ranks that each rank sends to"), bytes(8)},
       make_random}};
}

}  // namespace turnout::sim
