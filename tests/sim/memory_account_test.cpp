// SPDX-License-Identifier: BSD-3-Clause
// The account of real endpoints: as many objects as the program makes, as large as the profile says
// they are; where it says nothing, as large as mlx5's driver makes them.
#include <gtest/gtest.h>

#include "core/memory/account.h"
#include "sim/runtime/simulation.h"
#include "sim/study/programs.h"
#include "tests/support/memory_line.h"

namespace turnout::sim {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint32_t kRanks = 5;
constexpr std::uint64_t kEntries = 512;  // 256 data and 256 control receives

hca::Profile sized() {
  hca::Profile profile;
  profile.memory_rc_qp = 1000;
  profile.memory_dc_data_qp = 200;
  profile.memory_dc_data_fixed = 30'000;
  profile.memory_dc_credit_qp = 70;
  profile.memory_dc_establishment_qp = 11;
  profile.memory_cq_entry = 128;
  profile.memory_srq_entry = 16;
  return profile;
}

Outcome play(const hca::Profile& profile, Settings settings, std::uint32_t waves = 0) {
  Options options;
  options.ranks = kRanks;
  options.profile = profile;
  options.settings = std::move(settings);
  MemoryProgram shape;
  shape.wave = 2;
  shape.waves = waves;
  Result<Outcome> outcome = run(options, memory_program(shape));
  EXPECT_TRUE(outcome.ok()) << outcome.status().text();
  return outcome.ok() ? std::move(outcome).value() : Outcome{};
}

std::uint64_t peak(const Outcome& outcome, std::uint32_t rank, MemoryKind kind) {
  if (rank >= outcome.reports.size()) return 0;
  return memory_line(outcome.reports[rank], kind).peak;
}

// 4 data, 2 credit and 2 establishment queue pairs.
constexpr std::uint64_t kSizedPools = 30'000 + 4 * 200 + 2 * 70 + 2 * 11;

TEST(MemoryAccount, PoolsAreAsLargeAsTheProfileSays) {
  const Outcome outcome = play(sized(), {{"policy", "static:dc-sendrecv"}});
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(peak(outcome, rank, MemoryKind::queue_pairs), kSizedPools);
  }
  EXPECT_EQ(outcome.rc_connections, 0u);
}

TEST(MemoryAccount, EveryRcQueuePairCountsOnce) {
  const Outcome outcome = play(sized(), {{"policy", "rc-rdma-od"}});
  EXPECT_EQ(outcome.rc_connections, 2u * (kRanks - 1));
  EXPECT_EQ(peak(outcome, 0, MemoryKind::queue_pairs), kSizedPools + 1000 * (kRanks - 1));
  EXPECT_EQ(peak(outcome, 1, MemoryKind::queue_pairs), kSizedPools + 1000);
  EXPECT_EQ(peak(outcome, 0, MemoryKind::rings), std::uint64_t{65536} * (kRanks - 1));
}

TEST(MemoryAccount, EntriesOfQueuesAreAsLargeAsTheProfileSays) {
  const Settings settings = {{"policy", "static:dc-sendrecv"}};
  const std::uint64_t plain = peak(play({}, settings), 0, MemoryKind::queues);
  const std::uint64_t given = peak(play(sized(), settings), 0, MemoryKind::queues);
  // Twice the completion entry, half the receive entry.
  EXPECT_EQ(given, 2 * (plain - 32 * kEntries) + 16 * kEntries);
}

TEST(MemoryAccount, WithoutAProfilesSizeItIsTheDrivers) {
  const std::uint64_t dc =
      queue_pair_bytes(QpService::dci, 128, 2, 0) + queue_pair_bytes(QpService::dct, 0, 0, 0);
  const std::uint64_t rc = queue_pair_bytes(QpService::rc, 128, 2, 256);
  EXPECT_EQ(peak(play({}, {{"policy", "static:dc-sendrecv"}}), 0, MemoryKind::queue_pairs), 8 * dc);
  EXPECT_EQ(peak(play({}, {{"policy", "rc-rdma-od"}}), 0, MemoryKind::queue_pairs),
            8 * dc + (kRanks - 1) * rc);
}

// Sources that let go slowly do not make a process have more queue pairs than its pool.
TEST(MemoryAccount, ThePoolLimitsTheQueuePairsThatExist) {
  const auto with_pool = [](const char* pool) {
    return peak(play(sized(),
                     {{"policy", "aqps"},
                      {"interval", "1ms"},
                      {"max_active_rc", "2"},
                      {"rc_pool", pool}},
                     2),
                0, MemoryKind::queue_pairs) -
           kSizedPools;
  };
  EXPECT_EQ(with_pool("128"), 4 * 1000u);  // two waves of two
  EXPECT_EQ(with_pool("3"), 3 * 1000u);
  EXPECT_EQ(with_pool("0"), 2 * 1000u);  // the active ones
}

}  // namespace
}  // namespace turnout::sim
