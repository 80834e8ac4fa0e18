// SPDX-License-Identifier: BSD-3-Clause
// XRC between processes: one target for all of them, its creator's death, a receiver's, initiators'
// at any moment, and that nothing of them is left.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "hca/live/fabric.h"
#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class XrcProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    use_own_fabric();
    file_ = memfd_create("domain", MFD_CLOEXEC);  // what the processes of a node open
  }
  void TearDown() override {
    close(file_);
    EXPECT_FALSE(fabric_exists());
  }
  int file_ = -1;
};

std::uint32_t get32(Exchange* x, unsigned i) {
  return static_cast<std::uint32_t>(get(x, i));
}
std::shared_ptr<Fabric> fabric() {
  return Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29).value();
}
bool reaped(const Fabric& f, Token token) {
  return f.process(slot_of(token)).token.load() != token;
}
enum : unsigned { kTarget, kInitiator, kGo, kReady, kSrqs = 16, kAddresses = 32, kKeys = 48 };

// A process of the target's node: an SRQ with so many receives, and memory that peers may write.
struct Receiver {
  Receiver(Exchange* x, unsigned rank, int file, unsigned receives) {
    memory = rig.memory(65536);
    xrcd = rig.xrcd(file);
    srq = rig.xrc_srq(xrcd, 64);
    for (std::uint64_t i = 0; i < receives; ++i) post_srq(srq, {memory.sge(i * 64, 64)}, i);
    set(x, kAddresses + rank, memory.address());
    set(x, kKeys + rank, memory.mr->rkey);
    set(x, kSrqs + rank, srq_number(srq));
  }
  // The adapter's name for this process.
  [[nodiscard]] Token owner() const { return fabric()->srq(srq->handle).owner.load(); }
  Rig rig;
  Region memory;
  ibv_xrcd* xrcd;
  ibv_srq* srq;
};

// The process at the other end.
struct Sender {
  explicit Sender(Exchange* x, const ConnectOptions& options = {}) {
    memory = rig.memory(65536);
    qp = rig.xrc_initiator();
    set(x, kInitiator, qp->qp_num);
    connect(qp, get32(x, kTarget), options);
  }
  ibv_wc send(std::uint32_t srqn, std::uint64_t id) {
    post_xrc(qp, srqn, IBV_WR_SEND, memory.sge(0, 16), id);
    return wait_wc(rig.send_cq);
  }
  Rig rig;
  Region memory;
  ibv_qp* qp;
};

TEST_F(XrcProcesses, ShareOneTarget) {
  Exchange* x = exchange();
  constexpr unsigned kReceivers = 4, kEach = 50;
  run(kReceivers + 1, [&](unsigned rank) {
    if (rank == kReceivers) {
      Sender s(x);
      meet(x, 0, kReceivers + 1);
      for (unsigned i = 0; i < kReceivers * kEach; ++i) {
        const unsigned to = i % kReceivers;
        std::memcpy(s.memory.data, &i, sizeof i);
        const std::uint64_t at = get(x, kAddresses + to) + 32768;
        post_xrc(s.qp, get32(x, kSrqs + to), IBV_WR_RDMA_WRITE, s.memory.sge(0, 8), i, at,
                 get32(x, kKeys + to));
        EXPECT_EQ(wait_wc(s.rig.send_cq).status, IBV_WC_SUCCESS);
        EXPECT_EQ(s.send(get32(x, kSrqs + to), i).status, IBV_WC_SUCCESS);
      }
      meet(x, 1, kReceivers + 1);
      return;
    }
    Receiver r(x, rank, file_, 64);
    ibv_qp* target = nullptr;
    if (rank == 0) {
      target = r.rig.xrc_target(r.xrcd);
      set(x, kTarget, target->qp_num);
      connect(target, get32(x, kInitiator));
    } else {
      target = r.rig.open_target(r.xrcd, get32(x, kTarget));
    }
    meet(x, 0, kReceivers + 1);
    for (unsigned i = rank; i < kReceivers * kEach; i += kReceivers) {
      const ibv_wc wc = wait_wc(r.rig.recv_cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.qp_num, target->qp_num);
      EXPECT_EQ(wc.src_qp, get32(x, kInitiator));
      unsigned sent = 0;
      std::memcpy(&sent, r.memory.data + wc.wr_id * 64, sizeof sent);
      EXPECT_EQ(sent, i);
      std::memcpy(&sent, r.memory.data + 32768, sizeof sent);
      EXPECT_GE(sent, i);
    }
    meet(x, 1, kReceivers + 1);
  });
}

