// SPDX-License-Identifier: BSD-3-Clause
// Tagged messages: matching, peeks, claims, cancel, errors.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

struct Tagged : ::testing::Test {
  PairOfNodes pair;
  Node& a = pair.a;
  Node& b = pair.b;
  int contexts[8] = {};

  void send(const std::string& text, std::uint64_t tag, void* context = nullptr) {
    ASSERT_EQ(fi_tsend(a.ep, text.data(), text.size(), nullptr, pair.to_b, tag, context), 0);
  }
  ssize_t peek(std::uint64_t tag, std::uint64_t ignore, std::uint64_t flags, void* context,
               fi_addr_t from = FI_ADDR_UNSPEC) {
    fi_msg_tagged msg{};
    msg.addr = from;
    msg.tag = tag;
    msg.ignore = ignore;
    msg.context = context;
    return fi_trecvmsg(b.ep, &msg, flags);
  }
};

TEST_F(Tagged, SendAndReceive) {
  char in[16] = {};
  ASSERT_EQ(fi_trecv(b.ep, in, sizeof(in), nullptr, pair.to_a, 5, 0, &contexts[0]), 0);
  send("hello", 5, &contexts[1]);
  const auto sent = a.next();
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->op_context, &contexts[1]);
  EXPECT_EQ(sent->flags, FI_SEND | FI_TAGGED);
  const auto got = b.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &contexts[0]);
  EXPECT_EQ(got->flags, FI_RECV | FI_TAGGED);
  EXPECT_EQ(got->len, 5u);
  EXPECT_EQ(got->tag, 5u);
  EXPECT_STREQ(in, "hello");
}

TEST_F(Tagged, EveryWayToSendArrives) {
  char data[4] = {'a', 'b', 'c', 'd'};
  const iovec halves[2] = {{data, 2}, {data + 2, 2}};
  fi_msg_tagged msg{};
  msg.msg_iov = halves;
  msg.iov_count = 2;
  msg.addr = pair.to_b;
  msg.tag = 3;
  msg.data = 33;
  ASSERT_EQ(fi_tsend(a.ep, data, 4, nullptr, pair.to_b, 1, nullptr), 0);
  ASSERT_EQ(fi_tsendv(a.ep, halves, nullptr, 2, pair.to_b, 2, nullptr), 0);
  ASSERT_EQ(fi_tsendmsg(a.ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION), 0);
  ASSERT_EQ(fi_tinject(a.ep, data, 4, pair.to_b, 4), 0);
  ASSERT_EQ(fi_tsenddata(a.ep, data, 4, nullptr, 55, pair.to_b, 5, nullptr), 0);
  ASSERT_EQ(fi_tinjectdata(a.ep, data, 4, 66, pair.to_b, 6), 0);
  for (std::uint64_t tag = 1; tag <= 6; ++tag) {
    char in[4] = {};
    const iovec parts[2] = {{in, 1}, {in + 1, 3}};
    ASSERT_EQ(fi_trecvv(b.ep, parts, nullptr, 2, pair.to_a, tag, 0, nullptr), 0);
    auto got = b.next();
    if (got == nullptr) got = b.next();
    ASSERT_NE(got, nullptr) << tag;
    EXPECT_EQ(got->tag, tag);
    EXPECT_EQ(std::memcmp(in, data, 4), 0);
    const bool has_data = tag == 3 || tag >= 5;
    EXPECT_EQ((got->flags & FI_REMOTE_CQ_DATA) != 0, has_data);
    if (has_data) {
      EXPECT_EQ(got->data, tag * 11);
    }
  }
  int entries = 0;
  while (a.next() != nullptr) ++entries;
  EXPECT_EQ(entries, 4) << "injected messages have no entry";
}

TEST_F(Tagged, IgnoredBitsAndSourcesSelect) {
  Node third;
  const fi_addr_t from_third = b.insert(third);
  const fi_addr_t to_b = third.insert(b);
  send("a1", 0x11);
  ASSERT_EQ(fi_tinject(third.ep, "t1", 2, to_b, 0x12), 0);
  send("a2", 0x22);
  char in[4][3] = {};
  ASSERT_EQ(fi_trecv(b.ep, in[0], 2, nullptr, pair.to_a, 0x20, 0x0f, nullptr), 0);
  ASSERT_EQ(fi_trecv(b.ep, in[1], 2, nullptr, from_third, 0, ~0ull, nullptr), 0);
  ASSERT_EQ(fi_trecv(b.ep, in[2], 2, nullptr, FI_ADDR_UNSPEC, 0, ~0ull, nullptr), 0);
  while (b.next() != nullptr) {
  }
  EXPECT_STREQ(in[0], "a2");
  EXPECT_STREQ(in[1], "t1");
  EXPECT_STREQ(in[2], "a1");
}

