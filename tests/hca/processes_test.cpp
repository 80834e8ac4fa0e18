// SPDX-License-Identifier: BSD-3-Clause
// Several processes: events across them, death at any moment, locks of the dead.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "hca/live/fabric.h"
#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class Processes : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

enum : unsigned { kAddress, kKey, kNumber, kPeer, kDct, kFlag, kPid };
std::uint32_t get32(Exchange* x, unsigned i) {
  return static_cast<std::uint32_t>(get(x, i));
}

TEST_F(Processes, CompletionChannel) {
  Exchange* x = exchange();
  run(2, [&](unsigned rank) {
    Rig rig;
    Region m = rig.memory(4096);
    if (rank == 0) {
      ibv_comp_channel* channel = ibv_create_comp_channel(rig.context);
      ASSERT_NE(channel, nullptr);
      rig.channel = channel;
      QpOptions o;
      o.recv_cq = rig.cq(64, channel);
      ibv_qp* qp = rig.rc(o);
      set(x, 0, qp->qp_num);
      connect(qp, get32(x, 1));
      for (std::uint64_t i = 0; i < 6; ++i) post_recv(qp, {m.sge(i * 64, 64)}, i);
      const auto expect_event = [&](unsigned messages) {
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        EXPECT_TRUE(readable(channel->fd, 10000));
        EXPECT_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
        EXPECT_EQ(cq, o.recv_cq);
        EXPECT_EQ(context, &rig);
        ibv_ack_cq_events(cq, 1);
        for (unsigned i = 0; i < messages; ++i) EXPECT_EQ(wait_wc(cq).status, IBV_WC_SUCCESS);
      };
      EXPECT_EQ(ibv_req_notify_cq(o.recv_cq, 0), 0);
      meet(x, 0, 2);
      expect_event(1);  // one shot: the second message gives no event
      meet(x, 1, 2);
      meet(x, 2, 2);
      EXPECT_FALSE(readable(channel->fd, 0));
      EXPECT_EQ(wait_wc(o.recv_cq).status, IBV_WC_SUCCESS);
      EXPECT_EQ(ibv_req_notify_cq(o.recv_cq, 1), 0);  // solicited only
      meet(x, 3, 2);
      meet(x, 4, 2);
      EXPECT_FALSE(readable(channel->fd, 0));
      meet(x, 5, 2);
      expect_event(2);
      meet(x, 6, 2);
    } else {
      ibv_qp* qp = rig.rc();
      set(x, 1, qp->qp_num);
      connect(qp, get32(x, 0));
      const auto send = [&](unsigned flags) {
        post(qp, IBV_WR_SEND, {m.sge(0, 8)}, 1, 0, 0, flags | IBV_SEND_SIGNALED);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      };
      meet(x, 0, 2);
      send(0);
      meet(x, 1, 2);
      send(0);
      meet(x, 2, 2);
      meet(x, 3, 2);
      send(0);
      meet(x, 4, 2);
      meet(x, 5, 2);
      send(IBV_SEND_SOLICITED);
      meet(x, 6, 2);
    }
  });
}

TEST_F(Processes, DestroyWaitsForAcknowledgement) {
  run(1, [&](unsigned) {
    Rig rig;
    rig.channel = ibv_create_comp_channel(rig.context);
    Region m = rig.memory(4096);
    ibv_cq* cq = ibv_create_cq(rig.context, 16, nullptr, rig.channel, 0);
    QpOptions o;
    o.send_cq = cq;
    ibv_qp* a = rig.rc(o);
    ibv_qp* b = rig.rc();
    connect(a, b->qp_num);
    connect(b, a->qp_num);
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    post(a, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 1, m.address(64), m.mr->rkey);
    ibv_cq* which = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(rig.channel, &which, &context), 0);
    rig.destroy(a);
    std::atomic<bool> acknowledged{false};
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      acknowledged = true;
      ibv_ack_cq_events(which, 1);
    });
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_TRUE(acknowledged);
    other.join();
  });
}

