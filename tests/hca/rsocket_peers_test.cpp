// SPDX-License-Identifier: BSD-3-Clause
// Rsockets and what others do to them: peers that die or send rubbish, threads, fork.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "hca/cm/rsocket_protocol.h"
#include "tests/hca/rsocket_rig.h"

namespace turnout::cm::test {
namespace {

using hca::test::eventually;
using Peers = Rsockets;

// The process at either end is killed, while the other one waits for data or for room.
TEST_F(Peers, AreKilled) {
  hca::test::Exchange* x = hca::test::exchange();
  hca::test::run(3, [&](unsigned rank) {
    if (rank == 0) {
      Sock listener;
      listen_on_loopback(listener);
      hca::test::set(x, 0, name_of(listener).sin_port);
      const Sock reads = Sock::of(raccept(listener, nullptr, nullptr));
      EXPECT_EQ(take(reads, 100, MSG_WAITALL), "before");
      EXPECT_EQ(take(reads, 100), "");
      EXPECT_EQ(ready(reads, POLLIN) & (POLLIN | POLLHUP), POLLIN | POLLHUP);
      hca::test::set(x, 1, 1);
      const Sock writes = Sock::of(raccept(listener, nullptr, nullptr));
      EXPECT_EQ(take(writes, 5, MSG_WAITALL), "ready");
      hca::test::kill_self();
    }
    if (rank == 2) hca::test::get(x, 1);
    const Sock active;
    sockaddr_in to = ipv4("127.0.0.1", ntohs(static_cast<std::uint16_t>(hca::test::get(x, 0))));
    ASSERT_EQ(rconnect(active, generic(to), sizeof to), 0) << errno;
    if (rank == 1) {
      give(active, "before");
      hca::test::kill_self();
    }
    give(active, "ready");
    const std::string piece(50'000, 'w');
    EXPECT_TRUE(eventually([&] { return rsend(active, piece.data(), piece.size(), 0) < 0; }));
    EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << errno;
    EXPECT_LE(rrecv(active, to.sin_zero, 1, 0), 0);
  });
}

// Who connects, and then does not keep to the protocol.
class BadPeer : public Rsockets {
 protected:
  // An identifier that says `hello` to an rsocket; true if it was taken.
  bool connect_with(const Hello& hello) {
    channel = rdma_create_event_channel();
    sockaddr_in to = name_of(listener);
    EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
    cm::test::take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id, 1000), 0);
    cm::test::take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    ibv_qp_init_attr attr = small_qp(IBV_QPT_RC);
    attr.cap.max_inline_data = 64;
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    rdma_conn_param p = with_data({reinterpret_cast<const char*>(&hello), sizeof hello});
    EXPECT_EQ(rdma_connect(id, &p), 0);
    do_not_block(listener);
    ready(listener, POLLIN, 100);
    accepted = raccept(listener, nullptr, nullptr);
    if (accepted < 0) {
      cm::test::take(channel, RDMA_CM_EVENT_REJECTED);
      return false;
    }
    const Taken done = cm::test::take(channel, RDMA_CM_EVENT_ESTABLISHED);
    std::memcpy(&theirs, done.data.data(), sizeof theirs);
    EXPECT_TRUE(valid(theirs));
    return true;
  }
  void send(const void* data, std::uint32_t length, bool write, std::uint32_t immediate = 0) {
    ibv_sge part{reinterpret_cast<std::uintptr_t>(data), length, 0};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND;
    wr.imm_data = htonl(immediate);
    wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = theirs.ring_address;
    wr.wr.rdma.rkey = theirs.ring_key;
    wr.sg_list = &part;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
  }
  void is_reset() {
    char byte = 0;
    EXPECT_EQ(rrecv(accepted, &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_NE(ready(accepted, POLLIN) & POLLERR, 0);
    EXPECT_EQ(rsend(accepted, &byte, 1, 0), -1);
  }
  void SetUp() override { listen_on_loopback(listener); }
  void TearDown() override { drop(); }
  void drop() {
    if (accepted >= 0) {
      EXPECT_EQ(rclose(accepted), 0);
    }
    if (id != nullptr) rdma_destroy_qp(id);
    if (id != nullptr) rdma_destroy_id(id);
    if (channel != nullptr) rdma_destroy_event_channel(channel);
    id = nullptr;
    channel = nullptr;
    accepted = -1;
  }
  static Hello good() {
    Hello h;
    h.ring_size = 4096;
    h.receives = 100;
    return h;
  }

  Sock listener;
  rdma_event_channel* channel = nullptr;
  rdma_cm_id* id = nullptr;
  int accepted = -1;
  Hello theirs;
};

TEST_F(BadPeer, SaysSomethingElse) {
  std::vector<Hello> all(5, good());
  all[0].magic = 1;
  all[1].ring_size = 0;
  all[2].ring_size = ~0U;
  all[3].receives = kControlReserve;
  all[4].iomaps = ~0U;
  for (const Hello& hello : all) {
    EXPECT_FALSE(connect_with(hello));
    drop();
  }
  EXPECT_TRUE(connect_with(good()));
}

TEST_F(BadPeer, SendsRubbish) {
  std::vector<Control> all(6);
  all[0].magic = 0;
  all[1].kind = static_cast<ControlKind>(9);
  all[2].bytes_read = 1;  // nothing was sent
  all[3].receives_posted = ~0ULL;
  all[4].kind = ControlKind::mapping;
  all[4].index = 0;  // it keeps none
  all[5].kind = ControlKind::mapping;
  all[5].index = ~0ULL;
  for (const Control& control : all) {
    ASSERT_TRUE(connect_with(good()));
    send(&control, sizeof control, false);
    is_reset();
    drop();
  }
  ASSERT_TRUE(connect_with(good()));
  send("short", 5, false);
  is_reset();
  drop();
  // More bytes than the ring has.
  ASSERT_TRUE(connect_with(good()));
  send("x", 1, true, theirs.ring_size + 1);
  is_reset();
  drop();
  // Data after the end.
  ASSERT_TRUE(connect_with(good()));
  Control end;
  end.kind = ControlKind::finished;
  send(&end, sizeof end, false);
  send("x", 1, true, 1);
  EXPECT_TRUE(eventually([&] { return (ready(accepted, POLLIN) & POLLERR) != 0; }));
}

// Its ring is nowhere: what is written there comes back as an error.
TEST_F(BadPeer, HasNoRing) {
  ASSERT_TRUE(connect_with(good()));
  const char byte = 0;
  EXPECT_TRUE(eventually([&] { return rsend(accepted, &byte, 1, 0) < 0; }));
  EXPECT_EQ(errno, ECONNRESET);
}

// Two threads wait for one socket, one of them in rpoll(): each learns what it waits for.
TEST_F(Peers, ThreadsOfOneSocket) {
  const Pair p = connected();
  constexpr int kRounds = 500;
  std::thread echoes([&] {
    for (int i = 0; i < kRounds; ++i) give(p.passive, test::take(p.passive, 1));
  });
  std::atomic<bool> over = false;
  std::thread polls([&] {
    while (!over) ready(p.active, POLLIN | POLLOUT);
  });
  std::thread polls_for_input([&] {
    while (!over) ready(p.active, POLLIN, 100);
  });
  for (int i = 0; i < kRounds; ++i) {
    give(p.active, "p");
    EXPECT_EQ(test::take(p.active, 1), "p");
  }
  over = true;
  echoes.join();
  polls.join();
  polls_for_input.join();
}

// A call that waits for a socket ends when another thread closes it.
TEST_F(Peers, CloseWakesWhoWaits) {
  for (const bool polling : {false, true}) {
    Pair p = connected();
    const int number = p.passive;
    std::atomic<bool> begun = false;
    std::thread waits([&] {
      begun = true;
      if (polling) {
        // It may look after the close: then it is no rsocket, and no descriptor.
        EXPECT_NE(ready(number, POLLIN) & POLLNVAL, 0);
      } else {
        char byte = 0;
        EXPECT_EQ(rrecv(number, &byte, 1, 0), -1);
        EXPECT_EQ(errno, EBADF);
      }
    });
    while (!begun) std::this_thread::yield();
    usleep(20'000);  // most probably it waits by now; the answer is the same before
    p.passive.close();
    waits.join();
  }
}

// A child has its parent's numbers, and can do nothing with them but close them.
TEST_F(Peers, ChildOfFork) {
  Pair p = connected();
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    int wrong = rsend(p.active, "x", 1, 0) == -1 && errno == EPERM ? 0 : 1;
    wrong += rrecv(p.passive, &byte, 1, 0) == -1 && errno == EPERM ? 0 : 2;
    wrong += rclose(p.active) == 0 ? 0 : 4;
    wrong += rclose(p.active) == -1 && errno == EBADF ? 0 : 8;
    // It has sockets of its own.
    const int own = rsocket(AF_INET, SOCK_STREAM, 0);
    wrong += own >= 0 && rclose(own) == 0 ? 0 : 16;
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  give(p.active, "goes on");
  EXPECT_EQ(test::take(p.passive, 9), "goes on");
  p.active.close();
  EXPECT_EQ(test::take(p.passive, 9), "");
}

}  // namespace
}  // namespace turnout::cm::test
