// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/programs.h"

#include <algorithm>
#include <limits>

#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim {
namespace {

// aqps-memory.
constexpr std::uint64_t kData = 1, kGo = 2, kTick = 3, kTock = 4, kEnd = 5;
constexpr std::uint32_t kAhead = 64, kUnderWay = 16;
// Setting up the channels of a wave takes about 60 ms.
constexpr int kRounds = 50;
constexpr Picoseconds kRound = 2'000 * hca::kMicrosecond;

std::uint32_t hot_sources(const MemoryProgram& p, std::uint32_t ranks) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(ranks - 1, std::uint64_t{p.wave} * p.waves));
}

// The next `count` messages of these sources, in turn.
Task receive_from(Rank rank, std::uint32_t first, std::uint32_t last, std::uint64_t count) {
  Window receives(kAhead);
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::uint32_t from = first; from <= last; ++from) {
      if (receives.full()) co_await rank.wait(receives.pop());
      receives.push(co_await rank.irecv(from, 1, kData));
    }
  }
  while (!receives.empty()) co_await rank.wait(receives.pop());
}

Task send_to_hearer(Rank rank, std::uint64_t count) {
  Window sends(kUnderWay);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (sends.full()) co_await rank.wait(sends.pop());
    sends.push(co_await rank.isend(0, 1, kData));
  }
  while (!sends.empty()) co_await rank.wait(sends.pop());
}

// Rank 0 and one source wait for what is still being set up; both go on with it meanwhile.
Task settle(Rank rank, std::uint32_t source) {
  for (int i = 0; i < kRounds; ++i) {
    if (rank.id() == 0) {
      co_await rank.send(source, 1, kTick);
      co_await rank.recv(source, 1, kTock);
    } else {
      co_await rank.recv(0, 1, kTick);
      co_await rank.compute(kRound);
      co_await rank.send(0, 1, kTock);
    }
  }
}

std::uint32_t last_of_wave(const MemoryProgram& p, std::uint32_t ranks, std::uint32_t source) {
  return std::min((source - 1) / p.wave * p.wave + p.wave, hot_sources(p, ranks));
}

Task send_go(Rank rank, std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t to = first; to <= last; ++to) co_await rank.send(to, 1, kGo);
}

Task hear(Rank rank, MemoryProgram p) {
  const std::uint32_t sources = rank.size() - 1, hot = hot_sources(p, rank.size());
  for (std::uint32_t from = 1; from <= sources; ++from) {
    co_await receive_from(rank, from, from, p.first_messages);
  }
  co_await settle(rank, sources);
  for (std::uint32_t first = 1; first <= hot; first += p.wave) {
    const std::uint32_t last = last_of_wave(p, rank.size(), first);
    co_await send_go(rank, first, last);
    co_await receive_from(rank, first, last, p.burst);
    co_await settle(rank, last);
    co_await send_go(rank, first, last);
  }
  for (std::uint32_t from = 1; from <= hot; ++from) co_await rank.recv(from, 1, kEnd);
  if (hot > 0) co_await settle(rank, sources);
}

Task speak(Rank rank, MemoryProgram p) {
  const std::uint32_t hot = hot_sources(p, rank.size());
  const bool last = rank.id() == rank.size() - 1;
  co_await rank.compute(p.apart * rank.id());
  co_await send_to_hearer(rank, p.first_messages);
  if (last) co_await settle(rank, rank.id());
  if (rank.id() <= hot) {
    co_await rank.recv(0, 1, kGo);
    co_await send_to_hearer(rank, p.burst);
    if (rank.id() == last_of_wave(p, rank.size(), rank.id())) co_await settle(rank, rank.id());
    co_await rank.recv(0, 1, kGo);
    co_await rank.compute(p.busy);
    co_await rank.send(0, 1, kEnd);
  }
  if (last && hot > 0) co_await settle(rank, rank.id());
}

// one-by-one. Rank 0 goes from one rank to the next in its own time: thousands that want a
// connection at once would wait for receives of its own, and nothing else would happen for long.
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

// everybody. Connections to everybody are set up in two rounds, behind computing, before the rounds
// that are timed.
constexpr std::uint32_t kMostSenders = 1U << 20;
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

Program memory_program(const MemoryProgram& shape) {
  return [shape](Rank rank) { return rank.id() == 0 ? hear(rank, shape) : speak(rank, shape); };
}

const Workload& memory_workload() {
  using namespace parameter;
  constexpr MemoryProgram kUsual;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  constexpr auto in_ns = [](Picoseconds time) {
    return static_cast<std::uint64_t>(time / hca::kNanosecond);
  };
  static const Workload workload = {
      "aqps-memory",
      "every rank sends to rank 0, in waves of sources that send much",
      {count("first", kUsual.first_messages, 0, kMost, "messages of every source at first"),
       time("apart", in_ns(kUsual.apart), "time between the beginnings of two sources"),
       count("wave", kUsual.wave, 1, kMost, "sources of a wave"),
       count("waves", kUsual.waves, 0, kMost, "number of waves"),
       count("burst", kUsual.burst, 0, kMost, "messages of each source of a wave"),
       time("busy", in_ns(kUsual.busy), "what such a source computes afterwards")},
      [](const Values& v, const Place&, const SharedPhases&) -> Result<Program> {
        return memory_program({v.small("first"), v.time("apart"), v.small("wave"), v.small("waves"),
                               v.small("burst"), v.time("busy")});
      }};
  return workload;
}

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

Result<const Workload*> find_program(std::string_view name) {
  for (const Workload* const own :
       {&memory_workload(), &one_by_one_workload(), &everybody_workload()}) {
    if (own->name == name) return own;
  }
  return find_workload(name);
}

}  // namespace turnout::sim
