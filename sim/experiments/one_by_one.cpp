// SPDX-License-Identifier: BSD-3-Clause
// Rank 0 goes from one rank to the next in its own time: thousands that want a connection at once
// would wait for receives of its own, and nothing else would happen for long.
#include "sim/study/programs.h"
#include "sim/workloads/families.h"

namespace turnout::sim {

namespace {

Task one_by_one(Rank rank, std::uint64_t messages, Picoseconds apart) {
  if (rank.id() != 0) {
    for (std::uint64_t i = 0; i < messages; ++i) co_await rank.recv(0, 1, kDataTag);
    co_return;
  }
  for (std::uint32_t to = 1; to < rank.size(); ++to) {
    co_await rank.compute(apart);
    for (std::uint64_t i = 0; i < messages; ++i) co_await rank.send(to, 1, kDataTag);
  }
  co_await rank.compute(apart);
}

}  // namespace

const Workload& one_by_one_workload() {
  using namespace parameter;
  static const Workload workload = {
      "one-by-one",
      "rank 0 sends to each other rank in turn, each by itself",
      {count("messages", 8, 1, kMostCount, "messages to each rank"),
       // Setting up a connection takes less.
       time("apart", 4'000'000, "time between two ranks")},
      [](const Values& v, const Place&, const SharedPhases&) -> Result<Program> {
        const auto apart = v.time("apart");
        return Program([messages = v["messages"], apart](Rank rank) {
          return one_by_one(rank, messages, apart);
        });
      }};
  return workload;
}

}  // namespace turnout::sim
