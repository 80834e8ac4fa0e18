// SPDX-License-Identifier: BSD-3-Clause
// RTRs: when they are sent, which messages need a put completion, and their last bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/core/endpoint/known_pair.h"

namespace turnout {
namespace {

// One wildcard before it, and whose turn it is cannot be known.
TEST(Rtr, AreMadeOnlyWhereTheMatchIsCertain) {
  KnownPair pair("put");
  std::vector<std::byte> a(9000), b(9000), c(9000), d(100), e(100);
  pair.recv(a, 5, 0, true);
  EXPECT_EQ(pair.receiver().operations.rtrs, 0u);
  pair.recv(b, 5);  // behind it
  EXPECT_EQ(pair.receiver().operations.rtrs, 0u);
  pair.recv(c, 6);
  EXPECT_EQ(pair.receiver().operations.rtrs, 1u);
  pair.recv(d, 7);  // eager
  pair.recv(e, 8);
  EXPECT_EQ(pair.receiver().operations.rtrs, 1u);
  std::vector<std::byte> out = pattern(9000, 1), more = pattern(9000, 2);
  pair.settle();
  pair.send(out, 5);
  pair.send(more, 5);
  ASSERT_TRUE(pair.received());
  pair.settle();
  EXPECT_EQ(a, out);
  EXPECT_EQ(b, more);
  EXPECT_EQ(pair.sender().operations.puts, 0u);
}

// Remote data are foreseen to be those of the message before.
TEST(Rtr, OtherMessagesSendAPutCompletion) {
  KnownPair pair("put");
  std::vector<std::byte> out = pattern(9000, 1), in(9000);
  for (const std::uint64_t data : {5u, 5u, 6u}) {
    pair.recv(in, 1);
    pair.settle();
    const iovec bytes = piece(out);
    SendRequest request =
        tagged_send(pair.world().peer(0, 1), bytes, 1, pair.world().report(0, nullptr));
    request.has_remote_data = true;
    request.remote_data = data;
    ASSERT_TRUE(pair.world()[0].send(request).ok());
    ASSERT_TRUE(pair.received());
    const Completion got = take(pair.world().queue(1));
    EXPECT_EQ(got.data, data);
    EXPECT_NE(got.flags & kRemoteData, 0u);
    pair.settle();
  }
  EXPECT_EQ(pair.sender().operations.puts, 3u);
  EXPECT_GE(pair.sender().operations.put_completions, 2u);
  // The second, when its last byte is the sentinel.
  EXPECT_LE(pair.sender().operations.put_completions, 3u);
}

// Registering many receives before the first message would hold up the program; those that come by
// `get` are registered while others travel.
TEST(Rtr, OfAutoAreOfRegisteredReceivesButForOne) {
  KnownPair pair("auto");
  constexpr std::size_t kReceives = 4, kBytes = 9000;
  std::vector<std::vector<std::byte>> out, in(kReceives, std::vector<std::byte>(kBytes));
  for (unsigned i = 0; i < kReceives; ++i) out.push_back(pattern(kBytes, i));
  const bool kept = pair.receiver().registrations.off.empty();
  std::uint64_t rtrs = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kReceives; ++i) pair.recv(in[i], i);
    rtrs += round > 0 && kept ? kReceives : 1;
    EXPECT_EQ(pair.receiver().operations.rtrs, rtrs) << round;
    pair.settle();
    for (std::size_t i = 0; i < kReceives; ++i) pair.send(out[i], i);
    ASSERT_TRUE(pair.world().until([&] { return pair.world().queue(1).size() == kReceives; }));
    ASSERT_TRUE(pair.world().until([&] { return pair.world().queue(0).size() == kReceives; }));
    for (std::size_t i = 0; i < kReceives; ++i) {
      (void)take(pair.world().queue(0));
      (void)take(pair.world().queue(1));
      EXPECT_EQ(in[i], out[i]);
    }
  }
  EXPECT_EQ(pair.sender().operations.puts, rtrs);
}

