// SPDX-License-Identifier: BSD-3-Clause
// Random schedules against a model: several DCIs, RC and XRC queue pairs of several processes send,
// write and wait in an order drawn from a seed. Every message arrives once, whole, and in the order
// of its queue pair; every signalled request completes once, in order. A failing seed is printed
// and runs alone with TURNOUT_TEST_SEED.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

struct Message {
  std::uint32_t source, sequence, length, fill;
};
static_assert(sizeof(Message) == 16);

void play(unsigned seed, unsigned ranks, unsigned messages) {
  use_own_fabric();
  SCOPED_TRACE("TURNOUT_TEST_SEED=" + std::to_string(seed));
  Exchange* x = exchange();
  const int file = memfd_create("domain", MFD_CLOEXEC);  // all ranks have one XRC domain
  run(ranks, [&](unsigned rank) {
    std::mt19937 random(seed * 977 + rank);
    Rig rig(4096);
    constexpr std::size_t kSlot = 2048;
    constexpr std::uint64_t kSlots = 64;
    const bool shared = (seed + rank) % 3 != 0;
    // The slots of the SRQ, then those of the XRC SRQ.
    Region in = rig.memory(2 * kSlots * kSlot, shared),
           out = rig.memory(2 * kSlots * kSlot, shared);
    ibv_srq* srq = rig.srq(kSlots);
    const unsigned initial =
        1 + static_cast<unsigned>(random() % 8);  // few: stalls are part of the game
    std::uint64_t free_from = initial;
    for (std::uint64_t i = 0; i < initial; ++i) post_srq(srq, {in.sge(i * kSlot, kSlot)}, i);
    ibv_xrcd* xrcd = rig.xrcd(file);
    ibv_srq* xrc_srq = rig.xrc_srq(xrcd, kSlots);
    for (std::uint64_t i = kSlots; i < kSlots + initial; ++i) {
      post_srq(xrc_srq, {in.sge(i * kSlot, kSlot)}, i);
    }
    ibv_qp* dct = rig.dct(srq);
    set(x, rank, dct->qp_num);
    // One RC pair with the next rank of the ring, on the same SRQ.
    QpOptions with_srq;
    with_srq.srq = srq;
    ibv_qp* right = rig.rc(with_srq);
    ibv_qp* left = rig.rc(with_srq);
    set(x, 16 + rank, right->qp_num);
    set(x, 32 + rank, left->qp_num);
    const unsigned next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    connect(right, static_cast<std::uint32_t>(get(x, 32 + next)));
    connect(left, static_cast<std::uint32_t>(get(x, 16 + previous)));
    // An XRC initiator, connected to a target that the next rank has made and all serve.
    ibv_qp* target = rig.xrc_target(xrcd);
    ibv_qp* xrc = rig.xrc_initiator();
    set(x, 80 + rank, target->qp_num);
    set(x, 96 + rank, xrc->qp_num);
    set(x, 112 + rank, srq_number(xrc_srq));
    connect(xrc, static_cast<std::uint32_t>(get(x, 80 + next)));
    connect(target, static_cast<std::uint32_t>(get(x, 96 + previous)));
    for (unsigned r = 0; r < ranks; ++r) {
      if (r != rank) rig.open_target(xrcd, static_cast<std::uint32_t>(get(x, 80 + r)));
    }
    constexpr unsigned kDcis = 2, kPerQueue = 20, kRc = kDcis, kXrc = kDcis + 1;
    ibv_qp* dci[kDcis];
    for (ibv_qp*& q : dci) {
      q = rig.dci();
      ready_dci(q);
    }
    ibv_ah* ah = rig.ah();

    meet(x, 2, ranks);  // everybody can receive
    // Streams: (queue pair, target). Sequence numbers per stream, checked by the target.
    std::map<std::pair<unsigned, unsigned>, std::uint32_t> sent, seen;
    std::map<std::uint32_t, std::uint64_t> completed;  // by queue pair
    std::uint64_t sends = 0, done = 0, received = 0;
    std::map<unsigned, std::uint64_t> ids;
    const auto step_receive = [&] {
      ibv_wc wc{};
      const int n = ibv_poll_cq(rig.recv_cq, 1, &wc);
      ASSERT_GE(n, 0);
      if (n == 0) return;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      Message m;
      const std::uint8_t* p = in.data + wc.wr_id * kSlot;
      std::memcpy(&m, p, sizeof m);
      ASSERT_EQ(wc.byte_len, m.length);
      for (std::uint32_t i = sizeof m; i < m.length; ++i) {
        ASSERT_EQ(p[i], static_cast<std::uint8_t>(m.fill));
      }
      auto& expected = seen[{m.source >> 8, m.source & 0xff}];
      ASSERT_EQ(m.sequence, expected) << "stream " << m.source;
      ++expected;
      ++received;
      // Give back this slot, or another one that was never used.
      if (wc.wr_id >= kSlots) {
        post_srq(xrc_srq, {in.sge(wc.wr_id * kSlot, kSlot)}, wc.wr_id);
        return;
      }
      const std::uint64_t slot = free_from < kSlots && random() % 4 == 0 ? free_from++ : wc.wr_id;
      post_srq(srq, {in.sge(slot * kSlot, kSlot)}, slot);
    };
    const auto step_send_cq = [&] {
      ibv_wc wc{};
      const int n = ibv_poll_cq(rig.send_cq, 1, &wc);
      ASSERT_GE(n, 0);
      if (n == 0) return;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, completed[wc.qp_num] + 1);
      completed[wc.qp_num] = wc.wr_id;
      ++done;
    };
    std::uint64_t targets[16] = {};
    while (sends < messages) {
      const auto what = static_cast<unsigned>(random() % 8);
      if (what < 2) step_receive();
      if (what >= 2 && what < 4) step_send_cq();
      const auto queue = static_cast<unsigned>(random() % (kDcis + 2));
      ibv_qp* by = queue == kRc ? right : queue == kXrc ? xrc : dci[queue];
      // Buffers are per queue: one stalled queue keeps its own only.
      if (what < 4 || ids[queue] - completed[by->qp_num] >= kPerQueue) {
        step_receive();
        step_send_cq();
        if (::testing::Test::HasFatalFailure()) return;
        continue;
      }
      const unsigned to = queue == kRc ? next : static_cast<unsigned>(random() % ranks);
      Message m{rank << 8 | queue, sent[{queue, to}]++,
                static_cast<std::uint32_t>(sizeof(Message) + random() % (kSlot - sizeof(Message))),
                static_cast<std::uint32_t>(random() % 256)};
      const std::uint64_t id = ++ids[queue];
      const std::size_t slot = queue * kPerQueue + id % kPerQueue;
      std::uint8_t* p = out.data + slot * kSlot;
      std::memset(p, static_cast<int>(m.fill), m.length);
      std::memcpy(p, &m, sizeof m);
      const bool small = m.length <= 256 && random() % 2 == 0;
      const unsigned flags = IBV_SEND_SIGNALED | (small ? unsigned{IBV_SEND_INLINE} : 0U);
      if (queue == kRc) {
        post(right, IBV_WR_SEND, {out.sge(slot * kSlot, m.length)}, id, 0, 0, flags);
      } else if (queue == kXrc) {
        post_xrc(xrc, static_cast<std::uint32_t>(get(x, 112 + to)), IBV_WR_SEND,
                 out.sge(slot * kSlot, m.length), id, 0, 0, flags);
      } else {
        post_dc(dci[queue], ah, static_cast<std::uint32_t>(get(x, to)), IBV_WR_SEND,
                out.sge(slot * kSlot, m.length), id, 0, 0, kDcKey, flags);
      }
      ++sends;
      ++targets[to];
    }
    for (unsigned to = 0; to < ranks; ++to) x->word[64 + to].fetch_add(targets[to]);
    x->arrived[0].fetch_add(1);
    EXPECT_TRUE(eventually([&] {
      step_receive();
      step_send_cq();
      return ::testing::Test::HasFatalFailure() ||
             (x->arrived[0].load() == ranks && done == sends &&
              received == x->word[64 + rank].load());
    })) << "received "
        << received << " of " << x->word[64 + rank].load() << ", completed " << done << " of "
        << sends;
    EXPECT_TRUE(empty(rig.recv_cq));
    meet(x, 1, ranks);
  });
  close(file);
  EXPECT_FALSE(fabric_exists());
}