TEST_F(Processes, PeerKilled) {
  Exchange* x = exchange();
  Children children = start(3, [&](unsigned rank) {
    Rig rig;
    Region m = rig.memory(1 << 16);
    if (rank == 2) {  // the victim: a target of RC, DC and a holder of much
      ibv_srq* srq = rig.srq(64);
      for (std::uint64_t i = 0; i < 4; ++i) post_srq(srq, {m.sge(0, 64)}, i);
      ibv_qp* dct = rig.dct(srq);
      for (unsigned i = 0; i < 2; ++i) {
        ibv_qp* qp = rig.rc();
        set(x, 10 + i, qp->qp_num);
        connect(qp, get32(x, i));
      }
      set(x, kAddress + 20, m.address());
      set(x, kKey + 20, m.mr->rkey);
      set(x, kDct + 20, dct->qp_num);
      set(x, kPid + 20, static_cast<std::uint64_t>(getpid()));
      meet(x, 0, 3);
      meet(x, 1, 3);
      kill_self();
    }
    ibv_qp* qp = rig.rc();
    set(x, rank, qp->qp_num);
    connect(qp, get32(x, 10 + rank));
    const std::uint64_t address = get(x, kAddress + 20);
    const std::uint32_t key = get32(x, kKey + 20), dctn = get32(x, kDct + 20);
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    meet(x, 0, 3);
    post(qp, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 1, address, key);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    meet(x, 1, 3);
    // Until its death is noticed operations may still succeed; then they fail, and nothing hangs.
    ibv_wc wc{};
    EXPECT_TRUE(eventually([&] {
      post(qp, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 2, address, key);
      wc = wait_wc(rig.send_cq);
      return wc.status != IBV_WC_SUCCESS;
    }));
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    post_dc(dci, ah, dctn, IBV_WR_SEND, m.sge(0, 8), 3);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    // The others still reach each other.
    ibv_qp* fresh = rig.rc();
    set(x, 40 + rank, fresh->qp_num);
    connect(fresh, get32(x, 40 + 1 - rank));
    if (rank == 0) {
      set(x, 50, m.address());
      set(x, 51, m.mr->rkey);
    } else {
      post(fresh, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 4, get(x, 50), get32(x, 51));
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    }
    meet(x, 2, 2);
  });
  finish(children);
  EXPECT_TRUE(children.killed[2]);
  EXPECT_FALSE(children.killed[0]);
}

// Many deaths at random moments under load; the survivors go on and nothing is left behind.
TEST_F(Processes, KilledUnderLoad) {
  Exchange* x = exchange();
  constexpr unsigned kVictims = 12, kRoom = 65536;
  const unsigned seed = seed_of_test();
  SCOPED_TRACE("TURNOUT_TEST_SEED=" + std::to_string(seed));
  Children children = start(1, [&](unsigned) {
    Rig rig(4096);
    ibv_srq* srq = rig.srq(512);
    Region m = rig.memory(256 * kRoom);
    for (std::uint64_t i = 0; i < 256; ++i) post_srq(srq, {m.sge(i * kRoom, kRoom)}, i);
    ibv_qp* dct = rig.dct(srq);
    set(x, kDct, dct->qp_num);
    set(x, kPid, 1);
    std::uint64_t received = 0;
    // Every message is whole, and every buffer comes back.
    while (x->word[kFlag].load() == 0) {
      ibv_wc wc{};
      const int n = ibv_poll_cq(rig.recv_cq, 1, &wc);
      ASSERT_GE(n, 0);
      if (n == 0) continue;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      // Fast, so that a victim is more often in the middle of a message than waiting for a receive.
      const std::uint8_t* p = m.data + wc.wr_id * kRoom;
      ASSERT_EQ(std::memcmp(p, p + 1, wc.byte_len - 1), 0);
      post_srq(srq, {m.sge(wc.wr_id * kRoom, kRoom)}, wc.wr_id);
      ++received;
    }
    EXPECT_GT(received, 0U);
    // All 256 receives are there: those that the dead had taken were put back, none twice.
    std::uint64_t left = 0;
    EXPECT_TRUE(eventually([&] {
      ibv_wc wc{};
      while (ibv_poll_cq(rig.recv_cq, 1, &wc) == 1) {
        post_srq(srq, {m.sge(wc.wr_id * kRoom, kRoom)}, wc.wr_id);
      }
      auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
      const SrqRecord& record = fabric.value()->srq(srq->handle);
      left = record.rq.tail - record.rq.head;
      return left == 256;
    })) << left;
    set(x, 20, left);
  });
  get(x, kPid);
  std::mt19937 random(seed);
  for (unsigned v = 0; v < kVictims; ++v) {
    Children victim = start(1, [&](unsigned) {
      Rig rig(4096);
      Region m = rig.memory(kRoom);
      std::memset(m.data, static_cast<int>(v + 1), m.size);
      QpOptions o;
      o.send_wr = 256;
      ibv_qp* dci = rig.dci(o);
      ready_dci(dci);
      ibv_ah* ah = rig.ah();
      set(x, 100 + v, 1);
      for (;;) {
        post_dc(dci, ah, get32(x, kDct), IBV_WR_SEND, m.sge(0, 1 + random() % kRoom), 1);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      }
    });
    get(x, 100 + v);
    usleep(static_cast<useconds_t>(2000 + random() % 10000));
    kill(victim.pids[0], SIGKILL);
    finish(victim);
    EXPECT_TRUE(victim.killed[0]);
  }
  set(x, kFlag, 1);
  finish(children);
}

