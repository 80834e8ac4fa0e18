// SPDX-License-Identifier: BSD-3-Clause
// Buffers of large messages whose memory goes and comes back between messages, in every way a
// program can do that: what arrives is always what was sent, and where nothing goes registrations
// are found again. With a cache that does not look, the same test finds that it is not: it can
// fail.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "core/memory/unmap_monitor.h"
#include "tests/core/endpoint/adapter_settings.h"
#include "tests/core/endpoint/pinned_pages.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"
#include "tests/support/watched_memory.h"

namespace turnout {
namespace {

constexpr std::size_t kPage = 4096, kPages = 24;

// Shared pages at one place, which come and go.
class Arena {
 public:
  Arena() : memory_(map(nullptr, 0)) {}
  ~Arena() { munmap(memory_, kPages * kPage); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return memory_; }

  // New pages, at the old addresses unless another thread has taken them.
  void renew(unsigned how) {
    switch (how) {
      case 0:
        ASSERT_EQ(munmap(memory_, kPages * kPage), 0);
        // The adapter's thread maps its peers' queues when it meets them, here if it likes.
        if (std::byte* const again = map(memory_, MAP_FIXED_NOREPLACE)) {
          ASSERT_EQ(again, memory_);
        } else {
          memory_ = map(nullptr, 0);
        }
        break;
      case 1:
        ASSERT_EQ(map(memory_, MAP_FIXED), memory_);
        break;
      case 2:
        ASSERT_EQ(madvise(memory_, kPages * kPage, MADV_REMOVE), 0);
        break;
      default: {
        std::byte* const other = map(nullptr, 0);
        ASSERT_EQ(
            mremap(other, kPages * kPage, kPages * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, memory_),
            memory_);
      }
    }
  }
  static constexpr unsigned kWays = 4;

 private:
  static std::byte* map(void* at, int flags) {
    void* const p =
        mmap(at, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
  }
  std::byte* memory_;
};

class KeptRegistrations : public WatchedMemory {
 protected:
  // Sends one message; does it arrive as it was sent?
  static bool exchange(TestWorld& world, std::byte* from, std::byte* to, std::size_t size,
                       bool early) {
    const iovec out{from, size}, in{to, size};
    const auto receive = [&] {
      ASSERT_TRUE(
          world[1].recv(tagged_recv(world.peer(1, 0), in, 5, world.report(1, nullptr))).ok());
    };
    if (early) {
      receive();
      world.progress_all(20);
    }
    EXPECT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), out, 5, world.report(0, nullptr))).ok());
    if (!early) {
      world.progress_all(20);
      receive();
    }
    if (!world.until([&] { return world.queue(0).size() > 0 && world.queue(1).size() > 0; })) {
      return false;
    }
    (void)take(world.queue(0));
    (void)take(world.queue(1));
    return std::memcmp(from, to, size) == 0;
  }
  struct Told {
    int wrong = 0;
    RegistrationReport sender, receiver;
  };
  // Rounds of messages between two places whose pages are renewed in between.
  static Told play(Overrides overrides, int rounds, bool renews = true) {
    const PinnedPages pinned(adapter_settings());
    const Arena source, target;
    Told told;
    {
      TestWorld world(2, std::move(overrides));
      std::mt19937_64 random(5);
      std::vector<std::byte> little = pattern(8, 1), in(8);
      EXPECT_TRUE(exchange(world, little.data(), in.data(), 8, false));
      world.progress_all(50);
      for (int i = 0; i < rounds && told.wrong < 3; ++i) {
        if (renews && random() % 2 == 0) {
          const_cast<Arena&>(source).renew(static_cast<unsigned>(random() % Arena::kWays));
        }
        if (renews && random() % 2 == 0) {
          const_cast<Arena&>(target).renew(static_cast<unsigned>(random() % Arena::kWays));
        }
        const std::size_t at = random() % 3 * 1000;
        const std::size_t size = 5000 + random() % (kPages * kPage - 8000);
        std::vector<std::byte> bytes = pattern(size, static_cast<unsigned>(i));
        std::memcpy(source.data() + at, bytes.data(), size);
        std::memset(target.data() + at, 0, size);
        if (!exchange(world, source.data() + at, target.data() + at, size, random() % 2 == 0)) {
          ++told.wrong;
        }
        world.progress_all(20);
      }
      told.sender = world[0].report().registrations;
      told.receiver = world[1].report().registrations;
    }
    EXPECT_GT(PinnedPages::made(), 0u);
    return told;
  }
};

class KeptRegistrationsOf : public KeptRegistrations,
                            public testing::WithParamInterface<std::string_view> {};

TEST_P(KeptRegistrationsOf, AreNeverStale) {
  const Told told = play({{"rendezvous", std::string(GetParam())}}, 300);
  EXPECT_EQ(told.wrong, 0);
  EXPECT_EQ(told.sender.off, "");
  EXPECT_GT(told.sender.hits, 10u);
  EXPECT_GT(told.sender.invalidations, 10u);
  EXPECT_GT(told.receiver.hits + told.receiver.misses, 100u);
  EXPECT_GT(told.receiver.invalidations, 10u);
}

