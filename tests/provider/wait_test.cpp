// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that programs block on, and poll sets.
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

// Readable within so many milliseconds.
bool is_readable(int fd, int milliseconds) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, milliseconds) == 1;
}
constexpr int kLong = 20'000;

int descriptor_of(fid* object) {
  int fd = -1;
  EXPECT_EQ(fi_control(object, FI_GETWAIT, &fd), 0);
  return fd;
}
int may_wait(const Node& node, fid* object) {
  fid* objects[] = {object};
  return fi_trywait(node.fabric, objects, 1);
}
NodeOptions with_descriptor(fi_threading threading) {
  NodeOptions options;
  options.wait = FI_WAIT_FD;
  options.threading = threading;
  return options;
}

class Descriptor : public ::testing::TestWithParam<fi_threading> {};

TEST_P(Descriptor, OfAQueueIsReadableUntilItWasRead) {
  Node node(with_descriptor(GetParam()));
  const fi_addr_t self = node.insert(node);
  const int fd = descriptor_of(&node.cq->fid);
  char in[4];
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(node.next(), nullptr);
    ASSERT_EQ(may_wait(node, &node.cq->fid), 0);
    ASSERT_EQ(fi_trecv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    EXPECT_FALSE(is_readable(fd, 0));
    ASSERT_EQ(fi_tinject(node.ep, "abc", 3, self, 1), 0);
    EXPECT_TRUE(is_readable(fd, kLong)) << "nobody but the thread makes progress";
    EXPECT_EQ(may_wait(node, &node.cq->fid), -FI_EAGAIN) << "there is something";
    EXPECT_NE(node.next(), nullptr);
  }
}