// Events and wake-ups for a peer that just died go nowhere, and do not kill the sender (SIGPIPE).
TEST_F(Processes, EventsToTheDead) {
  Exchange* x = exchange();
  Children children = start(2, [&](unsigned rank) {
    Rig rig;
    Region m = rig.memory(4096);
    if (rank == 1) {
      ibv_srq* srq = rig.srq(64);
      for (std::uint64_t i = 0; i < 60; ++i) post_srq(srq, {m.sge(0, 64)}, i);
      ibv_comp_channel* channel = ibv_create_comp_channel(rig.context);
      QpOptions o;
      o.recv_cq = rig.cq(256, channel);
      ibv_qp* dct = rig.dct(srq, o);
      EXPECT_EQ(ibv_req_notify_cq(o.recv_cq, 0), 0);
      set(x, 0, dct->qp_num);
      set(x, 1, o.recv_cq->handle);
      set(x, 3, m.mr->rkey);
      set(x, 4, m.address());
      meet(x, 0, 2);
      kill_self();
    }
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    const std::uint32_t number = get32(x, 0);
    auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    CqRecord& cq = fabric.value()->cq(get32(x, 1));
    Region own = rig.memory(4096);
    post_dc(dci, ah, number, IBV_WR_RDMA_WRITE, own.sge(0, 8), 1, get(x, 4), get32(x, 3));
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    post_dc(dci, ah, number, IBV_WR_SEND, own.sge(0, 8), 1);  // its pipe is open from now on
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    meet(x, 0, 2);
    EXPECT_TRUE(eventually([&] {
      cq.armed.store(Armed::any);
      post_dc(dci, ah, number, IBV_WR_SEND, own.sge(0, 8), 1);
      return wait_wc(rig.send_cq).status != IBV_WC_SUCCESS;  // noticed
    }));
    fabric.value()->wake_all();
  });
  finish(children);
  EXPECT_TRUE(children.killed[1]);
  EXPECT_FALSE(children.killed[0]);
}

// A process that dies with a lock of the shared state: whoever waits takes it over.
TEST_F(Processes, StolenLocks) {
  Exchange* x = exchange();
  Children children = start(2, [&](unsigned rank) {
    if (rank == 1) {
      get(x, kFlag);
      auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
      ASSERT_TRUE(fabric.ok()) << fabric.status().text();
      Fabric& f = *fabric.value();
      f.lock(f.header().table_lock);
      f.lock(f.cq(static_cast<std::uint32_t>(get(x, 1))).lock);
      f.lock(f.srq(static_cast<std::uint32_t>(get(x, 2))).rq.lock);
      set(x, kPid, 1);
      kill_self();
    }
    Rig rig;
    ibv_srq* srq = rig.srq(8);
    Region m = rig.memory(4096);
    ibv_qp* dct = rig.dct(srq);
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    set(x, 1, rig.recv_cq->handle);
    set(x, 2, srq->handle);
    set(x, kFlag, 1);
    get(x, kPid);
    post_srq(srq, {m.sge(0, 64)}, 1);                             // the SRQ's lock
    post_dc(dci, ah, dct->qp_num, IBV_WR_SEND, m.sge(64, 8), 2);  // and the CQ's
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(wait_wc(rig.recv_cq).status, IBV_WC_SUCCESS);
    rig.memory(4096);  // and the tables'
  });
  finish(children);
  EXPECT_TRUE(children.killed[1]);
}