// With a random byte to begin with, 1 of 256 messages looks as if it had not come; with a constant
// one, or the one before, all or none of them.
TEST(Rtr, OneOf256NeedsAPutCompletion) {
  constexpr std::uint64_t kMessages = 25'600;
  struct Case {
    std::string protocol, last_byte;
    unsigned before;
  };
  for (const Case& c : {Case{"put", "set", 0}, Case{"putnr", "set", 1}, Case{"put", "keep", 0},
                        Case{"put", "keep", 1}}) {
    SCOPED_TRACE(testing::Message() << c.protocol << " " << c.last_byte << " " << c.before);
    KnownPair pair(c.protocol, {{"rtr_sentinel", c.last_byte}});
    std::vector<std::byte> out = pattern(4200, 1), in(4200);
    out.back() = std::byte{0};
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      in.back() = std::byte(c.before);
      pair.recv(in, 1);
      pair.world().progress_all(2);
      pair.send(out, 1);
      ASSERT_TRUE(pair.received());
      ASSERT_TRUE(pair.sent());
      ASSERT_EQ(in.back(), out.back());
      (void)take(pair.world().queue(1));
      (void)take(pair.world().queue(0));
    }
    const EndpointReport report = pair.sender();
    ASSERT_EQ(report.operations.puts, kMessages);
    if (c.protocol == "put" && c.last_byte == "set") {
      // Binomial, mean 100 and deviation 9.98: beyond five deviations once in a million runs.
      EXPECT_GT(report.operations.put_completions, 50u);
      EXPECT_LT(report.operations.put_completions, 150u);
    } else {
      EXPECT_EQ(report.operations.put_completions,
                c.protocol == "putnr" || c.before == 0 ? kMessages : 0);
    }
  }
}

// A program may send from the end of a receive that stands, and keeps what no message reached.
TEST(Rtr, ChangeNothingBeyondTheirMessages) {
  for (const std::string last_byte : {"keep", "set"}) {
    for (const std::size_t bytes : {100u, 5000u, 8999u}) {
      SCOPED_TRACE(testing::Message() << last_byte << ", " << bytes << " bytes");
      KnownPair pair("put", {{"rtr_sentinel", last_byte}});
      std::vector<std::byte> out = pattern(bytes, 1);
      for (unsigned round = 0; round < 8; ++round) {
        const std::vector<std::byte> before = pattern(9000, round + 2);
        std::vector<std::byte> in = before;
        pair.recv(in, 1);
        pair.settle();
        EXPECT_EQ(pair.receiver().operations.rtrs, round + 1);
        if (last_byte == "keep") {
          EXPECT_EQ(in, before);
        }
        pair.send(out, 1);
        ASSERT_TRUE(pair.received());
        ASSERT_TRUE(pair.sent());
        EXPECT_EQ(take(pair.world().queue(1)).length, bytes);
        (void)take(pair.world().queue(0));
        EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
        EXPECT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(bytes), before.end(),
                               in.begin() + static_cast<std::ptrdiff_t>(bytes)));
      }
      EXPECT_EQ(pair.sender().operations.puts, bytes > 4096 ? 8u : 0u);
    }
  }
}

// A cancelled receive with an RTR is unchanged.
TEST(Rtr, ThatAreCancelledLeaveTheLastByte) {
  KnownPair pair("put", {{"rtr_sentinel", "set"}});
  for (unsigned round = 0; round < 8; ++round) {
    const std::vector<std::byte> before = pattern(9000, round + 2);
    std::vector<std::byte> in = before;
    int context = 0;
    pair.recv(in, 1, reinterpret_cast<std::uint64_t>(&context));
    pair.settle();
    ASSERT_TRUE(pair.world()[1].cancel(&context));
    ASSERT_TRUE(pair.received());
    EXPECT_EQ(pair.world().queue(1).pop_error().status.code(), Code::canceled);
    EXPECT_EQ(in, before);
  }
}

// If receives are posted late no RTRs are sent after a while, except an occasional one.
TEST(Rtr, OfAutoStopWhereTheyComeToNothing) {
  KnownPair pair("auto");
  std::vector<std::byte> in(9000), little(10);
  for (int i = 0; i < 400; ++i) ASSERT_NO_FATAL_FAILURE(pair.meet(little, in, 1));
  EXPECT_GT(pair.receiver().operations.rtrs, 10u);
  EXPECT_LT(pair.receiver().operations.rtrs, 50u);
  std::vector<std::byte> out = pattern(9000, 1);
  for (int i = 0; i < 400; ++i) ASSERT_NO_FATAL_FAILURE(pair.meet(out, in, 1));
  EXPECT_GT(pair.sender().operations.puts, 300u);
}

}  // namespace
}  // namespace turnout