// A process can make what another connects, and the creator leaves in good order.
TEST_F(XrcProcesses, TheCreatorLeaves) {
  Exchange* x = exchange();
  run(3, [&](unsigned rank) {
    if (rank == 0) {
      Receiver r(x, rank, file_, 0);
      ibv_qp* target = r.rig.xrc_target(r.xrcd);
      set(x, 100, r.owner());
      set(x, kTarget, target->qp_num);
      meet(x, 0, 2);  // the other has opened it
      return;
    }
    if (rank == 1) {
      Receiver r(x, rank, file_, 4);
      ibv_qp* target = r.rig.open_target(r.xrcd, get32(x, kTarget));
      meet(x, 0, 2);
      auto f = fabric();
      const Token creator = get32(x, 100);
      EXPECT_TRUE(eventually([&] { return reaped(*f, creator); }));
      connect(target, get32(x, kInitiator));
      set(x, kReady, 1);
      EXPECT_EQ(wait_wc(r.rig.recv_cq).status, IBV_WC_SUCCESS);
      meet(x, 1, 2);
      return;
    }
    Sender s(x);
    get(x, kReady);
    EXPECT_EQ(s.send(get32(x, kSrqs + 1), 1).status, IBV_WC_SUCCESS);
    meet(x, 1, 2);
  });
}

TEST_F(XrcProcesses, TheCreatorIsKilled) {
  Exchange* x = exchange();
  Children children = start(3, [&](unsigned rank) {
    if (rank == 0) {
      Receiver r(x, rank, file_, 4);
      ibv_qp* target = r.rig.xrc_target(r.xrcd);
      set(x, kTarget, target->qp_num);
      connect(target, get32(x, kInitiator));
      set(x, 100, r.owner());
      meet(x, 0, 3);
      kill_self();
    }
    if (rank == 1) {
      Receiver r(x, rank, file_, 8);
      ibv_qp* target = r.rig.open_target(r.xrcd, get32(x, kTarget));
      meet(x, 0, 3);
      auto f = fabric();
      EXPECT_TRUE(eventually([&] { return reaped(*f, get32(x, 100)); }));
      set(x, kReady, 1);
      for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(wait_wc(r.rig.recv_cq).wr_id, i);
      EXPECT_EQ(state_of(target), IBV_QPS_RTS);
      meet(x, 1, 2);
      return;
    }
    Sender s(x);
    meet(x, 0, 3);
    EXPECT_EQ(s.send(get32(x, kSrqs + 1), 1).status, IBV_WC_SUCCESS);
    get(x, kReady);  // the dead one was reaped
    for (std::uint64_t i = 2; i < 5; ++i) {
      EXPECT_EQ(s.send(get32(x, kSrqs + 1), i).status, IBV_WC_SUCCESS);
    }
    meet(x, 1, 2);
  });
  finish(children);
  EXPECT_TRUE(children.killed[0]);
  EXPECT_FALSE(children.killed[1]);
  EXPECT_FALSE(children.killed[2]);
}

// Whose receiver is killed goes on with the others, until he names the dead one's queue: that is
// refused, all handles are told, and any of them makes the target anew.
TEST_F(XrcProcesses, AReceiverIsKilled) {
  Exchange* x = exchange();
  constexpr unsigned kReceivers = 3, kVictim = 1;
  Children children = start(kReceivers + 1, [&](unsigned rank) {
    if (rank == kReceivers) {
      ConnectOptions options;
      options.timeout = 10;  // 4 ms
      Sender s(x, options);
      meet(x, 0, kReceivers + 1);
      for (unsigned i = 0; i < 30; ++i) {
        EXPECT_EQ(s.send(get32(x, kSrqs + i % kReceivers), i).status, IBV_WC_SUCCESS);
      }
      set(x, kGo, 1);
      // Under way to the others while it dies.
      for (unsigned i = 0; i < 40; ++i) {
        EXPECT_EQ(s.send(get32(x, kSrqs + i % 2 * 2), i).status, IBV_WC_SUCCESS);
      }
      get(x, kReady);  // reaped
      EXPECT_EQ(s.send(get32(x, kSrqs + kVictim), 1).status, IBV_WC_REM_INV_REQ_ERR);
      EXPECT_EQ(modify_state(s.qp, IBV_QPS_RESET), 0);
      connect(s.qp, get32(x, kTarget), options);
      meet(x, 1, 3);
      meet(x, 2, 3);
      EXPECT_EQ(s.send(get32(x, kSrqs + 0), 1).status, IBV_WC_SUCCESS);
      EXPECT_EQ(s.send(get32(x, kSrqs + 2), 1).status, IBV_WC_SUCCESS);
      meet(x, 3, 3);
      return;
    }
    Receiver r(x, rank, file_, 64);
    ibv_qp* target = nullptr;
    if (rank == 0) {
      target = r.rig.xrc_target(r.xrcd);
      set(x, kTarget, target->qp_num);
      connect(target, get32(x, kInitiator));
    } else {
      target = r.rig.open_target(r.xrcd, get32(x, kTarget));
    }
    auto f = fabric();
    if (rank == kVictim) set(x, 100, r.owner());
    meet(x, 0, kReceivers + 1);
    for (unsigned i = 0; i < 10; ++i) EXPECT_EQ(wait_wc(r.rig.recv_cq).status, IBV_WC_SUCCESS);
    if (rank == kVictim) {
      get(x, kGo);
      kill_self();
    }
    for (unsigned i = 0; i < 20; ++i) EXPECT_EQ(wait_wc(r.rig.recv_cq).status, IBV_WC_SUCCESS);
    if (rank == 0) {
      EXPECT_TRUE(eventually([&] { return reaped(*f, get32(x, 100)); }));
      set(x, kReady, 1);
    }
    ibv_async_event e{};
    EXPECT_TRUE(readable(r.rig.context->async_fd, 10000));
    EXPECT_EQ(ibv_get_async_event(r.rig.context, &e), 0);
    EXPECT_EQ(e.event_type, IBV_EVENT_QP_REQ_ERR);
    EXPECT_EQ(e.element.qp, target);
    ibv_ack_async_event(&e);
    EXPECT_EQ(state_of(target), IBV_QPS_ERR);
    meet(x, 1, 3);
    if (rank == 2) {
      EXPECT_EQ(modify_state(target, IBV_QPS_RESET), 0);
      connect(target, get32(x, kInitiator));
    }
    meet(x, 2, 3);
    EXPECT_EQ(wait_wc(r.rig.recv_cq).status, IBV_WC_SUCCESS);
    meet(x, 3, 3);
  });
  finish(children);
  for (unsigned i = 0; i <= kReceivers; ++i) EXPECT_EQ(children.killed[i], i == kVictim) << i;
}

