// SPDX-License-Identifier: BSD-3-Clause
// All ranks exchange at once: ring, shifts, alltoall in groups (spec/rendezvous.md); and trees:
// broadcast down a binomial tree, and peers at distance 2^i as collectives show them (AQPS 2.2,
// figures 4 and 5).

#include <fmt/format.h>

#include <algorithm>

#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim {
namespace {

struct Pattern {
  std::uint64_t rounds, bytes;
  std::uint32_t group;      // of alltoall; of ring: 1 or 2 ways
  std::uint32_t among = 0;  // of alltoall
};

std::uint32_t further(Rank rank, std::uint64_t distance) {
  const std::uint64_t n = rank.size();
  return static_cast<std::uint32_t>((rank.id() + distance) % n);
}
std::uint32_t before(Rank rank, std::uint64_t distance) {
  const std::uint64_t n = rank.size();
  return static_cast<std::uint32_t>((rank.id() + n - distance % n) % n);
}

// Rightward messages have tag kDataTag, leftward ones the next: with two ranks both neighbours are
// the same.
Task ring(Rank rank, Pattern p, SharedPhases phases) {
  const std::uint32_t left = before(rank, 1), right = further(rank, 1);
  if (rank.id() == 0) phases->begin("ring", rank.now());
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    const Request in = co_await rank.irecv(left, p.bytes, kDataTag);
    Request back;
    if (p.group == 2) back = co_await rank.irecv(right, p.bytes, kDataTag + 1);
    const Request out = co_await rank.isend(right, p.bytes, kDataTag);
    if (p.group == 2) {
      const Request to_left = co_await rank.isend(left, p.bytes, kDataTag + 1);
      co_await rank.wait(back);
      co_await rank.wait(to_left);
    }
    co_await rank.wait(in);
    co_await rank.wait(out);
  }
  if (rank.id() == 0) phases->end(rank.now(), p.rounds * p.group * rank.size());
}

// Of one round of all rows, the last of which may be shorter.
std::uint64_t messages_among(std::uint64_t among, std::uint64_t ranks) {
  const std::uint64_t rest = ranks % among;
  return ranks / among * among * (among - 1) + (rest > 0 ? rest * (rest - 1) : 0);
}

// The pseudo-code of the paper; what a rank sends to itself does not reach the library. Among
// fewer than all: each row of so many ranks by itself.
Task all_to_all(Rank rank, Pattern p, std::uint64_t rounds) {
  const std::uint64_t among = p.among == 0 ? rank.size() : p.among;
  const std::uint64_t row = rank.id() / among * among;
  const std::uint64_t n = std::min<std::uint64_t>(among, rank.size() - row);
  const std::uint64_t place = rank.id() - row;
  std::vector<Request> requests;
  requests.reserve(2 * std::size_t{p.group});
  for (std::uint64_t i = 0; i < rounds; ++i) {
    for (std::uint64_t first = 0; first < n; first += p.group) {
      requests.clear();
      const std::uint64_t last = std::min<std::uint64_t>(first + p.group, n);
      for (std::uint64_t distance = std::max<std::uint64_t>(first, 1); distance < last;
           ++distance) {
        requests.push_back(co_await rank.isend(
            static_cast<std::uint32_t>(row + (place + distance) % n), p.bytes, kDataTag));
        requests.push_back(co_await rank.irecv(
            static_cast<std::uint32_t>(row + (place + n - distance) % n), p.bytes, kDataTag));
      }
      co_await rank.wait_all(requests);
    }
  }
}

struct Shifts {
  std::uint64_t shifts, messages, bytes, stride;
  std::uint32_t window, ahead;
};

// Shift k: so many messages to the rank k strides further on; then the partner changes.
Task shifts(Rank rank, Shifts p, SharedPhases phases) {
  const std::uint64_t n = rank.size();
  if (rank.id() == 0) phases->begin("shifts", rank.now());
  Window sends(p.window), receives(p.ahead);
  std::uint64_t total = 0;
  for (std::uint64_t k = 1; k <= p.shifts; ++k) {
    const std::uint64_t distance = k * p.stride % n;
    if (distance == 0) continue;
    const std::uint32_t from = before(rank, distance), to = further(rank, distance);
    std::uint64_t posted = 0;
    for (std::uint64_t i = 0; i < p.messages; ++i) {
      for (; posted < p.messages && !receives.full(); ++posted) {
        receives.push(co_await rank.irecv(from, p.bytes, kDataTag));
      }
      if (sends.full()) co_await rank.wait(sends.pop());
      sends.push(co_await rank.isend(to, p.bytes, kDataTag));
      co_await rank.wait(receives.pop());
    }
    while (!sends.empty()) co_await rank.wait(sends.pop());
    total += p.messages * n;
  }
  if (rank.id() == 0) phases->end(rank.now(), total);
}

