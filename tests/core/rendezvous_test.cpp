// The ways large messages travel: early and late receives, last bytes, what an offer does not
// foresee, cancel, wildcards, and that each message goes where MPI's order wants it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "tests/core/requests.h"
#include "tests/core/test_world.h"

namespace turnout {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

// These tests run with UD in DC's place, too.
bool over_dc() {
  const char* const start = std::getenv("TURNOUT_START_CHANNEL");
  return start == nullptr || std::string_view(start) != "ud";
}

// Two endpoints that know each other, so that receives can be offered.
class Pair {
 public:
  explicit Pair(std::string_view protocol, Overrides more = {})
      : world_(2, with(protocol, std::move(more))) {
    exchange(0, 1);
    exchange(1, 0);
  }
  TestWorld& world() { return world_; }

  void send(std::vector<std::byte>& bytes, std::uint64_t tag, std::uint64_t context = 0) {
    const iovec out = piece(bytes);
    ASSERT_TRUE(world_[0]
                    .send(tagged_send(world_.peer(0, 1), out, tag,
                                      world_.report(0, reinterpret_cast<void*>(context))))
                    .ok());
  }
  void recv(std::vector<std::byte>& bytes, std::uint64_t tag, std::uint64_t context = 0,
            bool from_any = false) {
    const iovec in = piece(bytes);
    RecvRequest request = tagged_recv(from_any ? kAnyPeer : world_.peer(1, 0), in, tag,
                                      world_.report(1, reinterpret_cast<void*>(context)));
    ASSERT_TRUE(world_[1].recv(request).ok());
  }
  bool sent() {
    return world_.until([&] { return world_.queue(0).size() > 0 || error(0); });
  }
  bool received() {
    return world_.until([&] { return world_.queue(1).size() > 0 || error(1); });
  }
  bool error(std::size_t i) { return world_.queue(i).has_error(); }
  void settle() { world_.progress_all(50); }
  EndpointReport sender() { return world_[0].report(); }
  EndpointReport receiver() { return world_[1].report(); }

 private:
  static Overrides with(std::string_view protocol, Overrides more) {
    more.emplace_back("rendezvous", protocol);
    more.emplace_back("policy", over_dc() ? "static:dc-sendrecv" : "static:ud-sendrecv");
    return more;
  }
  void exchange(std::size_t from, std::size_t to) {
    std::vector<std::byte> out(8), in(8);
    const iovec source = piece(out), target = piece(in);
    ASSERT_TRUE(
        world_[to]
            .recv(tagged_recv(world_.peer(to, from), target, 99, world_.report(to, nullptr)))
            .ok());
    ASSERT_TRUE(
        world_[from]
            .send(tagged_send(world_.peer(from, to), source, 99, world_.report(from, nullptr)))
            .ok());
    ASSERT_TRUE(
        world_.until([&] { return world_.queue(from).size() > 0 && world_.queue(to).size() > 0; }));
    (void)take(world_.queue(from));
    (void)take(world_.queue(to));
    settle();
  }
  TestWorld world_;
};

class Protocols : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] bool offers() const {
    return over_dc() && (GetParam() == "put" || GetParam() == "putnr" || GetParam() == "auto");
  }
};

