// SPDX-License-Identifier: BSD-3-Clause
// The thread beside a program that makes progress when the program does not
// (TURNOUT_PROGRESS_THREAD): two processes over libturnout-fi.so as libfabric loads it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "tests/support/process.h"

namespace turnout::testing {
namespace {

constexpr std::size_t kLarge = (4 << 20) + 3;

// Without a call of libfabric: as a program that computes.
void tell(int socket) {
  const char word = 0;
  CHECK_EQ(::send(socket, &word, 1, MSG_NOSIGNAL), 1);
}
void wait_to_be_told(int socket) {
  pollfd told{socket, POLLIN, 0};
  CHECK_EQ(poll(&told, 1, 20'000), 1);
  char word = 0;
  CHECK_EQ(::recv(socket, &word, 1, 0), 1);
}

// One side calls nothing until the other has the message, or is done with it.
void one_computes(int role, int socket, int silent, fi_progress progress = FI_PROGRESS_UNSPEC) {
  Process p(role, socket, {.progress = progress});
  std::vector<unsigned char> data(kLarge), expected(kLarge);
  for (std::size_t round = 0; round < 4; ++round) {
    fill(expected, round);
    int context = 0;
    if (role == 0) {
      data = expected;
      p.barrier();  // the receive stands
      p.post([&] { return fi_tsend(p.ep, data.data(), kLarge, nullptr, p.peer, 5, &context); });
    } else {
      p.post([&] { return fi_trecv(p.ep, data.data(), kLarge, nullptr, p.peer, 5, 0, &context); });
      p.barrier();
    }
    if (role == silent) wait_to_be_told(socket);
    p.finish({&context});
    if (role != silent) tell(socket);
    CHECK(data == expected);
    p.barrier();
  }
}
void sender_computes(int role, int socket) {
  one_computes(role, socket, 0);
}
void receiver_computes(int role, int socket) {
  one_computes(role, socket, 1);
}
void either_computes(int role, int socket) {
  one_computes(role, socket, 0, FI_PROGRESS_AUTO);
  one_computes(role, socket, 1, FI_PROGRESS_AUTO);
}

// Blocks in poll(2) between messages of all sizes, one at a time and many at once.
void waits_for_descriptor(int role, int socket) {
  constexpr std::size_t kSizes[] = {8, 3000, 20'000, kLarge};
  constexpr int kMessages = 60;
  ProcessOptions options;
  if (role == 1) options.wait = FI_WAIT_FD;
  Process p(role, socket, options);
  std::vector<unsigned char> data(kLarge), expected(kLarge);
  if (role == 0) {
    for (int i = 0; i < kMessages; ++i) {
      const std::size_t size = kSizes[static_cast<std::size_t>(i) % std::size(kSizes)];
      data.resize(size);
      fill(data, static_cast<std::size_t>(i));
      if (i % 3 == 0) usleep(3000);
      p.send(data.data(), size, 5);
    }
    return p.barrier();
  }
  int fd = -1;
  CHECK_EQ(fi_control(&p.cq->fid, FI_GETWAIT, &fd), 0);
  int context = 0, waited = 0;
  for (int i = 0; i < kMessages; ++i) {
    const std::size_t size = kSizes[static_cast<std::size_t>(i) % std::size(kSizes)];
    p.post([&] { return fi_trecv(p.ep, data.data(), kLarge, nullptr, p.peer, 5, 0, &context); });
    fi_cq_tagged_entry entry{};
    ssize_t n = 0;
    while ((n = fi_cq_read(p.cq, &entry, 1)) == -FI_EAGAIN) {
      fid* wait[] = {&p.cq->fid};
      const int may = fi_trywait(p.fabric, wait, 1);
      if (may == -FI_EAGAIN) continue;
      CHECK_EQ(may, 0);
      pollfd readable{fd, POLLIN, 0};
      CHECK_EQ(poll(&readable, 1, 20'000), 1);
      ++waited;
    }
    CHECK_EQ(n, 1);
    CHECK(entry.op_context == &context);
    CHECK_EQ(entry.len, size);
    expected.resize(size);
    fill(expected, static_cast<std::size_t>(i));
    CHECK(std::equal(expected.begin(), expected.end(), data.begin()));
  }
  CHECK(waited > 0);
  p.barrier();
}

// The peer reads and writes the window of a process that fills it and then calls nothing. Its
// progress thread helps with the copies: the thread sanitizer must not take that for a race.
void target_computes(int role, int socket) {
  constexpr std::uint64_t kRounds = 3;
  constexpr std::size_t kSize = 1 << 20;
  Process p(role, socket);
  std::vector<unsigned char> window(kSize), data(kSize), expected(kSize);
  fid_mr* mr = nullptr;
  CHECK_EQ(fi_mr_reg(p.domain, window.data(), kSize, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr,
                     nullptr),
           0);
  const std::uint64_t key = p.swap(fi_mr_key(mr));
  const std::uint64_t base = p.swap(reinterpret_cast<std::uint64_t>(window.data()));
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    int context = 0;
    fill(expected, round);
    if (role == 1) fill(window, round);
    p.barrier();
    if (role == 0) {
      p.post(
          [&] { return fi_read(p.ep, data.data(), kSize, nullptr, p.peer, base, key, &context); });
      p.finish({&context});
      CHECK(data == expected);
      fill(data, round + 100);
      p.post(
          [&] { return fi_write(p.ep, data.data(), kSize, nullptr, p.peer, base, key, &context); });
      p.finish({&context});
      tell(socket);
    } else {
      wait_to_be_told(socket);
      fill(expected, round + 100);
      CHECK(window == expected);
    }
  }
  p.barrier();
  CHECK_EQ(fi_close(&mr->fid), 0);
}

// Endpoints come and go while the thread looks at them and messages come.
void endpoints_come_and_go(int role, int socket) {
  Process p(role, socket);
  std::vector<unsigned char> data(kLarge), expected(kLarge);
  fill(expected, 1);
  int context = 0;
  if (role == 0) {
    data = expected;
    p.barrier();
    for (int i = 0; i < 20; ++i) p.send(data.data(), kLarge, 5);
    p.barrier();
    return;
  }
  for (int i = 0; i < 20; ++i) {
    p.post([&] { return fi_trecv(p.ep, data.data(), kLarge, nullptr, p.peer, 5, 0, &context); });
    if (i == 0) p.barrier();
    fid_cq* cq = nullptr;
    fid_av* av = nullptr;
    fid_ep* ep = nullptr;
    fi_cq_attr cq_attr{};
    fi_av_attr av_attr{};
    CHECK_EQ(fi_cq_open(p.domain, &cq_attr, &cq, nullptr), 0);
    CHECK_EQ(fi_av_open(p.domain, &av_attr, &av, nullptr), 0);
    CHECK_EQ(fi_endpoint(p.domain, p.info, &ep, nullptr), 0);
    CHECK_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    CHECK_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    CHECK_EQ(fi_enable(ep), 0);
    usleep(100);
    CHECK_EQ(fi_close(&ep->fid), 0);
    CHECK_EQ(fi_close(&av->fid), 0);
    CHECK_EQ(fi_close(&cq->fid), 0);
    p.finish({&context});
    CHECK(data == expected);
  }
  p.barrier();
}

void waits(int role, int socket) {
  ProcessOptions options;
  options.wait = FI_WAIT_UNSPEC;
  Process p(role, socket, options);
  std::vector<unsigned char> data(kLarge);
  int context = 0;
  for (int i = 0; i < 4; ++i) {
    if (role == 0) {
      p.barrier();
      usleep(1000);
      p.send(data.data(), kLarge, 5);
    } else {
      p.post([&] { return fi_trecv(p.ep, data.data(), kLarge, nullptr, p.peer, 5, 0, &context); });
      p.barrier();
      fi_cq_tagged_entry entry;
      CHECK_EQ(fi_cq_sread(p.cq, &entry, 1, nullptr, 20'000), 1);
      CHECK(entry.op_context == &context);
      CHECK_EQ(fi_cq_sread(p.cq, &entry, 1, nullptr, 1), -FI_EAGAIN);
    }
    p.barrier();
  }
}

// A child of fork() has no thread; the locks it finds are free, whatever the thread did just then,
// and it can end by exit().
void forks(int role, int socket) {
  constexpr int kMessages = 50;
  Process p(role, socket);
  std::vector<unsigned char> data(kLarge);
  std::vector<int> contexts(kMessages);
  if (role == 0) {
    p.barrier();
    for (int i = 0; i < kMessages; ++i) p.send(data.data(), kLarge, 5);
    p.barrier();
    return;
  }
  for (int& context : contexts) {
    p.post([&] { return fi_trecv(p.ep, data.data(), kLarge, nullptr, p.peer, 5, 0, &context); });
  }
  p.barrier();
  for (int i = 0; i < 12; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(30);
      fi_cq_tagged_entry entry;
      static_cast<void>(fi_cq_read(p.cq, &entry, 1));
      fid_mr* region = nullptr;
      CHECK_EQ(fi_mr_reg(p.domain, data.data(), 8, FI_SEND, 0, 0, 0, &region, nullptr), 0);
      CHECK_EQ(fi_close(&region->fid), 0);
      if (i == 0) {
        CHECK_EQ(fi_close(&p.ep->fid), 0);
        CHECK_EQ(fi_close(&p.av->fid), 0);
        CHECK_EQ(fi_close(&p.cq->fid), 0);
        CHECK_EQ(fi_close(&p.domain->fid), 0);
      }
      std::exit(0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
  }
  std::vector<void*> all;
  for (int& context : contexts) all.push_back(&context);
  p.finish(all);
  p.barrier();
}

// exit() while the thread moves messages, and nothing is closed.
void exits(int role, int socket) {
  auto& p = *new Process(role, socket);
  std::vector<unsigned char> data(kLarge);
  static int contexts[8];
  for (int& context : contexts) {
    if (role == 1) {
      p.post([&] { return fi_trecv(p.ep, data.data(), kLarge, nullptr, p.peer, 5, 0, &context); });
    }
  }
  p.barrier();
  if (role == 0) {
    for (int& context : contexts) {
      p.post([&]() -> ssize_t {
        const ssize_t n = fi_tsend(p.ep, data.data(), kLarge, nullptr, p.peer, 5, &context);
        return n == -FI_ECONNRESET ? 0 : n;  // the other one has gone already
      });
    }
  }
  usleep(300);
  std::exit(0);
}

const bool registered = [] {
  cases().insert({{"sender_computes", sender_computes},
                  {"receiver_computes", receiver_computes},
                  {"target_computes", target_computes},
                  {"endpoints_come_and_go", endpoints_come_and_go},
                  {"either_computes", either_computes},
                  {"waits_for_descriptor", waits_for_descriptor},
                  {"waits", waits},
                  {"forks", forks},
                  {"exits", exits}});
  return true;
}();

class ProgressThread : public ::testing::Test {
 protected:
  ProgressThread() { setenv("TURNOUT_PROGRESS_THREAD", "20us", 1); }
  ~ProgressThread() override { unsetenv("TURNOUT_PROGRESS_THREAD"); }
};

TEST_F(ProgressThread, ReceivesWhileTheProgramComputes) {
  expect_in_every_way("receiver_computes");
}
TEST_F(ProgressThread, SendsWhileTheProgramComputes) {
  expect_in_every_way("sender_computes");
}
TEST_F(ProgressThread, HelpsWhileTheTargetComputes) {
  EXPECT_EQ(run_case("target_computes"), "");
}
TEST_F(ProgressThread, SharesTheEndpointWithAProgramThatCalls) {
  for (const char* name :
       {"ping_pong", "stream", "matching", "multi_receive", "remote_memory", "completion_levels"}) {
    EXPECT_EQ(run_case(name), "") << name;
  }
}
TEST_F(ProgressThread, LetsEndpointsGo) {
  EXPECT_EQ(run_case("endpoints_come_and_go"), "");
}
TEST_F(ProgressThread, LeavesCompletionsToWhoWaits) {
  EXPECT_EQ(run_case("waits"), "");
}
TEST_F(ProgressThread, IsNotInAChild) {
  EXPECT_EQ(run_case("forks"), "");
}
TEST_F(ProgressThread, EndsWithTheProcess) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run_case("exits"), "");
}
TEST_F(ProgressThread, ALostPeerEndsItsOperations) {
  EXPECT_EQ(run_case("lost_peer", 1), "");
}

// Without the setting: the program asks for it.
TEST(AutomaticProgress, MovesMessagesWhileTheProgramComputes) {
  EXPECT_EQ(run_case("either_computes"), "");
}
TEST(WaitDescriptor, WakesWhoIsBlocked) {
  expect_in_every_way("waits_for_descriptor");
}

}  // namespace
}  // namespace turnout::testing
