// SPDX-License-Identifier: BSD-3-Clause
// Completion queues: formats, layouts by API version, errors, waiting, several endpoints on one
// queue.
#include "provider/cq.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "provider/compat.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

template <class Entry>
Entry read_one(fid_cq* cq) {
  // More room than one entry, filled with a pattern: nothing behind the entry may be written.
  std::array<unsigned char, 2 * sizeof(fi_cq_tagged_entry)> room;
  room.fill(0xee);
  ssize_t n = -FI_EAGAIN;
  while (n == -FI_EAGAIN) n = fi_cq_read(cq, room.data(), 1);
  EXPECT_EQ(n, 1);
  for (std::size_t i = sizeof(Entry); i < room.size(); ++i) EXPECT_EQ(room[i], 0xee) << i;
  Entry entry;
  std::memcpy(&entry, room.data(), sizeof(entry));
  return entry;
}

struct Formats : ::testing::TestWithParam<fi_cq_format> {};

TEST_P(Formats, HaveTheirFieldsAndNoMore) {
  NodeOptions options;
  options.format = GetParam();
  PairOfNodes pair(options);
  char in[4] = {};
  int context = 0;
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 7, 0, &context), 0);
  ASSERT_EQ(fi_tinjectdata(pair.a.ep, "abc", 3, 99, pair.to_b, 7), 0);
  const std::uint64_t flags = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
  switch (GetParam()) {
    case FI_CQ_FORMAT_UNSPEC:
    case FI_CQ_FORMAT_CONTEXT: {
      EXPECT_EQ(read_one<fi_cq_entry>(pair.b.cq).op_context, &context);
      break;
    }
    case FI_CQ_FORMAT_MSG: {
      const auto e = read_one<fi_cq_msg_entry>(pair.b.cq);
      EXPECT_EQ(e.op_context, &context);
      EXPECT_EQ(e.flags, flags);
      EXPECT_EQ(e.len, 3u);
      break;
    }
    case FI_CQ_FORMAT_DATA: {
      const auto e = read_one<fi_cq_data_entry>(pair.b.cq);
      EXPECT_EQ(e.op_context, &context);
      EXPECT_EQ(e.flags, flags);
      EXPECT_EQ(e.data, 99u);
      EXPECT_EQ(e.buf, in);
      break;
    }
    case FI_CQ_FORMAT_TAGGED: {
      const auto e = read_one<fi_cq_tagged_entry>(pair.b.cq);
      EXPECT_EQ(e.op_context, &context);
      EXPECT_EQ(e.flags, flags);
      EXPECT_EQ(e.data, 99u);
      EXPECT_EQ(e.tag, 7u);
      break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Formats,
                         ::testing::Values(FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT,
                                           FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA,
                                           FI_CQ_FORMAT_TAGGED));

TEST(Queue, FlagsOfTheCoreBecomeLibfabrics) {
  EXPECT_EQ(provider::entry_flags(kSend | kMessage), FI_SEND | FI_MSG);
  EXPECT_EQ(provider::entry_flags(kRecv | kTagged | kRemoteData | kMultiRecvDone),
            FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA | FI_MULTI_RECV);
  EXPECT_EQ(provider::entry_flags(kRmaWrite), FI_RMA | FI_WRITE);
  EXPECT_EQ(provider::entry_flags(kRmaRead), FI_RMA | FI_READ);
  EXPECT_EQ(provider::entry_flags(kRemoteWrite | kRemoteData),
            FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(provider::entry_flags(kAtomic | kRmaWrite), FI_ATOMIC | FI_WRITE);
  EXPECT_EQ(provider::entry_flags(kAtomic | kRmaRead), FI_ATOMIC | FI_READ);
  EXPECT_EQ(provider::entry_flags(kAtomic | kRemoteWrite | kRemoteData),
            FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(provider::entry_flags(kRecv | kTagged | kClaimed), FI_RECV | FI_TAGGED);
}

struct Layouts : ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Layouts, ErrorEntriesHaveTheSizeOfTheApiVersion) {
  NodeOptions options;
  options.api = GetParam();
  PairOfNodes pair(options);
  char in[2];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 2, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 1), 0);
  fi_cq_tagged_entry entry;
  ASSERT_EQ(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAVAIL);
  std::array<unsigned char, 128> room;
  room.fill(0xee);
  auto* error = reinterpret_cast<fi_cq_err_entry*>(room.data());
  if (GetParam() >= provider::kApi15) error->err_data_size = 0;
  ASSERT_EQ(fi_cq_readerr(pair.b.cq, error, 0), 1);
  const std::size_t size = GetParam() < provider::kApi15    ? 72u
                           : GetParam() < provider::kApi120 ? 80u
                                                            : 88u;
  for (std::size_t i = size; i < room.size(); ++i) EXPECT_EQ(room[i], 0xee) << i;
  EXPECT_EQ(error->err, FI_ETRUNC);
  if (GetParam() >= provider::kApi120) {
    EXPECT_EQ(reinterpret_cast<provider::CqErrEntry120*>(room.data())->src_addr, pair.to_a);
  }
  if (GetParam() >= provider::kApi15) {
    EXPECT_GT(error->err_data_size, 0u);
    EXPECT_NE(std::strstr(static_cast<char*>(error->err_data), "longer"), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, Layouts,
                         ::testing::Values(FI_VERSION(0, 0), FI_VERSION(1, 4), FI_VERSION(1, 5),
                                           FI_VERSION(1, 8), FI_VERSION(1, 17), FI_VERSION(1, 18),
                                           FI_VERSION(1, 20), FI_VERSION(2, 5)));

TEST(Queue, ErrorDataOfTheProgramIsNeverWritten) {
  PairOfNodes pair;
  char in[2];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 2, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 1), 0);
  fi_cq_tagged_entry entry;
  ASSERT_EQ(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAVAIL);
  fi_cq_err_entry error;
  std::memset(&error, 0xee, sizeof(error));  // as programs that do not initialise it
  ASSERT_EQ(fi_cq_readerr(pair.b.cq, &error, 0), 1);
  EXPECT_EQ(error.err_data_size, 0u);
}

