// SPDX-License-Identifier: BSD-3-Clause
// What memory shows and when: the last byte last, atomics that add up, nothing after
// deregistration.
#include <cstring>
#include <random>
#include <thread>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

std::uint32_t get32(Exchange* x, unsigned i) {
  return static_cast<std::uint32_t>(get(x, i));
}

// Who polls the last byte of a write sees the rest of it: on shared memory and through CMA.
constexpr std::uint32_t kMost = 20000;
std::uint32_t draw_length(std::mt19937& random, unsigned round) {
  return 1 + static_cast<std::uint32_t>(random() % (round % 4 == 0 ? kMost : 300));
}

class WriteOrder : public ::testing::TestWithParam<bool> {};

TEST_P(WriteOrder, LastByteLast) {
  use_own_fabric();
  Exchange* x = exchange();
  const unsigned seed = seed_of_test();
  SCOPED_TRACE("TURNOUT_TEST_SEED=" + std::to_string(seed));
  constexpr unsigned kRounds = 3000;
  run(2, [&](unsigned rank) {
    Rig rig;
    Region m = rig.memory(1 << 16, GetParam());
    ibv_qp* qp = rig.rc();
    set(x, rank, qp->qp_num);
    connect(qp, get32(x, 1 - rank));
    std::mt19937 random(seed);  // the same sizes on both sides
    if (rank == 1) {
      set(x, 2, m.address());
      set(x, 3, m.mr->rkey);
      for (unsigned round = 1; round <= kRounds; ++round) {
        const std::uint32_t length = draw_length(random, round);
        const auto mark = static_cast<std::uint8_t>(1 + round % 200);
        auto* last = reinterpret_cast<std::atomic<std::uint8_t>*>(m.data + length - 1);
        EXPECT_TRUE(eventually([&] { return last->load(std::memory_order_acquire) == mark; }));
        for (std::uint32_t i = 0; i < length; ++i) {
          ASSERT_EQ(m.data[i], mark) << "round " << round << " byte " << i << " of " << length;
        }
        std::memset(m.data, 0, kMost);
        x->word[10].store(round, std::memory_order_release);
      }
      return;
    }
    const std::uint64_t address = get(x, 2);
    const std::uint32_t key = get32(x, 3);
    for (unsigned round = 1; round <= kRounds; ++round) {
      const std::uint32_t length = draw_length(random, round);
      std::memset(m.data, static_cast<int>(1 + round % 200), length);
      const bool small = length <= 256 && round % 3 == 0;
      post(qp, IBV_WR_RDMA_WRITE, {m.sge(0, length)}, round, address, key,
           IBV_SEND_SIGNALED | (small ? unsigned{IBV_SEND_INLINE} : 0U));
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      EXPECT_TRUE(eventually([&] { return x->word[10].load(std::memory_order_acquire) == round; }));
    }
  });
  EXPECT_FALSE(fabric_exists());
}
INSTANTIATE_TEST_SUITE_P(Memory, WriteOrder, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Plain"; });

// Four processes add to one word.
class AtomicSum : public ::testing::TestWithParam<bool> {};

TEST_P(AtomicSum, AddsUp) {
  use_own_fabric();
  Exchange* x = exchange();
  constexpr unsigned kAdders = 4, kEach = 500;
  run(kAdders, [&](unsigned rank) {
    Rig rig;
    Region m = rig.memory(4096, GetParam());
    ibv_srq* srq = rig.srq(4);
    ibv_qp* dct = rig.dct(srq);
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    if (rank == 0) {
      set(x, 0, m.address());
      set(x, 1, m.mr->rkey);
      set(x, 2, dct->qp_num);
    }
    const std::uint64_t address = get(x, 0);
    const std::uint32_t key = get32(x, 1), number = get32(x, 2);
    Region old = rig.memory(4096);
    std::uint64_t last = 0;
    for (unsigned i = 0; i < kEach; ++i) {
      post_dc(dci, ah, number, IBV_WR_ATOMIC_FETCH_AND_ADD, old.sge(0, 8), i, address, key);
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      std::uint64_t value = 0;
      std::memcpy(&value, old.data, 8);
      EXPECT_TRUE(i == 0 || value > last);
      last = value;
    }
    meet(x, 0, kAdders);
    if (rank == 0) {
      std::uint64_t sum = 0;
      std::memcpy(&sum, m.data, 8);
      EXPECT_EQ(sum, kAdders * kEach);
    }
    meet(x, 1, kAdders);
  });
}
INSTANTIATE_TEST_SUITE_P(Memory, AtomicSum, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Plain"; });

// Memory that was deregistered is not written any more, whatever its peers do: the page is reused
// at once for something else and must stay as it is.
TEST(Deregistration, NothingLandsAfterwards) {
  use_own_fabric();
  Exchange* x = exchange();
  run(2, [&](unsigned rank) {
    Rig rig;
    if (rank == 0) {
      for (std::uint64_t round = 0; round < 200; ++round) {
        Region m = rig.memory(4096);
        x->word[1].store(m.address());
        x->word[2].store(m.mr->rkey);
        x->word[3].store(round + 1);
        ibv_srq* srq = nullptr;
        if (round == 0) {
          srq = rig.srq(4);
          set(x, 0, rig.dct(srq)->qp_num);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100 + round % 7 * 50));
        EXPECT_EQ(ibv_dereg_mr(m.mr), 0);
        std::memset(m.data, 0xaa, 4096);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        for (int i = 0; i < 4096; ++i) ASSERT_EQ(m.data[i], 0xaa);
        m.mr =
            ibv_reg_mr(rig.pd, m.data, 4096, int{IBV_ACCESS_LOCAL_WRITE});  // for the rig to drop
        rig.drop(m);
      }
      x->word[3].store(~0ULL);
      meet(x, 0, 2);
      return;
    }
    Region local = rig.memory(4096);
    std::memset(local.data, 0x55, 4096);
    const std::uint32_t number = get32(x, 0);
    ibv_ah* ah = rig.ah();
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    while (x->word[3].load() != ~0ULL) {
      post_dc(dci, ah, number, IBV_WR_RDMA_WRITE, local.sge(0, 4096), 1, x->word[1].load(),
              static_cast<std::uint32_t>(x->word[2].load()));
      if (wait_wc(rig.send_cq).status != IBV_WC_SUCCESS) {
        EXPECT_EQ(modify_state(dci, IBV_QPS_RESET), 0);
        ready_dci(dci);
      }
    }
    meet(x, 0, 2);
  });
}

// A key repeats after 256 registrations of one record; what it named before must not be touched.
class RepeatedKey : public ::testing::TestWithParam<bool> {};

TEST_P(RepeatedKey, NamesTheNewMemory) {
  use_own_fabric();
  Exchange* x = exchange();
  run(2, [&](unsigned rank) {
    Rig rig;
    ibv_srq* srq = rig.srq(4);
    ibv_qp* dct = rig.dct(srq);
    if (rank == 0) {
      Region first = rig.memory(4096, GetParam());
      const std::uint32_t key = first.mr->rkey;
      set(x, 0, dct->qp_num);
      set(x, 1, first.address());
      set(x, 2, key);
      meet(x, 0, 2);
      meet(x, 1, 2);
      EXPECT_EQ(first.data[0], 7);
      first.data[0] = 0;
      EXPECT_EQ(ibv_dereg_mr(first.mr), 0);
      Region second = rig.memory(4096, GetParam());
      for (int i = 0; i < 256 && second.mr->rkey != key; ++i) {
        rig.drop(second);
        second = rig.memory(4096, GetParam());
      }
      EXPECT_EQ(second.mr->rkey, key);
      set(x, 3, second.address());
      meet(x, 2, 2);
      EXPECT_EQ(second.data[0], 7);
      EXPECT_EQ(first.data[0], 0);
      first.mr = ibv_reg_mr(rig.pd, first.data, 4096, int{IBV_ACCESS_LOCAL_WRITE});  // for the rig
      rig.drop(first);
      return;
    }
    Region local = rig.memory(4096);
    local.data[0] = 7;
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    meet(x, 0, 2);
    for (const unsigned address : {1U, 3U}) {
      post_dc(dci, ah, get32(x, 0), IBV_WR_RDMA_WRITE, local.sge(0, 1), 1, get(x, address),
              get32(x, 2));
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      meet(x, address == 1 ? 1 : 2, 2);
    }
  });
  EXPECT_FALSE(fabric_exists());
}
INSTANTIATE_TEST_SUITE_P(Memory, RepeatedKey, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Plain"; });

}  // namespace
}  // namespace turnout::hca::test
