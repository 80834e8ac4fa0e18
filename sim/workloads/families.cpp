// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/families.h"

namespace turnout::sim {

Task play_timed(Rank rank, TimedRounds timed, std::function<Task(Rank, std::uint64_t rounds)> body,
                SharedPhases phases) {
  const bool tells = rank.id() == 0;
  if (timed.warmup > 0) {
    if (tells) phases->begin("warmup", rank.now());
    co_await body(rank, timed.warmup);
    co_await rank.barrier();
    if (tells) phases->end(rank.now(), timed.warmup * timed.messages);
  }
  if (tells) phases->begin(timed.name, rank.now());
  co_await body(rank, timed.rounds);
  co_await rank.barrier();
  if (tells) phases->end(rank.now(), timed.rounds * timed.messages);
}

}  // namespace turnout::sim