TEST_P(Protocols, MessagesArriveWholeWhateverTheirLastByteIs) {
  Pair pair(GetParam());
  for (const bool early : {true, false}) {
    for (const std::size_t size : {4097u, 70'000u, 3u << 20}) {
      for (const unsigned last : {0u, 127u, 128u, 255u}) {
        SCOPED_TRACE(testing::Message() << size << " bytes, last " << last << ", early " << early);
        std::vector<std::byte> out = pattern(size, last), in(size, static_cast<std::byte>(last));
        out.back() = static_cast<std::byte>(last);
        if (early) pair.recv(in, 7);
        if (early) pair.settle();
        pair.send(out, 7);
        if (!early) pair.settle();
        if (!early) pair.recv(in, 7);
        ASSERT_TRUE(pair.received());
        ASSERT_TRUE(pair.sent());
        const Completion got = take(pair.world().queue(1)), done = take(pair.world().queue(0));
        EXPECT_EQ(in, out);
        EXPECT_EQ(got.length, size);
        EXPECT_EQ(got.tag, 7u);
        EXPECT_EQ(done.length, size);
      }
    }
  }
  EXPECT_EQ(pair.sender().rendezvous, 24u);
  EXPECT_EQ(pair.sender().puts, offers() ? 12u : 0u);
  pair.settle();
  EXPECT_FALSE(pair.error(0));
  EXPECT_FALSE(pair.error(1));
}

TEST_P(Protocols, ShorterMessagesSayTheirLengthAndLongerOnesAreTruncated) {
  Pair pair(GetParam());
  std::vector<std::byte> out = pattern(50'000, 1), in(60'000);
  pair.recv(in, 1);
  pair.settle();
  pair.send(out, 1);
  ASSERT_TRUE(pair.received());
  EXPECT_EQ(take(pair.world().queue(1)).length, out.size());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));

  std::vector<std::byte> small(20'000);
  pair.recv(small, 1);
  pair.settle();
  pair.send(out, 1);
  ASSERT_TRUE(pair.received());
  ASSERT_TRUE(pair.error(1));
  const ErrorCompletion error = pair.world().queue(1).pop_error();
  EXPECT_EQ(error.status.code(), Code::truncated);
  EXPECT_EQ(error.overflow, 30'000u);
  EXPECT_TRUE(std::equal(small.begin(), small.end(), out.begin()));

  // An eager message for a large receive.
  std::vector<std::byte> little = pattern(100, 2);
  pair.recv(in, 1);
  pair.settle();
  pair.send(little, 1);
  ASSERT_TRUE(pair.received());
  EXPECT_EQ(take(pair.world().queue(1)).length, little.size());
}

// Receives of one tag and of several, messages in between, everything at once.
TEST_P(Protocols, EachMessageGoesToTheReceiveOfItsTurn) {
  for (const unsigned settle : {0u, 1u, 2u}) {
    Pair pair(GetParam());
    std::mt19937_64 random(settle);
    constexpr int kMessages = 60;
    std::vector<std::vector<std::byte>> out, in;
    std::vector<std::uint64_t> tags;
    for (int i = 0; i < kMessages; ++i) {
      const std::size_t size = random() % 4 == 0 ? 50 : 5000 + random() % 3;
      out.push_back(pattern(size, static_cast<unsigned>(i)));
      in.emplace_back(random() % 4 == 0 ? 6000 : size);
      tags.push_back(random() % 2);
    }
    int posted = 0, sent = 0;
    std::size_t done = 0;
    while (posted < kMessages || sent < kMessages) {
      if (posted < kMessages && (sent == kMessages || random() % 2 == 0)) {
        pair.recv(in[posted], tags[posted], static_cast<std::uint64_t>(posted) + 1);
        ++posted;
      } else {
        pair.send(out[sent], tags[sent]);
        ++sent;
      }
      if (settle > 0 && random() % settle == 0) pair.world().progress_all(1);
    }
    while (done < kMessages) {
      ASSERT_TRUE(pair.received()) << done;
      ASSERT_FALSE(pair.error(1));
      const Completion c = take(pair.world().queue(1));
      const auto i = reinterpret_cast<std::uintptr_t>(c.context) - 1;
      ASSERT_EQ(c.length, out[i].size());
      ASSERT_TRUE(std::equal(out[i].begin(), out[i].end(), in[i].begin())) << i;
      ++done;
    }
  }
}

// The receive stays, or its message comes; never both, never neither.
TEST_P(Protocols, ACancelledReceiveTakesNoMessage) {
  Pair pair(GetParam());
  std::vector<std::byte> out = pattern(9000, 1), in(9000), later(9000);
  int context;
  const auto key = reinterpret_cast<std::uint64_t>(&context);
  pair.recv(in, 3, key);
  pair.settle();
  EXPECT_TRUE(pair.world()[1].cancel(&context));
  ASSERT_TRUE(pair.received());
  ASSERT_TRUE(pair.error(1));
  EXPECT_EQ(pair.world().queue(1).pop_error().status.code(), Code::canceled);
  pair.settle();
  pair.send(out, 3);
  pair.settle();
  pair.recv(later, 3);
  ASSERT_TRUE(pair.received());
  (void)take(pair.world().queue(1));
  EXPECT_EQ(later, out);

  // At the same time as the message: one of the two wins.
  for (int i = 0; i < 8; ++i) {
    pair.recv(in, 4, key);
    if (i % 2 == 0) pair.settle();
    pair.send(out, 4);
    pair.world().progress_all(i / 2);
    (void)pair.world()[1].cancel(&context);
    ASSERT_TRUE(pair.received());
    if (pair.error(1)) {
      EXPECT_EQ(pair.world().queue(1).pop_error().status.code(), Code::canceled);
      pair.recv(later, 4);
      ASSERT_TRUE(pair.received());
      (void)take(pair.world().queue(1));
      EXPECT_EQ(later, out);
    } else {
      (void)take(pair.world().queue(1));
      EXPECT_EQ(in, out);
    }
    ASSERT_TRUE(pair.sent());
    (void)take(pair.world().queue(0));
    pair.settle();
    ASSERT_EQ(pair.world().queue(1).size(), 0u);
  }
}

TEST_P(Protocols, APeerThatGoesEndsWhatWaitsForIt) {
  Pair pair(GetParam());
  std::vector<std::byte> in(9000);
  pair.recv(in, 3);
  pair.settle();
  pair.world().close(0);
  ASSERT_TRUE(pair.world().until([&] {
    pair.world().clock().advance(100'000'000);
    return pair.error(1);
  }));
  EXPECT_EQ(pair.world().queue(1).pop_error().status.code(), Code::peer_lost);
}

TEST_P(Protocols, BeginAboveTheThreshold) {
  Pair pair(GetParam(), {{"rendezvous_threshold", "512"}});
  for (const std::size_t size : {512u, 513u, 2000u}) {
    std::vector<std::byte> out = pattern(size, 1), in(size);
    pair.recv(in, 3);
    pair.settle();
    pair.send(out, 3);
    ASSERT_TRUE(pair.received());
    ASSERT_TRUE(pair.sent());
    (void)take(pair.world().queue(1));
    (void)take(pair.world().queue(0));
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(pair.sender().rendezvous, 2u);
  EXPECT_EQ(pair.receiver().offers, offers() ? 2u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Core, Protocols,
                         testing::Values("getcqe", "get", "rput", "putnr", "put", "auto"),
                         [](const auto& info) { return info.param; });

// One wildcard before it, and whose turn it is cannot be known.
TEST(Offers, AreMadeOnlyWhereTheMatchIsCertain) {
  Pair pair("put");
  std::vector<std::byte> a(9000), b(9000), c(9000), d(100), e(100);
  pair.recv(a, 5, 0, true);
  EXPECT_EQ(pair.receiver().offers, 0u);
  pair.recv(b, 5);  // behind it
  EXPECT_EQ(pair.receiver().offers, 0u);
  pair.recv(c, 6);
  EXPECT_EQ(pair.receiver().offers, 1u);
  pair.recv(d, 7);  // eager
  pair.recv(e, 8);
  EXPECT_EQ(pair.receiver().offers, 1u);
  std::vector<std::byte> out = pattern(9000, 1), more = pattern(9000, 2);
  pair.settle();
  pair.send(out, 5);
  pair.send(more, 5);
  ASSERT_TRUE(pair.received());
  pair.settle();
  EXPECT_EQ(a, out);
  EXPECT_EQ(b, more);
  EXPECT_EQ(pair.sender().puts, 0u);
}

// Remote data are foreseen to be those of the message before.
TEST(Offers, WhatTheyDidNotForeseeIsTold) {
  Pair pair("put");
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
  EXPECT_EQ(pair.sender().puts, 3u);
  EXPECT_GE(pair.sender().puts_told, 2u);
  EXPECT_LE(pair.sender().puts_told, 3u);  // the second, when its last byte is the offer's
}

// With a random byte to begin with, 1 of 256 messages looks as if it had not come; with a constant
// one, all or none of them.
TEST(Offers, OneOf256NeedsAWordMore) {
  constexpr std::uint64_t kMessages = 25'600;
  for (const std::string protocol : {"put", "putnr"}) {
    Pair pair(protocol);
    std::vector<std::byte> out = pattern(4200, 1), in(4200);
    out.back() = std::byte{0};
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      pair.recv(in, 1);
      pair.world().progress_all(2);
      pair.send(out, 1);
      ASSERT_TRUE(pair.received());
      ASSERT_TRUE(pair.sent());
      (void)take(pair.world().queue(1));
      (void)take(pair.world().queue(0));
    }
    const EndpointReport report = pair.sender();
    ASSERT_EQ(report.puts, kMessages) << protocol;
    if (protocol == "putnr") {
      EXPECT_EQ(report.puts_told, kMessages);
    } else {
      // Binomial, mean 100 and deviation 9.98: beyond five deviations once in a million runs.
      EXPECT_GT(report.puts_told, 50u);
      EXPECT_LT(report.puts_told, 150u);
    }
  }
}

// Where receives come late no offers are made after a while, but for a trial now and then.
TEST(Offers, OfAutoStopWhereTheyComeToNothing) {
  Pair pair("auto");
  std::vector<std::byte> in(9000), little(10);
  for (int i = 0; i < 400; ++i) {
    pair.recv(in, 1);
    pair.settle();
    pair.send(little, 1);
    ASSERT_TRUE(pair.received());
    (void)take(pair.world().queue(1));
    ASSERT_TRUE(pair.sent());
    (void)take(pair.world().queue(0));
  }
  EXPECT_GT(pair.receiver().offers, 10u);
  EXPECT_LT(pair.receiver().offers, 50u);
  std::vector<std::byte> out = pattern(9000, 1);
  for (int i = 0; i < 400; ++i) {
    pair.recv(in, 1);
    pair.settle();
    pair.send(out, 1);
    ASSERT_TRUE(pair.received());
    (void)take(pair.world().queue(1));
    ASSERT_TRUE(pair.sent());
    (void)take(pair.world().queue(0));
  }
  EXPECT_GT(pair.sender().puts, 300u);
}

// A sender whose peer has offered a receive before, with nothing to say it again; it waits for one
// as long as a test takes, unless told otherwise.
class HeldMessages : public testing::Test {
 protected:
  explicit HeldMessages(Overrides more = {{"offer_wait", "1000s"}})
      : pair_("put", std::move(more)) {
    pair_.recv(in_, 1);
    pair_.settle();
    pair_.send(out_, 1);
    expect_arrival();
    EXPECT_EQ(pair_.sender().puts, 1u);
  }
  // Of the next message sent, and of the next receive.
  void expect_arrival() {
    ASSERT_TRUE(pair_.sent());
    ASSERT_TRUE(pair_.received());
    ASSERT_FALSE(pair_.error(0));
    ASSERT_FALSE(pair_.error(1));
    (void)take(pair_.world().queue(0));
    (void)take(pair_.world().queue(1));
  }
  Pair pair_;
  std::vector<std::byte> out_ = pattern(9000, 1), in_ = std::vector<std::byte>(9000);
};

class BrieflyHeldMessages : public HeldMessages {
 protected:
  BrieflyHeldMessages() : HeldMessages({{"offer_wait", "1ms"}}) {}
};

TEST_F(HeldMessages, AreWrittenToTheOffersTheyMeet) {
  // Of two tags, offered in the other order.
  std::vector<std::byte> other = pattern(9000, 2), other_in(9000);
  pair_.send(out_, 1);
  pair_.send(other, 2);
  pair_.recv(other_in, 2);
  pair_.recv(in_, 1);
  expect_arrival();
  expect_arrival();
  EXPECT_EQ(in_, out_);
  EXPECT_EQ(other_in, other);
  EXPECT_EQ(pair_.sender().puts, 3u);
}

TEST_F(HeldMessages, OfOneTagKeepTheirOrder) {
  std::vector<std::byte> second = pattern(9000, 2), second_in(9000);
  pair_.send(out_, 1);
  pair_.send(second, 1);
  pair_.recv(in_, 1);
  pair_.recv(second_in, 1);
  expect_arrival();
  expect_arrival();
  EXPECT_EQ(in_, out_);
  EXPECT_EQ(second_in, second);
  EXPECT_EQ(pair_.sender().puts, 3u);
}

TEST_F(HeldMessages, WaitForNothingElse) {
  std::vector<std::byte> little = pattern(10, 1), little_in(10);
  pair_.send(out_, 1);
  pair_.send(little, 2);
  pair_.recv(little_in, 2);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(take(pair_.world().queue(1)).tag, 2u);
  pair_.recv(in_, 1);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(in_, out_);
  EXPECT_EQ(pair_.sender().puts, 1u);
}

// The little message is sent before the offer comes, and does not know it.
TEST_F(HeldMessages, GoOnWhenAnOfferCannotBeTaken) {
  std::vector<std::byte> little = pattern(10, 1);
  pair_.recv(in_, 1);
  EXPECT_EQ(pair_.receiver().offers, 2u);
  pair_.send(little, 2);
  pair_.send(out_, 1);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(in_, out_);
  EXPECT_EQ(pair_.sender().puts, 1u);
}

// A late receiver looks for its message first.
TEST_F(HeldMessages, ThatWereAnnouncedAreFetched) {
  std::vector<std::byte> little = pattern(10, 1);
  pair_.send(out_, 1);
  pair_.send(little, 2);
  pair_.recv(in_, 1);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(in_, out_);
  EXPECT_EQ(pair_.receiver().offers, 1u);
}

TEST_F(HeldMessages, LongerThanTheOfferAreTruncated) {
  std::vector<std::byte> longer = pattern(12'000, 3), next = pattern(9000, 4), next_in(9000);
  pair_.send(longer, 1);
  pair_.send(next, 1);
  pair_.recv(in_, 1);
  ASSERT_TRUE(pair_.received());
  ASSERT_TRUE(pair_.error(1));
  EXPECT_EQ(pair_.world().queue(1).pop_error().status.code(), Code::truncated);
  pair_.recv(next_in, 1);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(next_in, next);
}

TEST_F(HeldMessages, CanBeCancelled) {
  int context;
  pair_.send(out_, 1, reinterpret_cast<std::uint64_t>(&context));
  EXPECT_TRUE(pair_.world()[0].cancel(&context));
  ASSERT_TRUE(pair_.error(0));
  EXPECT_EQ(pair_.world().queue(0).pop_error().status.code(), Code::canceled);
  std::vector<std::byte> second = pattern(9000, 2);
  pair_.recv(in_, 1);
  pair_.send(second, 1);
  expect_arrival();
  EXPECT_EQ(in_, second);
}

TEST_F(HeldMessages, EndWithTheirPeer) {
  pair_.send(out_, 1);
  pair_.world().close(1);
  ASSERT_TRUE(pair_.world().until([&] {
    pair_.world().clock().advance(100'000'000);
    return pair_.error(0);
  }));
  EXPECT_EQ(pair_.world().queue(0).pop_error().status.code(), Code::peer_lost);
}

TEST_F(BrieflyHeldMessages, WaitNoLonger) {
  for (int i = 0; i < 50; ++i) {
    pair_.send(out_, 1);
    pair_.settle();
    pair_.recv(in_, 1);
    expect_arrival();
    EXPECT_EQ(in_, out_);
  }
  EXPECT_EQ(pair_.sender().puts, 1u);
}

}  // namespace
}  // namespace turnout