INSTANTIATE_TEST_SUITE_P(Core, KeptRegistrationsOf, testing::ValuesIn(kRendezvousNames),
                         [](const auto& info) { return std::string(info.param); });

// The test above finds what it looks for.
TEST_F(KeptRegistrations, WouldBeFoundStaleIfNobodyLooked) {
  const Told told = play({{"rendezvous", "getcqe"}, {"break_rule", "stale-registrations"}}, 300);
  EXPECT_GT(told.wrong, 0);
  EXPECT_EQ(told.sender.invalidations + told.receiver.invalidations, 0u);
}

TEST_F(KeptRegistrations, AreNoneWhereTheyAreNotWanted) {
  const Told told = play({{"registration_cache", "0"}}, 60);
  EXPECT_EQ(told.wrong, 0);
  EXPECT_NE(told.sender.off, "");
  EXPECT_EQ(told.sender.hits + told.sender.misses + told.receiver.hits, 0u);
}

TEST_F(KeptRegistrations, AreFoundAgainWhereNothingGoes) {
  const Told told = play({}, 200, false);
  EXPECT_EQ(told.wrong, 0);
  EXPECT_GT(told.sender.hits, 150u);
  EXPECT_GT(told.receiver.hits, 150u);
  EXPECT_EQ(told.sender.invalidations, 0u);
  EXPECT_GT(told.sender.bytes, 0u);
}

// What went is not registered any longer than until the next tick, with no message since.
TEST_F(KeptRegistrations, LetGoOfMemoryThatWentWithoutAFurtherMessage) {
  const PinnedPages pinned(adapter_settings());
  TestWorld world(2);
  {
    const Arena source, target;
    ASSERT_TRUE(exchange(world, source.data(), target.data(), 50'000, false));
    world.progress_all(50);
    EXPECT_EQ(world[0].report().registrations.bytes, 50'000u);
  }
  world.progress_all(5000);
  EXPECT_EQ(world[0].report().registrations.bytes, 0u);
  EXPECT_EQ(world[1].report().registrations.bytes, 0u);
}

// Buffers from malloc, of all sizes, freed and allocated again, while other threads do the same and
// map and unmap.
TEST_F(KeptRegistrations, HoldWhileThreadsAllocateAndFree) {
  TestWorld world(2);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&over, t] {
      std::mt19937_64 random(t);
      std::vector<std::vector<std::byte>> blocks(8);
      while (!over.load(std::memory_order_relaxed)) {
        std::vector<std::byte>& block = blocks[random() % blocks.size()];
        block = std::vector<std::byte>(random() % 400'000);
        void* const p =
            mmap(nullptr, 16 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        static_cast<volatile std::byte*>(p)[kPage] = std::byte{1};
        munmap(p, 16 * kPage);
      }
    });
  }
  std::mt19937_64 random(9);
  const PeerId to = world.peer(0, 1), from = world.peer(1, 0);
  for (int i = 0; i < (kOwnAllocator ? 50 : 300); ++i) {  // sanitizers are slow
    // Several at once, of different ages.
    std::vector<std::vector<std::byte>> out, in;
    for (int m = 0; m < 4; ++m) {
      out.push_back(pattern(4500 + random() % 300'000, static_cast<unsigned>(i + m)));
      in.emplace_back(out.back().size());
      const iovec source = piece(out.back()), target = piece(in.back());
      const auto tag = static_cast<std::uint64_t>(m);
      ASSERT_TRUE(world[1].recv(tagged_recv(from, target, tag, world.report(1, nullptr))).ok());
      ASSERT_TRUE(world[0].send(tagged_send(to, source, tag, world.report(0, nullptr))).ok());
    }
    ASSERT_TRUE(
        world.until([&] { return world.queue(0).size() == 4 && world.queue(1).size() == 4; }));
    for (int m = 0; m < 4; ++m) {
      (void)take(world.queue(0));
      (void)take(world.queue(1));
      ASSERT_EQ(in[static_cast<std::size_t>(m)], out[static_cast<std::size_t>(m)]) << i;
    }
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(world[0].report().registrations.off, "");
}

// A mapping without the right to write can be sent from, and is not registered for more.
TEST_F(KeptRegistrations, OfReadOnlyMemoryAreForReading) {
  TestWorld world(2);
  void* const memory = mmap(nullptr, 8 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::vector<std::byte> in(8 * kPage);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(exchange(world, static_cast<std::byte*>(memory), in.data(), in.size(), i == 0));
  }
  EXPECT_EQ(world[0].report().registrations.hits, 2u);
  munmap(memory, 8 * kPage);
}

}  // namespace
}  // namespace turnout