TEST(Queue, TextsOfErrors) {
  PairOfNodes pair;
  int context = 0;
  char in[2];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 2, nullptr, FI_ADDR_UNSPEC, 1, 0, &context), 0);
  fi_cancel(&pair.b.ep->fid, &context);
  const fi_cq_err_entry error = pair.b.next_error();
  char text[64];
  EXPECT_STREQ(fi_cq_strerror(pair.b.cq, error.prov_errno, nullptr, text, sizeof(text)),
               "the receive was cancelled");
  EXPECT_STREQ(fi_cq_strerror(pair.b.cq, error.prov_errno, nullptr, nullptr, 0),
               "the receive was cancelled");
  char few[4];
  EXPECT_STREQ(fi_cq_strerror(pair.b.cq, error.prov_errno, nullptr, few, sizeof(few)), "the");
  EXPECT_STREQ(fi_cq_strerror(pair.b.cq, ENOENT, nullptr, text, sizeof(text)),
               "No such file or directory");
  EXPECT_STREQ(fi_cq_strerror(pair.b.cq, -5, nullptr, text, sizeof(text)), "unknown error");
  EXPECT_EQ(fi_cq_readerr(pair.b.cq, const_cast<fi_cq_err_entry*>(&error), 0), -FI_EAGAIN);
}