// A process that dies after it took a receive and before it completed it: the receive comes back.
TEST_F(Processes, TakenReceiveIsPutBack) {
  Exchange* x = exchange();
  Children children = start(2, [&](unsigned rank) {
    if (rank == 1) {
      get(x, kFlag);
      Rig rig;
      ibv_qp* dci = rig.dci();
      auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
      Fabric& f = *fabric.value();
      // Exactly what the executor stores, cut off at two points.
      SrqRecord& srq = f.srq(static_cast<std::uint32_t>(get(x, 2)));
      const auto note = [&](QpRecord& mine, bool advance) {
        f.lock(srq.rq.lock);
        mine.taken_wr_id = 11;
        mine.taken_sges = 0;
        mine.taken_owner = srq.owner.load();
        mine.taken_index = static_cast<std::uint32_t>(get(x, 2));
        mine.taken_position = srq.rq.head;
        srq.rq.taker = static_cast<std::uint32_t>(&mine - &f.qp(0)) + 1;
        mine.taken.store(2);
        if (advance) {
          ++srq.rq.head;
          srq.rq.taker = 0;
          f.unlock(srq.rq.lock);
        }
      };
      note(f.qp(dci->handle), true);        // gone from the queue
      note(f.qp(rig.rc()->handle), false);  // noted only, died with the lock
      set(x, kPid, 1);
      kill_self();
    }
    Rig rig;
    ibv_srq* srq = rig.srq(8);
    for (std::uint64_t i = 11; i < 13; ++i) post_srq(srq, {}, i);
    set(x, 2, srq->handle);
    set(x, kFlag, 1);
    get(x, kPid);
    auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    SrqRecord& record = fabric.value()->srq(srq->handle);
    // One was put back behind the other; the one only noted was never gone.
    EXPECT_TRUE(eventually([&] {
      const SharedGuard guard(*fabric.value(), record.rq.lock);
      return record.rq.tail - record.rq.head == 2 && record.rq.tail == 3;
    }));
  });
  finish(children);
}

TEST_F(Processes, ReapedRecordsAreFree) {
  Exchange* x = exchange();
  Children children = start(2, [&](unsigned rank) {
    if (rank == 1) {
      get(x, kFlag);
      Rig rig(1024);
      rig.srq(1000);
      rig.rc();
      rig.memory(4096);
      set(x, kPid, 1);
      kill_self();
    }
    Rig rig;
    auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    Fabric& f = *fabric.value();
    const auto count = [&] {
      unsigned n = 0;
      for (std::uint32_t i = 0; i < f.header().qp_high; ++i) n += f.qp(i).owner != 0;
      for (std::uint32_t i = 0; i < f.header().cq_high; ++i) n += f.cq(i).owner != 0;
      for (std::uint32_t i = 0; i < f.header().srq_high; ++i) n += f.srq(i).owner != 0;
      for (std::uint32_t i = 0; i < f.header().mr_high; ++i) n += f.mr(i).owner != 0;
      return n;
    };
    const unsigned before = count();
    const auto* tags = static_cast<const PageTag*>(
        static_cast<const void*>(reinterpret_cast<const char*>(&f.header()) + Layout::tags));
    const auto pages = [&] {
      unsigned n = 0;
      for (std::uint64_t i = 0; i < f.header().heap_high; ++i) n += tags[i] != 0;
      return n;
    };
    const unsigned pages_before = pages();
    set(x, kFlag, 1);
    get(x, kPid);
    EXPECT_TRUE(eventually([&] { return count() == before && pages() == pages_before; }));
  });
  finish(children);
}

}  // namespace
}  // namespace turnout::hca::test