TEST_P(Descriptor, OfACounterIsReadableUntilItWasRead) {
  fid_cntr* cntr = nullptr;
  NodeOptions options;
  options.threading = GetParam();
  options.before_enable = [&](fid_domain* domain, fid_ep* ep) {
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_FD;
    ASSERT_EQ(fi_cntr_open(domain, &attr, &cntr, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
  };
  Node node(options);
  node.others.push_back(&cntr->fid);
  const fi_addr_t self = node.insert(node);
  const int fd = descriptor_of(&cntr->fid);
  char in[4];
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(may_wait(node, &cntr->fid), 0);
    ASSERT_EQ(fi_trecv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    EXPECT_FALSE(is_readable(fd, 0));
    ASSERT_EQ(fi_tinject(node.ep, "abc", 3, self, 1), 0);
    EXPECT_TRUE(is_readable(fd, kLong));
    EXPECT_EQ(may_wait(node, &cntr->fid), -FI_EAGAIN);
    EXPECT_EQ(fi_cntr_read(cntr), i);
  }
  EXPECT_EQ(fi_cntr_adderr(cntr, 1), 0);
  EXPECT_TRUE(is_readable(fd, kLong)) << "an error is news";
  EXPECT_EQ(fi_cntr_readerr(cntr), 1u);
  EXPECT_EQ(may_wait(node, &cntr->fid), 0);
}

TEST_P(Descriptor, OfAQueueThatIsOpenedLaterWorksToo) {
  NodeOptions options;
  options.threading = GetParam();
  Node first(options);
  NodeOptions more = with_descriptor(GetParam());
  more.domain = first.domain;
  more.before_enable = [&](fid_domain*, fid_ep*) {};
  Node second(more);
  const fi_addr_t to_second = first.insert(second);
  const int fd = descriptor_of(&second.cq->fid);
  char in[4];
  ASSERT_EQ(fi_trecv(second.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(first.ep, "abc", 3, to_second, 1), 0);
  EXPECT_TRUE(is_readable(fd, kLong));
  EXPECT_NE(second.next(), nullptr);
  second.close();
}

INSTANTIATE_TEST_SUITE_P(Threading, Descriptor,
                         ::testing::Values(FI_THREAD_DOMAIN, FI_THREAD_SAFE));

TEST(Descriptors, ASignalWakes) {
  Node node(with_descriptor(FI_THREAD_SAFE));
  const int fd = descriptor_of(&node.cq->fid);
  ASSERT_EQ(may_wait(node, &node.cq->fid), 0);
  EXPECT_FALSE(is_readable(fd, 0));
  EXPECT_EQ(fi_cq_signal(node.cq), 0);
  EXPECT_TRUE(is_readable(fd, 0));
  EXPECT_EQ(may_wait(node, &node.cq->fid), -FI_EAGAIN) << "it was signalled before it waited";
  EXPECT_EQ(may_wait(node, &node.cq->fid), 0);
  EXPECT_FALSE(is_readable(fd, 0));
}

// The program drives another endpoint of the domain meanwhile, and looks always busy to the thread.
// Without the thread's own round, one message took some million of its calls.
TEST(Descriptors, OfAnEndpointThatNobodyElseDrives) {
  constexpr std::uint64_t kMessages = 10, kMostCalls = 1'000'000;
  NodeOptions options;
  options.threading = FI_THREAD_SAFE;
  Node first(options);
  NodeOptions more = with_descriptor(FI_THREAD_SAFE);
  more.domain = first.domain;
  Node second(more);
  const fi_addr_t to_second = first.insert(second);
  const int fd = descriptor_of(&second.cq->fid);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> calls{0};
  std::thread busy([&] {
    fi_cq_tagged_entry entry;
    for (; !stop; ++calls) static_cast<void>(fi_cq_read(first.cq, &entry, 1));
  });
  char in[4];
  std::uint64_t waited = 0;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(may_wait(first, &second.cq->fid), 0);
    EXPECT_EQ(fi_trecv(second.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    const std::uint64_t before = calls;
    EXPECT_EQ(fi_tinject(first.ep, "abc", 3, to_second, 1), 0);
    EXPECT_TRUE(is_readable(fd, kLong));
    waited += calls - before;
    EXPECT_NE(second.next(), nullptr);
  }
  stop = true;
  busy.join();
  EXPECT_LT(waited, kMessages * kMostCalls);
  second.close();
}

TEST(Descriptors, MayBeReadByTheProgram) {
  Node node(with_descriptor(FI_THREAD_SAFE));
  const int fd = descriptor_of(&node.cq->fid);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fi_cq_signal(node.cq), 0);
    EXPECT_TRUE(is_readable(fd, 0));
    std::uint64_t count = 0;
    EXPECT_EQ(read(fd, &count, sizeof count), 8);
    EXPECT_EQ(may_wait(node, &node.cq->fid), -FI_EAGAIN);
    EXPECT_EQ(may_wait(node, &node.cq->fid), 0);
  }
}

TEST(Descriptors, OfAnEventQueue) {
  Node node;
  fi_eq_attr attr{};
  attr.wait_obj = FI_WAIT_FD;
  attr.flags = FI_WRITE;
  fid_eq* eq = nullptr;
  ASSERT_EQ(fi_eq_open(node.fabric, &attr, &eq, nullptr), 0);
  const int fd = descriptor_of(&eq->fid);
  EXPECT_EQ(may_wait(node, &eq->fid), 0);
  EXPECT_FALSE(is_readable(fd, 0));
  const fi_eq_entry entry{};
  EXPECT_GT(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), 0);
  EXPECT_TRUE(is_readable(fd, 0));
  EXPECT_EQ(may_wait(node, &eq->fid), -FI_EAGAIN);
  std::uint32_t event = 0;
  fi_eq_entry out{};
  EXPECT_GT(fi_eq_read(eq, &event, &out, sizeof out, 0), 0);
  EXPECT_EQ(may_wait(node, &eq->fid), 0);
  EXPECT_FALSE(is_readable(fd, 0));
  EXPECT_EQ(fi_close(&eq->fid), 0);
}

TEST(Descriptors, AreNotWhereNobodyAskedForThem) {
  Node node;
  int fd = -1;
  EXPECT_EQ(fi_control(&node.cq->fid, FI_GETWAIT, &fd), -FI_ENODATA);
  EXPECT_EQ(fi_control(&node.cq->fid, FI_GETOPSFLAG, &fd), -FI_ENOSYS);
  EXPECT_EQ(may_wait(node, &node.cq->fid), -FI_EINVAL);
  EXPECT_EQ(may_wait(node, &node.av->fid), -FI_ENOSYS);
  Node other(with_descriptor(FI_THREAD_SAFE));
  EXPECT_EQ(fi_control(&other.cq->fid, FI_GETWAIT, nullptr), -FI_EINVAL);
}

// A program waits with the mutex held, in which it has called fi_trywait.
struct Condition {
  explicit Condition(fid* object) { EXPECT_EQ(fi_control(object, FI_GETWAIT, &wait), 0); }
  // False: never woken.
  [[nodiscard]] bool block(const Node& node, fid* object) const {
    timespec end{};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += kLong / 1000;
    pthread_mutex_lock(wait.mutex);
    int error = 0;
    while (error == 0 && may_wait(node, object) == 0)
      error = pthread_cond_timedwait(wait.cond, wait.mutex, &end);
    pthread_mutex_unlock(wait.mutex);
    return error == 0;
  }
  fi_mutex_cond wait{};
};

TEST(Conditions, OfAQueueAndACounterAreSignalledByTheThread) {
  for (const fi_threading threading : {FI_THREAD_DOMAIN, FI_THREAD_SAFE}) {
    fid_cntr* cntr = nullptr;
    NodeOptions options;
    options.wait = FI_WAIT_MUTEX_COND;
    options.threading = threading;
    options.before_enable = [&](fid_domain* domain, fid_ep* ep) {
      fi_cntr_attr attr{};
      attr.wait_obj = FI_WAIT_MUTEX_COND;
      ASSERT_EQ(fi_cntr_open(domain, &attr, &cntr, nullptr), 0);
      ASSERT_EQ(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
    };
    Node node(options);
    node.others.push_back(&cntr->fid);
    const fi_addr_t self = node.insert(node);
    const Condition queue(&node.cq->fid), counter(&cntr->fid);
    fi_wait_obj kind = FI_WAIT_NONE;
    EXPECT_EQ(fi_control(&node.cq->fid, FI_GETWAITOBJ, &kind), 0);
    EXPECT_EQ(kind, FI_WAIT_MUTEX_COND);
    char in[4];
    for (std::uint64_t i = 1; i <= 20; ++i) {
      ASSERT_EQ(fi_trecv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
      ASSERT_EQ(may_wait(node, &node.cq->fid), 0);
      ASSERT_EQ(fi_tinject(node.ep, "abc", 3, self, 1), 0);
      EXPECT_TRUE(queue.block(node, &node.cq->fid));
      EXPECT_NE(node.next(), nullptr);
      EXPECT_TRUE(counter.block(node, &cntr->fid));
      EXPECT_EQ(fi_cntr_read(cntr), i);
    }
  }
}

// Nobody makes progress but the thread, while the program sleeps.
TEST(Conditions, WakeASleeper) {
  NodeOptions options;
  options.wait = FI_WAIT_MUTEX_COND;
  options.threading = FI_THREAD_SAFE;
  Node node(options);
  const fi_addr_t self = node.insert(node);
  const Condition condition(&node.cq->fid);
  char in[4];
  ASSERT_EQ(fi_trecv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  bool woken = false;
  std::thread sleeper([&] { woken = condition.block(node, &node.cq->fid); });
  ASSERT_EQ(fi_tinject(node.ep, "abc", 3, self, 1), 0);
  sleeper.join();
  EXPECT_TRUE(woken);
  EXPECT_NE(node.next(), nullptr);
  sleeper = std::thread([&] { woken = condition.block(node, &node.cq->fid); });
  EXPECT_EQ(fi_cq_signal(node.cq), 0);
  sleeper.join();
  EXPECT_TRUE(woken);
}

TEST(Conditions, OfAnEventQueue) {
  Node node;
  fi_eq_attr attr{};
  attr.wait_obj = FI_WAIT_MUTEX_COND;
  attr.flags = FI_WRITE;
  fid_eq* eq = nullptr;
  ASSERT_EQ(fi_eq_open(node.fabric, &attr, &eq, nullptr), 0);
  const Condition condition(&eq->fid);
  std::uint32_t event = 0;
  fi_eq_entry entry{};
  for (int i = 0; i < 100; ++i) {
    bool woken = false;
    std::thread sleeper([&] { woken = condition.block(node, &eq->fid); });
    EXPECT_GT(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), 0);
    sleeper.join();
    EXPECT_TRUE(woken);
    EXPECT_GT(fi_eq_read(eq, &event, &entry, sizeof entry, 0), 0);
  }
  pthread_mutex_lock(condition.wait.mutex);  // who holds it may call
  EXPECT_GT(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), 0);
  EXPECT_EQ(may_wait(node, &eq->fid), -FI_EAGAIN);
  pthread_mutex_unlock(condition.wait.mutex);
  EXPECT_EQ(fi_close(&eq->fid), 0);
}

// Another thread reports an event, and waits for the mutex to signal it.
TEST(Conditions, LetWhoHoldsTheMutexCall) {
  NodeOptions options;
  options.threading = FI_THREAD_SAFE;
  Node node(options);
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_MUTEX_COND;
  fid_eq* eq = nullptr;
  ASSERT_EQ(fi_eq_open(node.fabric, &eq_attr, &eq, nullptr), 0);
  fi_av_attr av_attr{};
  av_attr.flags = FI_EVENT;
  fid_av* av = nullptr;
  ASSERT_EQ(fi_av_open(node.domain, &av_attr, &av, nullptr), 0);
  ASSERT_EQ(fi_av_bind(av, &eq->fid, 0), 0);
  Address address = node.name();
  const Condition condition(&eq->fid);
  pthread_mutex_lock(condition.wait.mutex);
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  std::thread other([&] { EXPECT_EQ(fi_av_insert(av, &address, 1, &index, 0, nullptr), 0); });
  std::uint32_t event = 0;
  fi_eq_entry entry{};
  while (fi_eq_read(eq, &event, &entry, sizeof entry, 0) == -FI_EAGAIN) std::this_thread::yield();
  EXPECT_EQ(entry.data, 1u);
  std::size_t length = sizeof address;
  EXPECT_EQ(fi_av_lookup(av, 0, &address, &length), 0);
  pthread_mutex_unlock(condition.wait.mutex);
  other.join();
  EXPECT_EQ(fi_close(&av->fid), 0);
  EXPECT_EQ(fi_close(&eq->fid), 0);
}

TEST(Descriptors, InAListForPoll) {
  NodeOptions options;
  options.wait = FI_WAIT_POLLFD;
  Node node(options);
  fi_wait_pollfd wait{};
  EXPECT_EQ(fi_control(&node.cq->fid, FI_GETWAIT, &wait), -FI_ETOOSMALL);
  EXPECT_EQ(wait.nfds, 1u);
  const std::uint64_t index = wait.change_index;
  EXPECT_EQ(fi_control(&node.cq->fid, FI_GETWAIT, &wait), -FI_EINVAL) << "no list";
  pollfd list[2] = {};
  wait.fd = list;
  wait.nfds = 2;
  ASSERT_EQ(fi_control(&node.cq->fid, FI_GETWAIT, &wait), 0);
  EXPECT_EQ(wait.nfds, 1u);
  EXPECT_EQ(wait.change_index, index);
  EXPECT_EQ(list[0].events, POLLIN);
  const fi_addr_t self = node.insert(node);
  char in[4];
  ASSERT_EQ(fi_trecv(node.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(may_wait(node, &node.cq->fid), 0);
  ASSERT_EQ(fi_tinject(node.ep, "abc", 3, self, 1), 0);
  EXPECT_EQ(poll(list, wait.nfds, kLong), 1);
  EXPECT_NE(node.next(), nullptr);
}

// A queue, a counter and an event queue that wait together.
struct WaitSets : ::testing::TestWithParam<fi_wait_obj> {
  WaitSets() {
    fi_wait_attr attr{};
    attr.wait_obj = GetParam();
    EXPECT_EQ(fi_wait_open(node.fabric, &attr, &set), 0);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = FI_WAIT_SET;
    cq_attr.wait_set = set;
    EXPECT_EQ(fi_cq_open(node.domain, &cq_attr, &cq, nullptr), 0);
    fi_cntr_attr cntr_attr{};
    cntr_attr.wait_obj = FI_WAIT_SET;
    cntr_attr.wait_set = set;
    EXPECT_EQ(fi_cntr_open(node.domain, &cntr_attr, &cntr, nullptr), 0);
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_SET;
    eq_attr.wait_set = set;
    eq_attr.flags = FI_WRITE;
    EXPECT_EQ(fi_eq_open(node.fabric, &eq_attr, &eq, nullptr), 0);
    EXPECT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), 0);
    EXPECT_EQ(fi_ep_bind(ep, &node.av->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
    EXPECT_EQ(fi_enable(ep), 0);
    Address address;
    std::size_t length = sizeof address;
    EXPECT_EQ(fi_getname(&ep->fid, &address, &length), 0);
    EXPECT_EQ(fi_av_insert(node.av, &address, 1, &self, 0, nullptr), 1);
  }
  ~WaitSets() override {
    EXPECT_EQ(fi_close(&set->fid), -FI_EBUSY);
    for (fid* one : {&ep->fid, &cq->fid, &cntr->fid, &eq->fid, &set->fid})
      EXPECT_EQ(fi_close(one), 0);
  }
  // A message arrives, with an entry or not.
  void receive(std::uint64_t flags) {
    fi_msg_tagged msg{};
    iovec part{in, sizeof in};
    msg.msg_iov = &part;
    msg.iov_count = 1;
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = 1;
    ASSERT_EQ(fi_trecvmsg(ep, &msg, flags), 0);
    ASSERT_EQ(fi_tinject(node.ep, "abc", 3, self, 1), 0);
  }
  void write_event() { EXPECT_GT(fi_eq_write(eq, FI_NOTIFY, &event, sizeof event, 0), 0); }
  void read_event() {
    std::uint32_t number = 0;
    EXPECT_GT(fi_eq_read(eq, &number, &event, sizeof event, 0), 0);
  }

  NodeOptions options = [] {
    NodeOptions with;
    with.threading = FI_THREAD_SAFE;
    return with;
  }();
  Node node{options};
  fid_wait* set = nullptr;
  fid_cq* cq = nullptr;
  fid_cntr* cntr = nullptr;
  fid_eq* eq = nullptr;
  fid_ep* ep = nullptr;
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  fi_eq_entry event{};
  char in[4] = {};
};

TEST_P(WaitSets, WaitForAnyOfThem) {
  EXPECT_EQ(fi_wait(set, 0), -FI_ETIMEDOUT);
  fi_cq_tagged_entry entry;
  receive(FI_COMPLETION);
  EXPECT_EQ(fi_wait(set, kLong), 0);
  EXPECT_EQ(fi_wait(set, -1), 0) << "nothing was read";
  EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
  EXPECT_EQ(fi_cntr_read(cntr), 1u);
  EXPECT_EQ(fi_wait(set, 1), -FI_ETIMEDOUT);
  receive(0);  // the counter alone
  EXPECT_EQ(fi_wait(set, -1), 0);
  EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
  EXPECT_EQ(fi_cntr_read(cntr), 2u);
  write_event();
  EXPECT_EQ(fi_wait(set, -1), 0);
  read_event();
  EXPECT_EQ(fi_cq_signal(cq), 0);
  EXPECT_EQ(fi_wait(set, -1), 0);
  EXPECT_EQ(fi_wait(set, 0), -FI_ETIMEDOUT) << "a signal wakes once";
}

TEST_P(WaitSets, HaveOneObject) {
  fi_wait_obj kind = FI_WAIT_NONE;
  const bool native = GetParam() == FI_WAIT_FD || GetParam() == FI_WAIT_MUTEX_COND;
  EXPECT_EQ(fi_control(&set->fid, FI_GETWAITOBJ, &kind), native ? 0 : -FI_ENODATA);
  if (!native) {
    EXPECT_EQ(may_wait(node, &set->fid), -FI_EINVAL);
    return;
  }
  EXPECT_EQ(kind, GetParam());
  EXPECT_EQ(may_wait(node, &set->fid), 0);
  const auto blocks_until = [&](auto&& arrive) {
    if (GetParam() == FI_WAIT_FD) {
      const int fd = descriptor_of(&set->fid);
      EXPECT_EQ(descriptor_of(&cq->fid), fd);
      EXPECT_FALSE(is_readable(fd, 0));
      arrive();
      EXPECT_TRUE(is_readable(fd, kLong));
    } else {
      const Condition condition(&set->fid);
      bool woken = false;
      std::thread sleeper([&] { woken = condition.block(node, &set->fid); });
      arrive();
      sleeper.join();
      EXPECT_TRUE(woken);
    }
    EXPECT_EQ(may_wait(node, &set->fid), -FI_EAGAIN);
  };
  fi_cq_tagged_entry entry;
  blocks_until([&] { receive(FI_COMPLETION); });
  EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
  EXPECT_EQ(may_wait(node, &set->fid), -FI_EAGAIN) << "the counter has something, too";
  EXPECT_EQ(fi_cntr_read(cntr), 1u);
  EXPECT_EQ(may_wait(node, &set->fid), 0);
  blocks_until([&] { receive(0); });
  EXPECT_EQ(fi_cntr_read(cntr), 2u);
  EXPECT_EQ(may_wait(node, &set->fid), 0);
  blocks_until([&] { write_event(); });
  read_event();
  EXPECT_EQ(may_wait(node, &set->fid), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, WaitSets,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_YIELD, FI_WAIT_FD,
                                           FI_WAIT_MUTEX_COND));

TEST(WaitSet, WhatCannotBeOpened) {
  Node node;
  fid_wait* set = nullptr;
  fi_wait_attr attr{};
  EXPECT_EQ(fi_wait_open(node.fabric, &attr, &set), -FI_EINVAL) << "FI_WAIT_NONE";
  attr.wait_obj = FI_WAIT_SET;
  EXPECT_EQ(fi_wait_open(node.fabric, &attr, &set), -FI_EINVAL);
  attr.wait_obj = FI_WAIT_FD;
  attr.flags = 1;
  EXPECT_EQ(fi_wait_open(node.fabric, &attr, &set), -FI_EBADFLAGS);
  fi_cq_attr without{};
  without.wait_obj = FI_WAIT_SET;
  fid_cq* cq = nullptr;
  EXPECT_EQ(fi_cq_open(node.domain, &without, &cq, nullptr), -FI_EINVAL);
  attr.flags = 0;
  ASSERT_EQ(fi_wait_open(node.fabric, &attr, &set), 0);
  EXPECT_EQ(fi_control(&set->fid, FI_GETOPSFLAG, &attr), -FI_ENOSYS);
  EXPECT_EQ(fi_close(&node.domain->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&set->fid), 0);
}

TEST(PollSet, TellsWhoHasSomething) {
  NodeOptions options;
  PairOfNodes pair(options);
  fid_cq* cq = pair.b.cq;
  cq->fid.context = &pair;
  fid_poll* set = nullptr;
  fi_poll_attr attr{};
  ASSERT_EQ(fi_poll_open(pair.b.domain, &attr, &set), 0);
  EXPECT_EQ(fi_poll_add(set, &cq->fid, 0), 0);
  fid_cntr* cntr = nullptr;
  fi_cntr_attr cntr_attr{};
  ASSERT_EQ(fi_cntr_open(pair.b.domain, &cntr_attr, &cntr, &cntr), 0);
  ASSERT_EQ(fi_ep_bind(pair.b.ep, &cntr->fid, FI_RECV), 0);
  EXPECT_EQ(fi_poll_add(set, &cntr->fid, 0), 0);
  void* contexts[2] = {};
  EXPECT_EQ(fi_poll(set, contexts, 2), 0);
  char in[4];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 1), 0);
  EXPECT_EQ(fi_poll(set, contexts, 1), 1) << "no more than fit";
  EXPECT_EQ(contexts[0], &pair);
  EXPECT_EQ(fi_poll(set, contexts, 2), 2);
  EXPECT_EQ(contexts[1], &cntr);
  EXPECT_EQ(fi_poll(set, contexts, 2), 1) << "of a counter once, of a queue until it is read";
  EXPECT_NE(pair.b.next(), nullptr);
  EXPECT_EQ(fi_cntr_add(cntr, 1), 0);
  EXPECT_EQ(fi_poll(set, contexts, 2), 0) << "the program knows what it adds";
  EXPECT_EQ(fi_close(&cntr->fid), -FI_EBUSY) << "it is in a set";
  EXPECT_EQ(fi_poll_del(set, &cntr->fid, 0), 0);
  EXPECT_EQ(fi_poll_del(set, &cntr->fid, 0), -FI_EINVAL);
  pair.b.others.push_back(&cntr->fid);
  EXPECT_EQ(fi_close(&set->fid), 0);
}

TEST(PollSet, TakesQueuesAndCountersOfItsDomain) {
  Node node, other;
  fid_poll* set = nullptr;
  fi_poll_attr attr{};
  attr.flags = 1;
  EXPECT_EQ(fi_poll_open(node.domain, &attr, &set), -FI_EBADFLAGS);
  attr.flags = 0;
  ASSERT_EQ(fi_poll_open(node.domain, &attr, &set), 0);
  EXPECT_EQ(fi_poll_add(set, &node.av->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_poll_add(set, &other.cq->fid, 0), -FI_EDOMAIN);
  EXPECT_EQ(fi_poll_add(set, &node.cq->fid, 1), -FI_EBADFLAGS);
  EXPECT_EQ(fi_poll_add(set, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_close(&set->fid), 0);
}

}  // namespace
}  // namespace turnout::testing
