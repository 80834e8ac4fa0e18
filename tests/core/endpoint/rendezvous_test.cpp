// SPDX-License-Identifier: BSD-3-Clause
// The rendezvous protocols: early and late receives, last bytes, what an RTR does not
// foresee, cancel, and that each message goes where MPI's order wants it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "core/verbs/library.h"
#include "tests/core/endpoint/adapter_settings.h"
#include "tests/core/endpoint/known_pair.h"

namespace turnout {
namespace {

class Protocols : public testing::TestWithParam<std::string_view> {
 protected:
  [[nodiscard]] bool sends_rtrs() const {
    return over_dc() && (GetParam() == "put" || GetParam() == "putnr" || GetParam() == "auto");
  }
};

TEST_P(Protocols, MessagesArriveWholeWhateverTheirLastByteIs) {
  KnownPair pair(GetParam());
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
  EXPECT_EQ(pair.sender().operations.rendezvous, 24u);
  EXPECT_EQ(pair.sender().operations.puts, sends_rtrs() ? 12u : 0u);
  pair.settle();
  EXPECT_FALSE(pair.error(0));
  EXPECT_FALSE(pair.error(1));
}

TEST_P(Protocols, ShorterMessagesSayTheirLengthAndLongerOnesAreTruncated) {
  KnownPair pair(GetParam());
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
    KnownPair pair(GetParam());
    std::mt19937_64 random(settle);
    constexpr std::size_t kMessages = 60;
    std::vector<std::vector<std::byte>> out, in;
    std::vector<std::uint64_t> tags;
    for (unsigned i = 0; i < kMessages; ++i) {
      const std::size_t size = random() % 4 == 0 ? 50 : 5000 + random() % 3;
      out.push_back(pattern(size, i));
      in.emplace_back(random() % 4 == 0 ? 6000 : size);
      tags.push_back(random() % 2);
    }
    std::size_t posted = 0, sent = 0, done = 0;
    while (posted < kMessages || sent < kMessages) {
      if (posted < kMessages && (sent == kMessages || random() % 2 == 0)) {
        pair.recv(in[posted], tags[posted], posted + 1);
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
  KnownPair pair(GetParam());
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
  KnownPair pair(GetParam());
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
  KnownPair pair(GetParam(), {{"rendezvous_threshold", "512"}});
  for (const std::size_t size : {512u, 513u, 2000u}) {
    std::vector<std::byte> out = pattern(size, 1), in(size);
    ASSERT_NO_FATAL_FAILURE(pair.meet(out, in, 3));
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(pair.sender().operations.rendezvous, 2u);
  EXPECT_EQ(pair.receiver().operations.rtrs, sends_rtrs() ? 2u : 0u);
}

// As long as one is there, no memory in the range of one of these buffers can be registered.
class RefusedRegistrations {
 public:
  explicit RefusedRegistrations(int error) {
    EXPECT_TRUE(verbs::load(verbs::Library::virtual_adapter, adapter_settings()).ok());
    error_ = error;
    auto& functions = const_cast<verbs::Functions&>(verbs::functions());
    register_ = std::exchange(functions.ibv_reg_mr_fn, &refuse);
  }
  ~RefusedRegistrations() {
    const_cast<verbs::Functions&>(verbs::functions()).ibv_reg_mr_fn = register_;
    buffers_.clear();
  }
  RefusedRegistrations(const RefusedRegistrations&) = delete;
  RefusedRegistrations& operator=(const RefusedRegistrations&) = delete;
  void add(const std::vector<std::byte>& buffer) { buffers_.push_back(&buffer); }

 private:
  static ibv_mr* refuse(ibv_pd* pd, void* address, std::size_t length, int access) {
    for (const std::vector<std::byte>* one : buffers_) {
      if (address < one->data() || address >= one->data() + one->size()) continue;
      errno = error_;
      return nullptr;
    }
    return register_(pd, address, length, access);
  }
  static inline int error_ = 0;
  static inline std::vector<const std::vector<std::byte>*> buffers_;
  static inline decltype(verbs::Functions::ibv_reg_mr_fn) register_ = nullptr;
};

TEST_P(Protocols, AreReplacedByFragmentsWhereABufferCannotBeRegistered) {
  for (const auto& [source, target] : {std::pair{true, false}, {false, true}, {true, true}}) {
    for (const bool early : {true, false}) {
      SCOPED_TRACE(testing::Message() << source << target << early);
      RefusedRegistrations refused(early ? ENOMEM : EAGAIN);
      KnownPair pair(GetParam());
      std::vector<std::byte> out = pattern(50'000, 3), in(50'000);
      if (source) refused.add(out);
      if (target) refused.add(in);
      for (std::uint64_t tag = 1; tag <= 3; ++tag) {
        std::fill(in.begin(), in.end(), std::byte{});
        if (early) pair.recv(in, tag);
        pair.settle();
        pair.send(out, tag);
        pair.settle();
        if (!early) pair.recv(in, tag);
        pair.expect_arrival();
        EXPECT_EQ(in, out);
      }
    }
  }
}

// Memory that is not there cannot be copied either.
TEST_P(Protocols, EndWithAnErrorWhereABufferIsNone) {
  RefusedRegistrations refused(EFAULT);
  KnownPair pair(GetParam());
  std::vector<std::byte> out = pattern(50'000, 3), in(50'000);
  refused.add(in);
  pair.recv(in, 1);
  pair.settle();
  pair.send(out, 1);
  ASSERT_TRUE(pair.received());
  EXPECT_TRUE(pair.error(1));
}

INSTANTIATE_TEST_SUITE_P(Core, Protocols, testing::ValuesIn(kRendezvousNames),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace turnout