// Initiators die at random moments, with receives of two processes in their hands: every receive
// comes back, no lock stays held.
TEST_F(XrcProcesses, InitiatorsAreKilledUnderLoad) {
  Exchange* x = exchange();
  constexpr unsigned kReceivers = 2, kVictims = 12, kReceives = 64;
  const unsigned seed = seed_of_test();
  SCOPED_TRACE("TURNOUT_TEST_SEED=" + std::to_string(seed));
  Children receivers = start(kReceivers, [&](unsigned rank) {
    Receiver r(x, rank, file_, 0);
    Region memory = r.rig.memory(std::size_t{kReceives} * 4096);
    for (std::uint64_t i = 0; i < kReceives; ++i) post_srq(r.srq, {memory.sge(i * 4096, 4096)}, i);
    std::uint64_t received = 0;
    const auto take = [&] {
      ibv_wc wc{};
      const int n = ibv_poll_cq(r.rig.recv_cq, 1, &wc);
      ASSERT_GE(n, 0);
      if (n == 0) return;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      const std::uint8_t* p = memory.data + wc.wr_id * 4096;
      for (std::uint32_t i = 1; i < wc.byte_len; ++i) ASSERT_EQ(p[i], p[0]);
      post_srq(r.srq, {memory.sge(wc.wr_id * 4096, 4096)}, wc.wr_id);
      ++received;
    };
    // The first makes a target for every victim, the second opens it.
    for (unsigned v = 0; v < kVictims; ++v) {
      ibv_qp* target = nullptr;
      if (rank == 0) {
        target = r.rig.xrc_target(r.xrcd);
        set(x, 100 + v, target->qp_num);
        connect(target, get32(x, 120 + v));
      } else {
        target = r.rig.open_target(r.xrcd, get32(x, 100 + v));
      }
      x->arrived[v].fetch_add(1);
      while (x->word[140 + v].load() == 0 && !HasFatalFailure()) take();
      r.rig.destroy(target);
    }
    EXPECT_GT(received, 0U);
    auto f = fabric();
    const SrqRecord& record = f->srq(r.srq->handle);
    std::uint64_t left = 0;
    EXPECT_TRUE(eventually([&] {
      take();
      left = record.rq.tail - record.rq.head;
      return left == kReceives;
    })) << left;
  });
  std::mt19937 random(seed);
  for (unsigned v = 0; v < kVictims; ++v) {
    Children victim = start(1, [&](unsigned) {
      Rig rig;
      Region m = rig.memory(8192);
      std::memset(m.data, static_cast<int>(v + 1), m.size);
      ibv_qp* qp = rig.xrc_initiator();
      set(x, 120 + v, qp->qp_num);
      connect(qp, get32(x, 100 + v));
      meet(x, v, kReceivers + 1);
      set(x, 160 + v, 1);
      for (;;) {
        post_xrc(qp, get32(x, kSrqs + random() % kReceivers), IBV_WR_SEND,
                 m.sge(0, 1 + random() % 4096), 1);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      }
    });
    get(x, 160 + v);
    usleep(static_cast<useconds_t>(2000 + random() % 10000));
    kill(victim.pids[0], SIGKILL);
    finish(victim);
    EXPECT_TRUE(victim.killed[0]);
    set(x, 140 + v, 1);
  }
  finish(receivers);
}