TEST(TaggedUndirected, SourcesAreIgnoredWithoutDirectedReceive) {
  NodeOptions options;
  options.caps = FI_TAGGED | FI_MSG;
  PairOfNodes pair(options);
  char in[3] = {};
  ASSERT_EQ(fi_trecv(pair.b.ep, in, 2, nullptr, 12345, 1, 0, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "ok", 2, pair.to_b, 1), 0);
  EXPECT_NE(pair.b.next(), nullptr);
  EXPECT_STREQ(in, "ok");
}

TEST_F(Tagged, TruncationIsAnErrorWithWhatArrived) {
  char in[3] = {};
  ASSERT_EQ(fi_trecv(b.ep, in, 2, nullptr, FI_ADDR_UNSPEC, 7, 0, &contexts[0]), 0);
  send("hello", 7);
  const fi_cq_err_entry error = b.next_error();
  EXPECT_EQ(error.err, FI_ETRUNC);
  EXPECT_EQ(error.op_context, &contexts[0]);
  EXPECT_EQ(error.len, 2u);
  EXPECT_EQ(error.olen, 3u);
  EXPECT_EQ(error.tag, 7u);
  EXPECT_EQ(error.flags, FI_RECV | FI_TAGGED);
  EXPECT_STREQ(in, "he");
}

TEST_F(Tagged, CancelEndsAReceiveOnce) {
  char in[3] = {};
  ASSERT_EQ(fi_trecv(b.ep, in, 2, nullptr, FI_ADDR_UNSPEC, 7, 0, &contexts[0]), 0);
  ASSERT_EQ(fi_trecv(b.ep, in, 2, nullptr, FI_ADDR_UNSPEC, 7, 0, &contexts[1]), 0);
  EXPECT_EQ(fi_cancel(&b.ep->fid, &contexts[0]), 0);
  EXPECT_EQ(fi_cancel(&b.ep->fid, &contexts[0]), -FI_ENOENT);
  const fi_cq_err_entry error = b.next_error();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &contexts[0]);
  send("ok", 7);
  const auto got = b.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &contexts[1]);
}

TEST_F(Tagged, PeekMissesAndHits) {
  ASSERT_EQ(peek(9, 0, FI_PEEK, &contexts[0]), 0);
  const fi_cq_err_entry miss = b.next_error();
  EXPECT_EQ(miss.err, FI_ENOMSG);
  EXPECT_EQ(miss.op_context, &contexts[0]);
  send("hello", 9);
  for (int i = 0; i < 2; ++i) {  // a peek leaves the message where it is
    ASSERT_EQ(peek(0, ~0ull, FI_PEEK | FI_COMPLETION, &contexts[1], pair.to_a), 0);
    const auto hit = b.next();
    ASSERT_NE(hit, nullptr);
    EXPECT_EQ(hit->op_context, &contexts[1]);
    EXPECT_EQ(hit->len, 5u);
    EXPECT_EQ(hit->tag, 9u);
    EXPECT_EQ(hit->flags, FI_RECV | FI_TAGGED);
  }
  char in[6] = {};
  ASSERT_EQ(fi_trecv(b.ep, in, 5, nullptr, pair.to_a, 9, 0, nullptr), 0);
  EXPECT_NE(b.next(), nullptr);
  EXPECT_STREQ(in, "hello");
}

TEST_F(Tagged, ClaimedMessagesBelongToTheirContext) {
  send("one", 1);
  send("two", 1);
  ASSERT_EQ(peek(1, 0, FI_PEEK | FI_CLAIM, &contexts[0]), 0);
  ASSERT_NE(b.next(), nullptr);
  char in[4] = {};
  ASSERT_EQ(fi_trecv(b.ep, in, 3, nullptr, FI_ADDR_UNSPEC, 1, 0, &contexts[1]), 0);
  ASSERT_NE(b.next(), nullptr);
  EXPECT_STREQ(in, "two") << "the claimed message is not matched by others";
  // Address and tag of a claim are not looked at: Open MPI passes address 0.
  const iovec part{in, 3};
  fi_msg_tagged msg{};
  msg.msg_iov = &part;
  msg.iov_count = 1;
  msg.addr = 0;
  msg.tag = 99;
  msg.context = &contexts[0];
  ASSERT_EQ(fi_trecvmsg(b.ep, &msg, FI_CLAIM), 0);
  const auto got = b.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &contexts[0]);
  EXPECT_STREQ(in, "one");
  EXPECT_EQ(fi_trecvmsg(b.ep, &msg, FI_CLAIM), -FI_EINVAL) << "nothing is claimed any more";
}

