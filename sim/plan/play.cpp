// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <deque>
#include <utility>

#include "sim/plan/scaled.h"

namespace turnout::sim::plan {
namespace {

Task play(Rank rank, std::shared_ptr<const ScaledProgram> program, std::uint64_t seed,
          SharedPhases phases) {
  if (rank.id() == 0) phases->begin("pattern", rank.now());
  std::deque<std::pair<std::uint64_t, Request>> pending;
  Walk walk(*program, rank.id(), seed);
  Walk::Step step;
  for (step = walk.next(); step.instruction != nullptr; step = walk.next()) {
    const Instruction& one = *step.instruction;
    if (step.compute > 0) {
      co_await rank.compute(static_cast<Picoseconds>(step.compute * hca::kNanosecond));
    }
    if (one.kind == Instruction::Kind::start) {
      Request request;
      switch (one.operation) {
        case TraceEvent::Kind::put:
          request = co_await rank.iput(step.peer, step.bytes);
          break;
        case TraceEvent::Kind::get:
          request = co_await rank.iget(step.peer, step.bytes);
          break;
        case TraceEvent::Kind::receive:
          request =
              co_await rank.irecv(step.peer, std::max(step.bytes, program->most_bytes), one.tag);
          break;
        default:
          request = co_await rank.isend(step.peer, step.bytes, one.tag);
          break;
      }
      pending.emplace_back(step.number, request);
    } else if (one.all) {
      while (!pending.empty()) {
        const Request request = pending.front().second;
        pending.pop_front();
        co_await rank.wait(request);
      }
    } else {
      for (const std::uint32_t back : one.back) {
        const auto found = std::find_if(pending.begin(), pending.end(), [&](const auto& entry) {
          return entry.first + back == step.number;
        });
        if (found == pending.end()) continue;
        const Request request = found->second;
        pending.erase(found);
        co_await rank.wait(request);
      }
    }
  }
  for (const auto& [number, request] : pending) co_await rank.wait(request);
  if (step.compute > 0) {
    co_await rank.compute(static_cast<Picoseconds>(step.compute * hca::kNanosecond));
  }
  if (rank.id() == 0) {
    phases->end(rank.now(), static_cast<std::uint64_t>(program->messages));
  }
}

}  // namespace

Instance make_scaled(std::shared_ptr<const ScaledProgram> program, std::uint64_t seed) {
  const auto phases = std::make_shared<Phases>();
  return {[program, phases, seed](Rank rank) { return play(rank, program, seed, phases); }, phases};
}

}  // namespace turnout::sim::plan
