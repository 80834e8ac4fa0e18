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

Task ping_pong(Rank rank, Pattern p, std::shared_ptr<Phases> phases) {
  const std::uint32_t id = rank.id();
  if (id == 0) phases->begin("pingpong", rank.now());
  if (id < p.distance) {
    co_await ping(rank, p);
  } else if (id < 2 * p.distance) {
    co_await pong(rank, p);
  }
  if (id == 0) phases->end(rank.now(), 2 * p.rounds * p.distance);
}

// The pseudo-code of the paper: receive, send, wait for both.
Task bow_tie(Rank rank, Pattern p, std::shared_ptr<Phases> phases) {
  const std::uint32_t peer = (rank.id() + p.distance) % rank.size();
  if (rank.id() == 0) phases->begin("bowtie", rank.now());
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    const Request in = co_await rank.irecv(peer, p.bytes, kDataTag);
    const Request out = co_await rank.isend(peer, p.bytes, kDataTag);
    co_await rank.wait(in);
    co_await rank.wait(out);
  }
  if (rank.id() == 0) phases->end(rank.now(), p.rounds * rank.size());
}

Result<Program> make_ping_pong(const Values& v, const Place& place,
                               const std::shared_ptr<Phases>& phases) {
  const std::uint64_t pairs = v["pairs"];
  if (pairs > place.ranks / 2) {
    return Status{Code::invalid, fmt::format("pingpong, pairs = {}: {} ranks make {} pairs", pairs,
                                             place.ranks, place.ranks / 2)};
  }
  const Pattern p{v["rounds"], v["bytes"], static_cast<std::uint32_t>(pairs)};
  return Program([p, phases](Rank rank) { return ping_pong(rank, p, phases); });
}

Result<Program> make_bow_tie(const Values& v, const Place& place,
                             const std::shared_ptr<Phases>& phases) {
  if (place.ranks % 2 != 0) {
    return Status{Code::invalid,
                  fmt::format("bowtie is made of pairs: {} ranks are odd", place.ranks)};
  }
  const Pattern p{v["rounds"], v["bytes"], place.ranks / 2};
  return Program([p, phases](Rank rank) { return bow_tie(rank, p, phases); });
}

}  // namespace

std::vector<Workload> pair_family() {
  return {
      {"pingpong",
       "rank i and rank i + pairs send to and fro",
       2,
       {{"pairs", Parameter::Unit::count, 1, 1, UINT32_MAX, "pairs at work; other ranks are idle"},
        parameter::rounds(1000),
        parameter::bytes(8)},
       make_ping_pong},
      {"bowtie",
       "rank i and rank i + n/2 send to each other at once; with n/2 ranks per node all pairs "
       "share "
       "two adapters [EuroMPI'13]",
       2,
       {parameter::rounds(100), parameter::bytes(16 * 1024)},
       make_bow_tie},
  };
}

}  // namespace turnout::sim
