// SPDX-License-Identifier: BSD-3-Clause
// Each rank to every other one: connections to everybody are set up in two rounds, behind
// computing, before the rounds that are timed.
#include <algorithm>

#include "sim/study/programs.h"
#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim {

namespace {

constexpr std::uint32_t kUnderWay = 16, kMostSenders = 1U << 20;
// Setting up a connection to everybody, one after the other, takes about a millisecond each.
constexpr Picoseconds kEach = 4 * 1000 * hca::kMicrosecond;

struct Everybody {
  std::uint64_t rounds, bytes;
  std::uint32_t senders;
};

// A message to and from everybody, if one of the two is below `senders`.
Task exchange(Rank rank, const Everybody& p) {
  Window sends(kUnderWay), receives(kUnderWay);
  for (std::uint32_t step = 1; step < rank.size(); ++step) {
    const std::uint32_t to = (rank.id() + step) % rank.size();
    const std::uint32_t from = (rank.id() + rank.size() - step) % rank.size();
    if (std::min(from, rank.id()) < p.senders) {
      if (receives.full()) co_await rank.wait(receives.pop());
      receives.push(co_await rank.irecv(from, p.bytes, kDataTag));
    }
    if (std::min(to, rank.id()) < p.senders) {
      if (sends.full()) co_await rank.wait(sends.pop());
      sends.push(co_await rank.isend(to, p.bytes, kDataTag));
    }
  }
  while (!receives.empty()) co_await rank.wait(receives.pop());
  while (!sends.empty()) co_await rank.wait(sends.pop());
}

Task everybody(Rank rank, Everybody p, SharedPhases phases) {
  // What the first messages ask for is made while all compute.
  if (rank.id() == 0) phases->begin("warmup", rank.now());
  co_await exchange(rank, p);
  co_await rank.compute_beside_thread(kEach * rank.size());
  co_await exchange(rank, p);
  co_await rank.compute_beside_thread(kEach * rank.size());
  co_await rank.barrier();
  if (rank.id() == 0) {
    phases->end(rank.now(), 0);
    phases->begin("all to all", rank.now());
  }
  for (std::uint64_t round = 0; round < p.rounds; ++round) co_await exchange(rank, p);
  co_await rank.barrier();
  // Of one rank.
  if (rank.id() == 0) phases->end(rank.now(), p.rounds * (std::uint64_t{rank.size()} - 1));
}

}  // namespace

const Workload& everybody_workload() {
  using namespace parameter;
  static const Workload workload = {
      "everybody",
      "each rank to every other, or the first ones to all and back",
      {rounds(4), bytes(64),
       count("senders", kMostSenders, 1, kMostSenders,
             "ranks that exchange messages with all; others do so with these alone")},
      [](const Values& v, const Place&, const SharedPhases& phases) -> Result<Program> {
        const Everybody p{v["rounds"], v["bytes"], v.small("senders")};
        return Program([p, phases](Rank rank) { return everybody(rank, p, phases); });
      }};
  return workload;
}

}  // namespace turnout::sim