struct Count {
  unsigned targets = 0, handles = 0, domains = 0, named = 0;
  bool operator==(const Count&) const = default;
};
Count count(const Fabric& f) {
  Count c;
  for (std::uint32_t i = 0; i < f.header().qp_high; ++i) c.targets += f.qp(i).owner == kShared;
  for (std::uint32_t i = 0; i < f.header().xrc_handle_high; ++i) {
    c.handles += f.xrc_handle(i).owner != 0;
  }
  for (std::uint32_t i = 0; i < f.header().xrcd_high; ++i) c.domains += f.xrcd(i).number != 0;
  for (std::uint32_t i = 0; i < f.header().srq_high; ++i) c.named += f.srq(i).name != 0;
  return c;
}

TEST_F(XrcProcesses, NothingIsLeftOfTheDead) {
  Exchange* x = exchange();
  Children children = start(3, [&](unsigned rank) {
    if (rank > 0) {
      get(x, kGo);
      Receiver r(x, rank, file_, 4);
      r.rig.xrc_target(r.rig.xrcd());
      if (rank == 1) {
        ibv_qp* target = r.rig.xrc_target(r.xrcd);
        set(x, kTarget, target->qp_num);
      } else {
        r.rig.open_target(r.xrcd, get32(x, kTarget));
      }
      meet(x, 0, 3);
      if (rank == 2) {
        // As when it dies while it makes a domain, and while it closes its last handles: the lock
        // is held, and there is what no handle names.
        auto f = fabric();
        Header& h = f->header();
        const Token me = r.owner();
        f->lock(h.table_lock);
        const std::uint32_t index = h.xrcd_high.fetch_add(1);
        f->xrcd(index).number = 5 * kMaxXrcds + index;
        for (std::uint32_t i = 0; i < h.xrc_handle_high; ++i) {
          if (f->xrc_handle(i).owner == me) f->xrc_handle(i).owner = 0;
        }
        kill_self();
      }
      kill_self();
    }
    Rig rig;
    auto f = fabric();
    EXPECT_EQ(count(*f), Count{});
    ibv_xrcd* own = rig.xrcd();
    set(x, kGo, 1);
    meet(x, 0, 3);
    EXPECT_TRUE(eventually([&] {
      return count(*f) == Count{0, 1, 1, 0};
    })) << count(*f).targets
        << ' ' << count(*f).handles << ' ' << count(*f).domains << ' ' << count(*f).named;
    // Nor does the file's domain exist any more, for whoever asks.
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = file_;
    EXPECT_EQ(ibv_open_xrcd(rig.context, &attr), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    attr.oflags = O_CREAT | O_EXCL;
    ibv_xrcd* fresh = ibv_open_xrcd(rig.context, &attr);
    ASSERT_NE(fresh, nullptr);
    EXPECT_EQ(ibv_close_xrcd(fresh), 0);
    rig.close(own);
    EXPECT_EQ(count(*f), Count{});
  });
  finish(children);
  EXPECT_FALSE(children.killed[0]);
}

// What others may have written there is checked.
TEST_F(XrcProcesses, DamagedRecords) {
  Exchange* x = exchange();
  run(1, [&](unsigned) {
    Receiver r(x, 0, file_, 4);
    ibv_qp* target = r.rig.xrc_target(r.xrcd);
    ConnectOptions options;
    options.timeout = 4;
    ibv_qp* qp = r.rig.xrc_initiator();
    connect(target, qp->qp_num);
    connect(qp, target->qp_num, options);
    auto f = fabric();
    const std::uint32_t handles = f->header().xrc_handle_high, domains = f->header().xrcd_high;
    f->header().xrc_handle_high = ~0U;
    f->header().xrcd_high = ~0U;
    SrqRecord& srq = f->srq(r.srq->handle);
    const std::uint32_t cq = srq.cq;
    srq.cq = ~0U;  // where its receives cannot complete
    post_xrc(qp, srq_number(r.srq), IBV_WR_SEND, r.memory.sge(0, 8), 1);
    (void)wait_wc(r.rig.send_cq);
    srq.cq = cq;
    ibv_async_event e{};
    EXPECT_EQ(ibv_get_async_event(r.rig.context, &e), 0);
    EXPECT_EQ(e.event_type, IBV_EVENT_QP_FATAL);
    ibv_ack_async_event(&e);
    f->reap(make_token(4000, 7));  // nobody's
    f->header().xrc_handle_high = handles;
    f->header().xrcd_high = domains;
    EXPECT_EQ(state_of(target), IBV_QPS_ERR);
  });
}

}  // namespace
}  // namespace turnout::hca::test