TEST(Schedule, Random) {
  const unsigned first = seed_of_test();
  for (unsigned round = 0; round < 4 && !HasFailure(); ++round) play(first + round, 4, 1000);
}

// Threads share everything: a queue pair, its CQs, the SRQ, and register memory meanwhile.
TEST(Schedule, Threads) {
  use_own_fabric();
  constexpr unsigned kThreads = 4, kEach = 300;
  {
    Rig rig(8192);
    ibv_srq* srq = rig.srq(256);
    QpOptions options;
    options.send_wr = 4096;
    ibv_qp* dct = rig.dct(srq);
    ibv_qp* dci = rig.dci(options);
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    Region in = rig.memory(256 * 64);
    std::atomic<unsigned> sent{0}, received{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::uint8_t> own(4096);
        for (unsigned i = 0; i < kEach; ++i) {
          post_srq(srq, {in.sge((t * 64 + i % 64) * 64, 64)}, i);
          ibv_mr* mr = ibv_reg_mr(rig.pd, own.data(), own.size(), int{IBV_ACCESS_LOCAL_WRITE});
          const ibv_sge sge{reinterpret_cast<std::uint64_t>(own.data()), 32, mr->lkey};
          post_dc(dci, ah, dct->qp_num, IBV_WR_SEND, sge, i, 0, 0, kDcKey,
                  IBV_SEND_SIGNALED | IBV_SEND_INLINE);
          EXPECT_EQ(ibv_dereg_mr(mr), 0);
          ibv_wc wc{};
          if (ibv_poll_cq(rig.send_cq, 1, &wc) == 1) {
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            ++sent;
          }
          if (ibv_poll_cq(rig.recv_cq, 1, &wc) == 1) {
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            ++received;
          }
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_TRUE(eventually([&] {
      ibv_wc wc{};
      sent += ibv_poll_cq(rig.send_cq, 1, &wc) == 1;
      received += ibv_poll_cq(rig.recv_cq, 1, &wc) == 1;
      return sent == kThreads * kEach && received == kThreads * kEach;
    })) << sent
        << ' ' << received;
  }
  EXPECT_FALSE(fabric_exists());
}

TEST(Schedule, ManyProcesses) {
  play(7, 12, 300);
}

}  // namespace
}  // namespace turnout::hca::test
