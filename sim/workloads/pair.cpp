// SPDX-License-Identifier: BSD-3-Clause
// Pairs of ranks: pingpong, and BOWTIE of the rendezvous paper (spec/rendezvous.md).

#include <fmt/format.h>

#include "sim/workloads/families.h"

namespace turnout::sim {
namespace {

struct Pattern {
  std::uint64_t rounds, bytes;
  std::uint32_t distance;  // between the two ranks of a pair
};

// The receive stands before the message that is answered is sent.
Task ping(Rank rank, Pattern p) {
  const std::uint32_t peer = rank.id() + p.distance;
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    const Request answer = co_await rank.irecv(peer, p.bytes, kDataTag);
    co_await rank.send(peer, p.bytes, kDataTag);
    co_await rank.wait(answer);
  }
}

Task pong(Rank rank, Pattern p) {
  const std::uint32_t peer = rank.id() - p.distance;
  Request question = co_await rank.irecv(peer, p.bytes, kDataTag);
  for (std::uint64_t i = 1; i <= p.rounds; ++i) {
    co_await rank.wait(question);
    if (i < p.rounds) question = co_await rank.irecv(peer, p.bytes, kDataTag);
    co_await rank.send(peer, p.bytes, kDataTag);
  }
}

Task ping_pong(Rank rank, Pattern p, SharedPhases phases) {
  const std::uint32_t id = rank.id();
  if (id == 0) phases->begin("pingpong", rank.now());
  if (id < p.distance) {
    co_await ping(rank, p);
  } else if (id < 2 * p.distance) {
    co_await pong(rank, p);
  }
  if (id == 0) phases->end(rank.now(), 2 * p.rounds * p.distance);
}

struct BowTie {
  std::uint64_t bytes;
  std::uint32_t distance;  // between the two ranks of a pair
  int last;                // value of every message's last byte; negative: any
};

// The pseudo-code of the paper: receive, send, wait for both.
Task bow_tie(Rank rank, BowTie b, std::uint64_t rounds) {
  rank.end_messages_with(b.last);
  const std::uint32_t peer = (rank.id() + b.distance) % rank.size();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const Request in = co_await rank.irecv(peer, b.bytes, kDataTag);
    const Request out = co_await rank.isend(peer, b.bytes, kDataTag);
    co_await rank.wait(in);
    co_await rank.wait(out);
  }
}

struct Transfers {
  std::uint64_t bytes;
  std::uint32_t distance;
  Picoseconds early, late;  // of the receiver, against the sender
};

constexpr std::uint64_t kReadyTag = kDataTag + 1;

// A round begins when the receiver has said that it is ready, so both reach it together but for
// what they are told to compute.
Task transfer(Rank rank, Transfers t, std::uint64_t rounds) {
  const std::uint32_t id = rank.id();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    if (id < t.distance) {
      co_await rank.recv(id + t.distance, 8, kReadyTag);
      if (t.early > 0) co_await rank.compute(t.early);
      co_await rank.send(id + t.distance, t.bytes, kDataTag);
    } else if (id < 2 * t.distance) {
      co_await rank.send(id - t.distance, 8, kReadyTag);
      if (t.late > 0) co_await rank.compute(t.late);
      co_await rank.recv(id - t.distance, t.bytes, kDataTag);
    }
  }
}

Status check_pairs(std::string_view workload, std::uint64_t pairs, const Place& place) {
  const std::uint64_t most = place.ranks / 2;
  if (pairs <= most) return {};
  return {Code::invalid, fmt::format("{}, pairs = {}: {} ranks make {} pairs", workload, pairs,
                                     place.ranks, most)};
}

Result<Program> make_transfer(const Values& v, const Place& place, const SharedPhases& phases) {
  const std::uint64_t pairs = v["pairs"] == 0 ? place.ranks / 2 : v["pairs"];
  if (Status status = check_pairs("transfer", pairs, place); !status.ok()) return status;
  const Transfers t{v["bytes"], static_cast<std::uint32_t>(pairs), v.time("early"), v.time("late")};
  const TimedRounds timed{"transfer", v["warmup"], v["rounds"], 2 * pairs};
  return timed_program(timed, transfer, t, phases);
}

Result<Program> make_ping_pong(const Values& v, const Place& place, const SharedPhases& phases) {
  const std::uint64_t pairs = v["pairs"];
  if (Status status = check_pairs("pingpong", pairs, place); !status.ok()) return status;
  const Pattern p{v["rounds"], v["bytes"], static_cast<std::uint32_t>(pairs)};
  return Program([p, phases](Rank rank) { return ping_pong(rank, p, phases); });
}

Result<Program> make_bow_tie(const Values& v, const Place& place, const SharedPhases& phases) {
  if (place.ranks % 2 != 0) {
    return Status{Code::invalid,
                  fmt::format("bowtie needs an even number of ranks, not {}", place.ranks)};
  }
  const BowTie b{v["bytes"], place.ranks / 2,
                 v["last_byte"] > 255 ? -1 : static_cast<int>(v["last_byte"])};
  const TimedRounds timed{"bowtie", v["warmup"], v["rounds"], place.ranks};
  return timed_program(timed, bow_tie, b, phases);
}

}  // namespace

std::vector<Workload> pair_family() {
  using namespace parameter;
  return {
      {"pingpong",
       "rank i and rank i + pairs exchange messages in turn",
       {count("pairs", 1, 1, UINT32_MAX, "active pairs; other ranks are idle"), rounds(1000),
        bytes(8)},
       make_ping_pong},
      {"bowtie",
       "rank i and rank i + n/2 send to each other at the same time; with n/2 ranks per node all "
       "pairs share two adapters [EuroMPI'13]",
       {rounds(100), warmup(0), bytes(16 * 1024),
        count("last_byte", 256, 0, 256, "last byte of every message; 256: any")},
       make_bow_tie},
      {"transfer",
       "rank i sends to rank i + pairs, which receives early or late; their times are part of the "
       "result",
       {count("pairs", 0, 0, UINT32_MAX, "active pairs; 0: all"), rounds(100), warmup(0),
        bytes(16 * 1024), time("early", 0, "computation of the sender before it sends"),
        time("late", 0, "computation of the receiver before it receives")},
       make_transfer},
  };
}

}  // namespace turnout::sim