Result<Program> make_ring(const Values& v, const Place&, const SharedPhases& phases) {
  const Pattern p{v["rounds"], v["bytes"], v.small("ways"), 0};
  return Program([p, phases](Rank rank) { return ring(rank, p, phases); });
}

Result<Program> make_all_to_all(const Values& v, const Place& place, const SharedPhases& phases) {
  const Pattern p{v["rounds"], v["bytes"], v.small("group"), v.small("among")};
  const std::uint64_t among = p.among == 0 ? place.ranks : p.among;
  const TimedRounds timed{"alltoall", v["warmup"], v["rounds"], messages_among(among, place.ranks)};
  return timed_program(timed, all_to_all, p, phases);
}

Result<Program> make_shifts(const Values& v, const Place& place, const SharedPhases& phases) {
  const std::uint64_t all = place.ranks - 1;
  const Shifts p{v["shifts"] == 0 ? all : v["shifts"],
                 v["messages"],
                 v["bytes"],
                 v["stride"],
                 v.small("window"),
                 v.small("ahead")};
  return Program([p, phases](Rank rank) { return shifts(rank, p, phases); });
}

struct Tree {
  std::uint64_t rounds, bytes;
  std::uint32_t root;
  bool barrier;
};

// One message per edge: from the parent, then to the children, the largest subtree first.
Task broadcast_once(Rank rank, Tree p) {
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

Task broadcast(Rank rank, Tree p, SharedPhases phases) {
  if (rank.id() == 0) phases->begin("broadcast", rank.now());
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    co_await broadcast_once(rank, p);
    if (p.barrier) co_await rank.barrier();
  }
  if (rank.id() == 0) phases->end(rank.now(), p.rounds * (rank.size() - 1));
}

// Step i: to the rank 2^i further on, from the one 2^i before.
Task trees(Rank rank, Tree p, SharedPhases phases) {
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
  const Tree p{v["rounds"], v["bytes"], v.small("root"), v["barrier"] != 0};
  return Program([p, phases](Rank rank) { return broadcast(rank, p, phases); });
}

Result<Program> make_trees(const Values& v, const Place&, const SharedPhases& phases) {
  const Tree p{v["rounds"], v["bytes"], 0, false};
  return Program([p, phases](Rank rank) { return trees(rank, p, phases); });
}

}  // namespace

std::vector<Workload> exchange_family() {
  using namespace parameter;
  return {{"ring",
           "every rank sends to the next one",
           {rounds(100), bytes(8), count("ways", 1, 1, 2, "2: also to the previous one")},
           make_ring},
          {"alltoall",
           "every rank to every other, a group of partners at a time [EuroMPI'13: groups of 4]",
           {rounds(1), warmup(0), bytes(16 * 1024),
            count("group", 4, 1, kMostRequests, "partners between two waits"),
            count("among", 0, 0, UINT32_MAX,
                  "ranks per row that exchange among themselves; 0: all ranks")},
           make_all_to_all},
          {"shifts",
           "every rank sends a batch to rank i + 1, then to i + 2, and so on: partners change",
           {count("shifts", 0, 0, UINT32_MAX, "number of partners; 0: all"),
            count("messages", 100, 1, kMostCount, "messages of each rank to each partner"),
            count("stride", 1, 1, UINT32_MAX, "distance between successive partners"), bytes(8),
            window(16), ahead(16)},
           make_shifts},
          {"broadcast",
           "down a binomial tree, one message per edge",
           {rounds(1), bytes(8), count("root", 0, 0, UINT32_MAX, "rank that has the data"),
            count("barrier", 0, 0, 1, "1: a barrier after each round")},
           make_broadcast},
          {"trees",
           "rank i sends to rank i + 2^k for every k, as collectives do [AQPS 2.2]",
           {rounds(100), bytes(8)},
           make_trees}};
}

}  // namespace turnout::sim