TEST_F(Tagged, DiscardDropsAtPeekOrAfterAClaim) {
  send("one", 1);
  send("two", 1);
  send("three", 1);
  ASSERT_EQ(peek(1, 0, FI_PEEK | FI_DISCARD, &contexts[0]), 0);
  const auto dropped = b.next();
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(dropped->len, 3u);
  ASSERT_EQ(peek(1, 0, FI_PEEK | FI_CLAIM, &contexts[1]), 0);
  ASSERT_NE(b.next(), nullptr);
  ASSERT_EQ(peek(1, 0, FI_CLAIM | FI_DISCARD, &contexts[1]), 0);
  const auto ended = b.next();
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->op_context, &contexts[1]);
  char in[8] = {};
  ASSERT_EQ(fi_trecv(b.ep, in, 7, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
  ASSERT_NE(b.next(), nullptr);
  EXPECT_STREQ(in, "three");
}

TEST_F(Tagged, NonsenseIsRefused) {
  EXPECT_EQ(peek(1, 0, FI_DISCARD, nullptr), -FI_EINVAL);
  EXPECT_EQ(peek(1, 0, FI_PEEK | FI_CLAIM | FI_DISCARD, nullptr), -FI_EINVAL);
  EXPECT_EQ(peek(1, 0, FI_TRIGGER, nullptr), -FI_EBADFLAGS);
  char big[kInjectLimit + 1] = {};
  EXPECT_EQ(fi_tinject(a.ep, big, sizeof(big), pair.to_b, 1), -FI_EINVAL);
  EXPECT_EQ(fi_tsend(a.ep, big, 1, nullptr, 77, 1, nullptr), -FI_EINVAL) << "no such address";
  iovec many[9] = {};
  EXPECT_EQ(fi_tsendv(a.ep, many, nullptr, 9, pair.to_b, 1, nullptr), -FI_EINVAL);
  fi_msg_tagged msg{};
  msg.addr = pair.to_b;
  EXPECT_EQ(fi_tsendmsg(a.ep, &msg, FI_FENCE), -FI_EBADFLAGS);
}

TEST_F(Tagged, EmptyMessagesArrive) {
  ASSERT_EQ(fi_tsend(a.ep, nullptr, 0, nullptr, pair.to_b, 1, nullptr), 0);
  fi_msg_tagged msg{};
  msg.addr = pair.to_b;
  msg.tag = 1;
  ASSERT_EQ(fi_tsendmsg(a.ep, &msg, 0), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(fi_trecv(b.ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    auto got = b.next();
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->len, 0u);
  }
}

TEST_F(Tagged, BackPressureIsTryAgainAndMakesProgress) {
  faults().send = Status(Code::again, "no credits");
  const std::size_t before = a.core->progress_calls;
  EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, pair.to_b, 1, nullptr), -FI_EAGAIN);
  EXPECT_GT(a.core->progress_calls, before);
  EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, pair.to_b, 1, nullptr), 0);
  faults().reset();
}

TEST_F(Tagged, FailuresOfACallHaveTheirOwnNumbers) {
  const std::pair<Code, int> table[] = {
      {Code::over_budget, FI_ENOMEM},   {Code::invalid, FI_EINVAL},
      {Code::peer_lost, FI_ECONNRESET}, {Code::permission, FI_EACCES},
      {Code::no_device, FI_ENODEV},     {Code::unsupported, FI_EOPNOTSUPP},
      {Code::version, FI_EOPNOTSUPP},   {Code::internal, FI_EOTHER},
  };
  for (const auto& [code, number] : table) {
    faults().send = Status(code, "as the test wants it");
    EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, pair.to_b, 1, nullptr), -number) << code_name(code);
  }
  faults().send = Status(Code::system, "ibv_post_send", ENOBUFS);
  EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, pair.to_b, 1, nullptr), -ENOBUFS);
  faults().peer = Status(Code::over_budget, "no room for another peer");
  Node third;
  const fi_addr_t to_third = a.insert(third);
  EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, to_third, 1, nullptr), -FI_ENOMEM);
  EXPECT_EQ(fi_tsend(a.ep, "x", 1, nullptr, to_third, 1, nullptr), 0)
      << "and it can be tried again";
}

TEST_F(Tagged, ALostPeerEndsItsOperationsOnly) {
  char in[4] = {};
  Node third;
  const fi_addr_t from_third = b.insert(third);
  third.insert(b);
  ASSERT_EQ(fi_trecv(b.ep, in, 3, nullptr, pair.to_a, 1, 0, &contexts[0]), 0);
  ASSERT_EQ(fi_trecv(b.ep, in, 3, nullptr, from_third, 1, 0, &contexts[1]), 0);
  b.core->lose(0);
  const fi_cq_err_entry error = b.next_error();
  EXPECT_EQ(error.err, FI_ECONNRESET);
  EXPECT_EQ(error.op_context, &contexts[0]);
  char text[128];
  EXPECT_NE(std::string(fi_cq_strerror(b.cq, error.prov_errno, error.err_data, text, sizeof(text)))
                .find("the peer's process is gone"),
            std::string::npos);
  ASSERT_EQ(fi_tinject(third.ep, "ok", 2, 0, 1), 0);
  const auto got = b.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &contexts[1]);
}

}  // namespace
}  // namespace turnout::testing