TEST(Queue, ReadsManyAtOnceInOrder) {
  PairOfNodes pair;
  constexpr int kMany = 3000;  // more than the queue is laid out for
  std::vector<int> in(kMany, -1);
  for (int i = 0; i < kMany; ++i) {
    ASSERT_EQ(fi_trecv(pair.b.ep, &in[static_cast<std::size_t>(i)], sizeof(int), nullptr,
                       FI_ADDR_UNSPEC, 1, 0, &in[static_cast<std::size_t>(i)]),
              0);
  }
  for (int i = 0; i < kMany; ++i) {
    ASSERT_EQ(fi_tinject(pair.a.ep, &i, sizeof(i), pair.to_b, 1), 0);
  }
  std::vector<fi_cq_tagged_entry> entries(100);
  int seen = 0;
  while (seen < kMany) {
    const ssize_t n = fi_cq_read(pair.b.cq, entries.data(), entries.size());
    ASSERT_GT(n, 0);
    for (ssize_t k = 0; k < n; ++k, ++seen) {
      ASSERT_EQ(entries[static_cast<std::size_t>(k)].op_context,
                &in[static_cast<std::size_t>(seen)]);
    }
  }
  for (int i = 0; i < kMany; ++i) EXPECT_EQ(in[static_cast<std::size_t>(i)], i);
}

TEST(Queue, SuccessesComeBeforeAFailure) {
  PairOfNodes pair;
  int contexts[2];
  char in[4];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, &contexts[0]), 0);
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 2, 0, &contexts[1]), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 1), 0);
  pair.b.core->progress();
  ASSERT_EQ(fi_cancel(&pair.b.ep->fid, &contexts[1]), 0);
  const auto got = pair.b.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &contexts[0]);
  EXPECT_EQ(pair.b.next_error().op_context, &contexts[1]);
  EXPECT_EQ(pair.b.next(), nullptr);
}

TEST(Queue, ReadingNothingMakesProgress) {
  PairOfNodes pair;
  const std::size_t before = pair.b.core->progress_calls;
  EXPECT_EQ(fi_cq_read(pair.b.cq, nullptr, 0), -FI_EAGAIN);
  EXPECT_GT(pair.b.core->progress_calls, before);
  char in[4];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 1), 0);
  EXPECT_EQ(fi_cq_read(pair.b.cq, nullptr, 0), 0) << "an entry is there";
  EXPECT_NE(pair.b.next(), nullptr);
}

TEST(Queue, ServesSeveralEndpoints) {
  Node node;
  NodeOptions second_options;
  second_options.domain = node.domain;
  second_options.tx_bind = second_options.rx_bind = 0;
  second_options.before_enable = [&](fid_domain*, fid_ep* ep) {
    EXPECT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  };
  auto second = std::make_unique<Node>(second_options);
  Node peer;
  // The vectors differ: the same peer has different indices, and the entry must name the right one.
  Node stranger;
  second->insert(stranger);
  const fi_addr_t in_first = node.insert(peer);
  const fi_addr_t in_second = second->insert(peer);
  ASSERT_NE(in_first, in_second);
  const fi_addr_t to_first = peer.insert(node);
  const fi_addr_t to_second = peer.insert(*second);
  char in[2][4];
  ASSERT_EQ(fi_recv(node.ep, in[0], 4, nullptr, FI_ADDR_UNSPEC, in[0]), 0);
  ASSERT_EQ(fi_recv(second->ep, in[1], 4, nullptr, FI_ADDR_UNSPEC, in[1]), 0);
  ASSERT_EQ(fi_inject(peer.ep, "abc", 3, to_first), 0);
  ASSERT_EQ(fi_inject(peer.ep, "def", 3, to_second), 0);
  for (int i = 0; i < 2; ++i) {
    fi_cq_tagged_entry entry;
    fi_addr_t source = 0;
    ASSERT_EQ(fi_cq_readfrom(node.cq, &entry, 1, &source), 1);
    EXPECT_EQ(source, entry.op_context == in[0] ? in_first : in_second);
  }
  second.reset();
  EXPECT_EQ(node.next(), nullptr);
}

TEST(Queue, WaitingPollsUntilSomethingComesOrTimeIsOver) {
  NodeOptions options;
  options.wait = FI_WAIT_UNSPEC;
  options.threading = FI_THREAD_SAFE;
  PairOfNodes pair(options);
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_sread(pair.b.cq, &entry, 1, nullptr, 0), -FI_EAGAIN);
  char in[4];
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 1), 0);
  EXPECT_EQ(fi_cq_sread(pair.b.cq, &entry, 1, nullptr, -1), 1);
  std::thread waker([&] { EXPECT_EQ(fi_cq_signal(pair.b.cq), 0); });
  EXPECT_EQ(fi_cq_sread(pair.b.cq, &entry, 1, nullptr, -1), -FI_EAGAIN) << "woken by the signal";
  waker.join();
  Node deaf;
  EXPECT_EQ(fi_cq_sread(deaf.cq, &entry, 1, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_cq_signal(deaf.cq), -FI_EINVAL);
}

