// SPDX-License-Identifier: BSD-3-Clause
// The emulated mlx5 device between processes, of which one is killed while each writes completions
// into the other's memory and fetches receives out of it: the survivor is told, and loses nothing.
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <random>
#include <string>

#include "tests/hca/mlx5_library.h"

namespace turnout::hca::test {
namespace {

class Mlx5Processes : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

constexpr std::size_t kHere = 0, kThere = 32768;
constexpr std::uint32_t kBytes = 256;
enum Word : unsigned { kNumber, kAddress = 2, kKey = 4, kRunning = 6 };  // and of the other, +1

// One end: it sends to the other's shared queue, writes into its memory and reads from it.
struct End {
  End(Exchange* x, unsigned me) : srq(library, 63), sent(make_cq(64)), received(make_cq(128)) {
    Mlx5QpOptions options;
    options.srq = &srq;
    options.receives = 0;
    options.sends = 32;
    options.send_cq = &sent;
    options.receive_cq = &received;
    qp.emplace(library, options);
    set(x, kNumber + me, qp->number);
    set(x, kAddress + me, library.memory.address(kThere));
    set(x, kKey + me, library.mr.rkey);
    address = get(x, kAddress + 1 - me);
    key = static_cast<std::uint32_t>(get(x, kKey + 1 - me));
    for (int i = 0; i < 63; ++i) post();
    ConnectOptions connection;
    connection.timeout = 8;
    connection.retry_cnt = 2;
    qp->connect(static_cast<std::uint32_t>(get(x, kNumber + 1 - me)), connection);
    meet(x, 0, 2);  // nobody is sent to before it can receive
  }
  Mlx5CompletionQueue make_cq(std::uint32_t entries) {
    return Mlx5CompletionQueue(library, entries, 64, -1, false);
  }
  void post() {
    (void)srq.post(library.memory.address(kThere + 8192), kBytes, library.mr.lkey);
    ++posted;
  }
  // A receive that was completed. Those that are flushed are none of a shared queue.
  void take(bool again) {
    mlx5_cqe64 e;
    while (received.poll(e)) {
      EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
      EXPECT_EQ(be32toh(e.byte_cnt), kBytes);
      ++taken;
      srq.release(counter_of(e));
      if (again) post();
    }
  }
  // The syndrome of the next request; 0: it was done.
  std::uint8_t request(unsigned which) {
    const std::uint64_t here = library.memory.address(kHere);
    Mlx5Wqe wqe(which == 0   ? MLX5_OPCODE_SEND
                : which == 1 ? MLX5_OPCODE_RDMA_WRITE
                             : MLX5_OPCODE_RDMA_READ);
    if (which != 0) wqe.remote(address, key);
    qp->post(wqe.data(here, kBytes, library.mr.lkey));
    mlx5_cqe64 e{};
    EXPECT_TRUE(eventually([&] {
      take(true);
      return sent.poll(e);
    }));
    return opcode_of(e) == MLX5_CQE_REQ_ERR ? syndrome_of(e) : 0;
  }
  Mlx5Library library;
  Mlx5SharedQueue srq;
  Mlx5CompletionQueue sent, received;
  std::optional<Mlx5QueuePair> qp;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint64_t posted = 0, taken = 0;
};

void survive(Exchange* x) {
  End end(x, 0);
  std::uint8_t syndrome = 0;
  for (unsigned i = 0; syndrome == 0 && !::testing::Test::HasFailure(); ++i) {
    syndrome = end.request(i % 3);
    if (i == 3) set(x, kRunning, 1);
  }
  EXPECT_EQ(syndrome, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  EXPECT_EQ(end.request(0), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  // Each receive that was posted is still there, or was completed: a loop of our own uses them up.
  Mlx5QpOptions options;
  options.srq = &end.srq;
  options.receives = 0;
  options.receive_cq = &end.received;
  Mlx5QueuePair a(end.library, options), b(end.library, options);
  a.connect(b.number);
  b.connect(a.number);
  bool waits = false;
  EXPECT_TRUE(eventually([&] {
    if (!waits) {
      a.post(Mlx5Wqe(MLX5_OPCODE_SEND)
                 .data(end.library.memory.address(kHere), kBytes, end.library.mr.lkey));
      waits = true;
    }
    mlx5_cqe64 e;
    if (end.library.cq.front().poll(e)) {
      EXPECT_EQ(opcode_of(e), MLX5_CQE_REQ);
      waits = false;
    }
    end.take(false);
    return end.taken >= end.posted;
  })) << end.taken
      << " of " << end.posted << " receives were completed";
  // And no more than that.
  EXPECT_EQ(a.modify(IBV_QPS_ERR), 0);
  end.take(false);
  EXPECT_EQ(end.taken, end.posted);
}

TEST_F(Mlx5Processes, KilledAtAnyMoment) {
  std::mt19937 random(seed_of_test());
  for (int round = 0; round < 30 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Exchange* const x = exchange();
    Children children = start(2, [x](unsigned me) {
      if (me == 0) {
        survive(x);
        return;
      }
      End end(x, 1);
      for (unsigned i = 0;; ++i) EXPECT_EQ(end.request(i % 3), 0);
    });
    (void)get(x, kRunning);
    usleep(static_cast<unsigned>(random() % 3000));
    kill(children.pids[1], SIGKILL);
    finish(children);
    EXPECT_FALSE(children.killed[0]);
    EXPECT_TRUE(children.killed[1]);
    EXPECT_FALSE(fabric_exists());
  }
}

// With receives of its own the dead process's peer is flushed, whoever took the last of them.
TEST_F(Mlx5Processes, FlushedAfterADeath) {
  std::mt19937 random(seed_of_test());
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Exchange* const x = exchange();
    Children children = start(2, [x](unsigned me) {
      Mlx5Library l;
      Mlx5CompletionQueue received(l, 64, 64, -1, false);
      Mlx5QpOptions options;
      options.receive_cq = &received;
      Mlx5QueuePair qp(l, options);
      set(x, kNumber + me, qp.number);
      ConnectOptions connection;
      connection.retry_cnt = 1;
      qp.connect(static_cast<std::uint32_t>(get(x, kNumber + 1 - me)), connection);
      meet(x, 0, 2);
      if (me == 1) {
        for (;;) {
          qp.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data("x"));
          EXPECT_EQ(opcode_of(l.cq.front().wait()), MLX5_CQE_REQ);
          set(x, kRunning, 1);
        }
      }
      std::uint16_t posted = 0, done = 0;
      mlx5_cqe64 e{};
      qp.post(Mlx5Wqe(MLX5_OPCODE_NOP, 0, 0));
      while (!::testing::Test::HasFailure()) {
        while (posted - done < 15) {
          qp.receive(l.memory.address(kThere), 64, l.mr.lkey);
          ++posted;
        }
        if (received.poll(e)) {
          ASSERT_EQ(counter_of(e), done++);
          continue;
        }
        // It is silent: is it gone?
        qp.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(0, 0));
        const mlx5_cqe64 answer = l.cq.front().wait();
        if (opcode_of(answer) != MLX5_CQE_REQ_ERR) continue;
        ASSERT_EQ(syndrome_of(answer), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
        break;
      }
      qp.receive(l.memory.address(kThere), 64, l.mr.lkey);
      ++posted;
      while (done != posted) {
        e = received.wait();
        ASSERT_EQ(counter_of(e), done++);
      }
      EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    });
    (void)get(x, kRunning);
    usleep(static_cast<unsigned>(random() % 2000));
    kill(children.pids[1], SIGKILL);
    finish(children);
    EXPECT_FALSE(fabric_exists());
  }
}

}  // namespace
}  // namespace turnout::hca::test
