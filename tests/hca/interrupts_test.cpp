// SPDX-License-Identifier: BSD-3-Clause
// Signals and who waits for an event: read(2) of the descriptor is what they do, with rdma-core as
// here. A handler without SA_RESTART ends the waiting with EINTR, and no event is lost by it.
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

std::atomic<int> handled;

void handle(int flags) {
  handled = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { ++handled; };
  action.sa_flags = flags;
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
}

struct Answer {
  int result = 1, error = 0;
};

// What `wait` answers in a thread that gets signals until it is over, or `most` of them; then
// `event` lets it end in any case.
Answer interrupted(const std::function<int()>& wait, int most, const std::function<void()>& event) {
  Answer answer;
  std::atomic<bool> started{false}, over{false};
  std::thread waiter([&] {
    started = true;
    errno = 0;
    answer.result = wait();
    answer.error = errno;
    over = true;
  });
  EXPECT_TRUE(eventually([&] { return started.load(); }));
  int sent = 0;
  EXPECT_TRUE(eventually([&] {
    pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return over || ++sent == most;
  }));
  event();
  waiter.join();
  EXPECT_GT(handled, 0);
  return answer;
}

constexpr int kNoLimit = std::numeric_limits<int>::max();

class Interrupts : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
};

struct Completions {
  Completions() {
    rig.channel = ibv_create_comp_channel(rig.context);
    QpOptions o;
    o.send_cq = cq = rig.cq(16, rig.channel);
    a = rig.rc(o);
    b = rig.rc();
    connect(a, b->qp_num);
    connect(b, a->qp_num);
    memory = rig.memory(4096);
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
  }
  int wait() {
    void* context = nullptr;
    const int result = ibv_get_cq_event(rig.channel, &which, &context);
    if (result == 0) ibv_ack_cq_events(which, 1);
    return result;
  }
  void complete() {
    post(a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, 1, memory.address(64), memory.mr->rkey);
  }
  Rig rig;
  ibv_cq *cq = nullptr, *which = nullptr;
  ibv_qp *a = nullptr, *b = nullptr;
  Region memory;
};

TEST_F(Interrupts, CompletionEvent) {
  Completions c;
  handle(0);
  const Answer answer = interrupted([&] { return c.wait(); }, kNoLimit, [&] { c.complete(); });
  EXPECT_EQ(answer.result, -1);
  EXPECT_EQ(answer.error, EINTR);
  EXPECT_EQ(c.which, nullptr);
  EXPECT_EQ(c.wait(), 0);
  EXPECT_EQ(c.which, c.cq);
  EXPECT_EQ(wait_wc(c.cq).status, IBV_WC_SUCCESS);
}

TEST_F(Interrupts, CompletionEventOfWhoRestarts) {
  Completions c;
  handle(SA_RESTART);
  // Handlers may run after the wait only: the thread sanitizer puts them off.
  const Answer answer = interrupted([&] { return c.wait(); }, 20, [&] { c.complete(); });
  EXPECT_EQ(answer.result, 0);
  EXPECT_EQ(c.which, c.cq);
}

TEST_F(Interrupts, AsynchronousEvent) {
  Pair p;
  handle(0);
  ibv_async_event e{};
  // A write without a right: an event of the target.
  const auto fail = [&] {
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey ^ 0xff, 8).status,
              IBV_WC_REM_ACCESS_ERR);
  };
  const auto wait = [&] { return ibv_get_async_event(p.rig.context, &e); };
  const Answer answer = interrupted(wait, kNoLimit, fail);
  EXPECT_EQ(answer.result, -1);
  EXPECT_EQ(answer.error, EINTR);
  ASSERT_TRUE(readable(p.rig.context->async_fd, 10000));
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(e.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(e.element.qp, p.b);
  ibv_ack_async_event(&e);
}

}  // namespace
}  // namespace turnout::hca::test