TEST(Queue, WaitsForAThreshold) {
  NodeOptions options;
  PairOfNodes pair(options);
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.wait_obj = FI_WAIT_YIELD;
  attr.wait_cond = FI_CQ_COND_THRESHOLD;
  NodeOptions other;
  fid_cq* cq = nullptr;
  other.tx_bind = other.rx_bind = 0;
  other.before_enable = [&](fid_domain* domain, fid_ep* ep) {
    ASSERT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
  };
  Node node(other);
  node.others.push_back(&cq->fid);
  const fi_addr_t to = pair.a.insert(node);
  char in[2][4];
  fi_cq_tagged_entry entries[4];
  for (auto& buffer : in) {
    ASSERT_EQ(fi_trecv(node.ep, buffer, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  }
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, to, 1), 0);
  const void* two = reinterpret_cast<const void*>(std::size_t{2});
  EXPECT_EQ(fi_cq_sread(cq, entries, 4, two, 0), 1) << "time is over: what there is";
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, to, 1), 0);
  ASSERT_EQ(fi_trecv(node.ep, in[0], 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, to, 1), 0);
  EXPECT_EQ(fi_cq_sread(cq, entries, 4, two, -1), 2);
}

TEST(Queue, WaitObjectsThatNothingWouldSignalAreRefused) {
  Node node;
  constexpr auto kUnknown = static_cast<fi_wait_obj>(FI_WAIT_POLLFD + 1);
  for (const auto& [wait, answer] : {std::pair{FI_WAIT_SET, -FI_EINVAL}, {kUnknown, -FI_ENOSYS}}) {
    fi_cq_attr attr{};
    attr.wait_obj = wait;
    fid_cq* cq = nullptr;
    EXPECT_EQ(fi_cq_open(node.domain, &attr, &cq, nullptr), answer);
    fi_cntr_attr cntr_attr{};
    cntr_attr.wait_obj = wait;
    fid_cntr* cntr = nullptr;
    EXPECT_EQ(fi_cntr_open(node.domain, &cntr_attr, &cntr, nullptr), answer);
  }
}

// Every call of a domain may come from any thread when that was asked for: run under TSan.
TEST(Threads, ShareADomainThatIsSafe) {
  NodeOptions options;
  options.threading = FI_THREAD_SAFE;
  Node node(options);
  const fi_addr_t self = node.insert(node);
  constexpr int kThreads = 4, kMessages = 500;
  std::atomic<int> received{0};
  std::vector<int> in(kThreads);  // written under the domain's lock, by whoever makes progress
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kMessages; ++i) {
        const auto tag = static_cast<std::uint64_t>(t);
        EXPECT_EQ(fi_tinject(node.ep, &i, sizeof(i), self, tag), 0);
        EXPECT_EQ(fi_trecv(node.ep, &in[static_cast<std::size_t>(t)], sizeof(int), nullptr, self,
                           tag, 0, nullptr),
                  0);
        fi_cq_tagged_entry entry;
        fi_addr_t source;
        if (fi_cq_readfrom(node.cq, &entry, 1, &source) == 1) received.fetch_add(1);
        Address address = node.name();
        address.id += static_cast<std::uint64_t>(t * kMessages + i + 1);
        address.seal();
        EXPECT_EQ(fi_av_insert(node.av, &address, 1, nullptr, 0, nullptr), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  fi_cq_tagged_entry entry;
  while (fi_cq_read(node.cq, &entry, 1) == 1) received.fetch_add(1);
  EXPECT_EQ(received.load(), kThreads * kMessages);
}

}  // namespace
}  // namespace turnout::testing
