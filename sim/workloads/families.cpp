// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/families.h"

#include <fmt/format.h>

namespace turnout::sim {

Task play_timed(Rank rank, TimedRounds timed, std::function<Task(Rank, std::uint64_t rounds)> body,
                std::shared_ptr<Phases> phases) {
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

Status check_pairs(std::string_view workload, std::uint64_t pairs, const Place& place) {
  const std::uint64_t most = place.ranks / 2;
  if (pairs <= most) return {};
  return {Code::invalid, fmt::format("{}, pairs = {}: {} ranks make {} pairs", workload, pairs,
                                     place.ranks, most)};
}

}  // namespace turnout::sim
