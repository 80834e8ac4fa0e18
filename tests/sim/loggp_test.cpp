// SPDX-License-Identifier: BSD-3-Clause
// With queue-pair contexts, DC's connections and set-up free, times agree with LogGP's closed forms
// to the picosecond: o = processor.post at the sender and processor.entry at the receiver, L =
// wire.hop, G = wire.rate over payload and header.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kHeader = 32;  // wire::Header
constexpr Picoseconds kSend = 170'001, kTake = 90'003, kHop = 700'007, kPerKib = 150'528;

Options options_for(std::uint32_t ranks) {
  Options options;
  options.ranks = ranks;
  options.start_spread = 0;
  options.profile.processor_post = kSend;
  options.profile.processor_entry = kTake;
  options.profile.wire_hop = kHop;
  options.profile.wire_rate = kPerKib;
  options.settings = {{"policy", "static:dc-sendrecv"}, {"credits", "128"}};
  return options;
}

Picoseconds wire(std::uint64_t bytes) {
  return hca::time_of(kPerKib, bytes + kHeader);
}

struct Times {
  Picoseconds begin = 0;
  std::vector<Picoseconds> end;
};

Task ping_pong(Rank rank, std::uint64_t bytes, int rounds, std::shared_ptr<Times> times) {
  // The first messages introduce the two to each other.
  for (int i = -4; i < rounds; ++i) {
    if (i == 0 && rank.id() == 0) times->begin = rank.now();
    if (rank.id() == 0) co_await rank.send(1, bytes, 1);
    co_await rank.recv(1 - rank.id(), bytes, 1);
    if (rank.id() == 1) co_await rank.send(0, bytes, 1);
  }
  if (rank.id() == 0) times->end.push_back(rank.now());
}

TEST(LogGP, PingPong) {
  for (const std::uint64_t bytes : {1u, 8u, 100u, 1000u, 4000u}) {
    constexpr int kRounds = 40;
    auto times = std::make_shared<Times>();
    auto result =
        run(options_for(2), [&](Rank rank) { return ping_pong(rank, bytes, kRounds, times); });
    ASSERT_TRUE(result.ok()) << result.status().text();
    const Picoseconds one_way = kSend + wire(bytes) + kHop + kTake;
    EXPECT_EQ(times->end.at(0) - times->begin, 2 * kRounds * one_way) << bytes;
  }
}

// Children of a rank in the binomial tree of n, in the order of sending.
std::vector<std::uint32_t> children(std::uint32_t rank, std::uint32_t n) {
  std::vector<std::uint32_t> all;
  std::uint32_t bit = 1;
  while (bit < n && (rank & bit) == 0) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (rank + bit < n) all.push_back(rank + bit);
  }
  return all;
}
std::uint32_t parent(std::uint32_t rank) {
  return rank & (rank - 1);
}

Task broadcast(Rank rank, std::uint64_t bytes, std::shared_ptr<Times> times) {
  const auto next = children(rank.id(), rank.size());
  for (int round = 0; round < 3; ++round) {
    // Once to meet each other, once to be welcomed, then for the clock. The root waits until all
    // the others do.
    if (rank.id() == 0) co_await rank.compute(hca::kSecond / 1000);
    if (rank.id() == 0) times->begin = rank.now();
    if (rank.id() != 0) co_await rank.recv(parent(rank.id()), bytes, 1);
    for (const std::uint32_t child : next) co_await rank.send(child, bytes, 1);
    times->end[rank.id()] = rank.now();
    for (const std::uint32_t child : next) co_await rank.recv(child, 1, 2);
    if (rank.id() != 0) co_await rank.send(parent(rank.id()), 1, 2);
  }
}

TEST(LogGP, Broadcast) {
  for (const std::uint32_t n : {2u, 3u, 8u, 16u, 31u}) {
    for (const std::uint64_t bytes : {8u, 4000u}) {
      auto times = std::make_shared<Times>();
      times->end.resize(n);
      auto result = run(options_for(n), [&](Rank rank) { return broadcast(rank, bytes, times); });
      ASSERT_TRUE(result.ok()) << result.status().text();
      // When a rank has sent to all its children, by the closed form.
      std::vector<Picoseconds> has(n), done(n);
      for (std::uint32_t rank = 0; rank < n; ++rank) {  // parents come before children
        Picoseconds processor = has[rank], link = 0;
        for (const std::uint32_t child : children(rank, n)) {
          processor += kSend;
          link = std::max(link, processor) + wire(bytes);
          has[child] = link + kHop + kTake;
        }
        done[rank] = processor;
      }
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        EXPECT_EQ(times->end[rank] - times->begin, done[rank])
            << "rank " << rank << " of " << n << ", " << bytes << " bytes";
      }
    }
  }
}

}  // namespace
}  // namespace turnout::sim
