// SPDX-License-Identifier: BSD-3-Clause
// Trees: broadcast down a binomial tree, and peers at distance 2^i as collectives show them
// (AQPS 2.2, figures 4 and 5).

#include <fmt/format.h>

#include "sim/workloads/families.h"

namespace turnout::sim {

namespace {

struct Pattern {
  std::uint64_t rounds, bytes;
  std::uint32_t root;
  bool barrier;
};

// One message per edge: from the parent, then to the children, the largest subtree first.
Task broadcast_once(Rank rank, Pattern p) {
  const std::uint64_t n = rank.size();
  const std::uint64_t relative = (rank.id() + n - p.root) % n;
  const auto absolute = [&](std::uint64_t r) {
    return static_cast<std::uint32_t>((r + p.root) % n);
  };
  std::uint64_t bit = 1;
  while (bit < n && (relative & bit) == 0) bit <<= 1;
  if (relative != 0) {
    co_await rank.recv(absolute(relative - bit), p.bytes, kDataTag);
  }
  std::vector<Request> sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (relative + bit >= n) continue;
    sends.push_back(co_await rank.isend(absolute(relative + bit), p.bytes, kDataTag));
  }
  co_await rank.wait_all(sends);
}

Task broadcast(Rank rank, Pattern p, SharedPhases phases) {
  if (rank.id() == 0) phases->begin("broadcast", rank.now());
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    co_await broadcast_once(rank, p);
    if (p.barrier) co_await rank.barrier();
  }
  if (rank.id() == 0) phases->end(rank.now(), p.rounds * (rank.size() - 1));
}

// Step i: to the rank 2^i further on, from the one 2^i before.
Task trees(Rank rank, Pattern p, SharedPhases phases) {
  const std::uint64_t n = rank.size(), id = rank.id();
  if (id == 0) phases->begin("trees", rank.now());
  std::uint64_t steps = 0;
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    for (std::uint64_t distance = 1; distance < n; distance *= 2, ++steps) {
      const auto from = static_cast<std::uint32_t>((id + n - distance) % n);
      const auto to = static_cast<std::uint32_t>((id + distance) % n);
      const Request in = co_await rank.irecv(from, p.bytes, kDataTag);
      const Request out = co_await rank.isend(to, p.bytes, kDataTag);
      co_await rank.wait(in);
      co_await rank.wait(out);
    }
  }
  if (id == 0) phases->end(rank.now(), steps * n);
}

Result<Program> make_broadcast(const Values& v, const Place& place, const SharedPhases& phases) {
  if (v["root"] >= place.ranks) {
    return Status{Code::invalid, fmt::format("broadcast, root = {}: expected a rank from 0 to {}",
                                             v["root"], place.ranks - 1)};
  }
  const Pattern p{v["rounds"], v["bytes"], v.small("root"), v["barrier"] != 0};
  return Program([p, phases](Rank rank) { return broadcast(rank, p, phases); });
}

Result<Program> make_trees(const Values& v, const Place&, const SharedPhases& phases) {
  const Pattern p{v["rounds"], v["bytes"], 0, false};
  return Program([p, phases](Rank rank) { return trees(rank, p, phases); });
}

}  // namespace

std::vector<Workload> tree_family() {
  using namespace parameter;
  return {
      {"broadcast",
       "down a binomial tree, one message per edge",
       {rounds(1), bytes(8), count("root", 0, 0, UINT32_MAX, "rank that has the data"),
        count("barrier", 0, 0, 1, "1: a barrier after each round")},
       make_broadcast},
      {"trees",
       "rank i sends to rank i + 2^k for every k, as collectives do [AQPS 2.2]",
       {rounds(100), bytes(8)},
       make_trees},
  };
}

}  // namespace turnout::sim
