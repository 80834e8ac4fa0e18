// SPDX-License-Identifier: BSD-3-Clause
// Every way in which memory of the process goes is noticed, by whomever; and the log says so when
// it has lost something.
#include "core/memory/unmap_monitor.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/watched_memory.h"

namespace turnout {
namespace {

struct Seen {
  bool whole = true;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  [[nodiscard]] bool covers(const void* at, std::size_t length) const {
    return covers(reinterpret_cast<std::uintptr_t>(at), length);
  }
  [[nodiscard]] bool covers(std::uintptr_t from, std::size_t length) const {
    for (const auto& [a, b] : ranges) {
      if (a <= from && from + length <= b) return true;
    }
    return false;
  }
};

Seen since(std::uint64_t position, const UnmapLog& log = unmap_log) {
  Seen seen;
  seen.whole = log.read(&position, [&](std::uintptr_t a, std::uintptr_t b) {
    seen.ranges.push_back({a, b});
  });
  return seen;
}

class UnmapMonitor : public WatchedMemory {
 protected:
  static std::byte* map(std::size_t pages) {
    void* const p =
        mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    return static_cast<std::byte*>(p);
  }
  static constexpr std::size_t kPage = 4096;
};

TEST_F(UnmapMonitor, SeesEachCallAndLeavesItsResultsAlone) {
  std::byte* memory = map(8);
  std::memset(memory, 1, 8 * kPage);
  std::uint64_t position = unmap_log.position();
  ASSERT_EQ(madvise(memory + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(since(position).covers(memory + kPage, kPage));
  EXPECT_EQ(memory[kPage], std::byte{0});
  EXPECT_EQ(memory[0], std::byte{1});

  position = unmap_log.position();
  ASSERT_EQ(madvise(memory, kPage, MADV_WILLNEED), 0);
  EXPECT_TRUE(since(position).ranges.empty());

  position = unmap_log.position();
  ASSERT_EQ(mmap(memory + 2 * kPage, kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            memory + 2 * kPage);
  EXPECT_TRUE(since(position).covers(memory + 2 * kPage, kPage));
  EXPECT_EQ(memory[2 * kPage], std::byte{0});

  position = unmap_log.position();
  std::byte* const target = map(8);
  EXPECT_TRUE(since(position).ranges.empty());
  void* const moved = mremap(memory, 8 * kPage, 8 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target);
  ASSERT_EQ(moved, target);
  EXPECT_TRUE(since(position).covers(memory, 8 * kPage));
  EXPECT_TRUE(since(position).covers(target, 8 * kPage));
  EXPECT_EQ(target[0], std::byte{1});

  position = unmap_log.position();
  ASSERT_EQ(munmap(target, 8 * kPage), 0);
  EXPECT_TRUE(since(position).covers(target, 8 * kPage));

  errno = 0;
  EXPECT_EQ(munmap(reinterpret_cast<void*>(1), kPage), -1);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(madvise(target, kPage, 12345), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_TRUE(unmap_log.idle());
}

TEST_F(UnmapMonitor, SeesCallsThatGoBySyscall) {
  std::byte* const memory = map(2);
  std::uint64_t position = unmap_log.position();
  ASSERT_EQ(syscall(SYS_madvise, memory, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(since(position).covers(memory, kPage));
  position = unmap_log.position();
  ASSERT_EQ(syscall(SYS_munmap, memory, 2 * kPage), 0);
  EXPECT_TRUE(since(position).covers(memory, 2 * kPage));
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  // Six arguments, the last one from the stack.
  void* const mapped = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(munmap(mapped, kPage), 0);
}

TEST_F(UnmapMonitor, SeesASegmentThatIsDetached) {
  const int id = shmget(IPC_PRIVATE, 4 * kPage, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V segments here";
  void* const memory = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_NE(memory, reinterpret_cast<void*>(-1));
  const std::uint64_t position = unmap_log.position();
  ASSERT_EQ(shmdt(memory), 0);
  EXPECT_TRUE(since(position).covers(memory, 4 * kPage));
}

TEST_F(UnmapMonitor, SeesAFork) {
  const std::uint64_t position = unmap_log.position();
  const pid_t child = fork();
  if (child == 0) _exit(unmap_log.idle() ? 0 : 1);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(since(position).covers(&status, sizeof status));
  EXPECT_TRUE(unmap_log.idle());
}

// What the allocator does within free(): a mapping of its own, the top of the heap, the end of a
// thread's arena.
TEST_F(UnmapMonitor, SeesWhatFreeGivesBack) {
  if (kOwnAllocator) GTEST_SKIP() << "another allocator";
  void* const large = std::malloc(64 << 20);
  ASSERT_NE(large, nullptr);
  std::uint64_t position = unmap_log.position();
  const auto at = reinterpret_cast<std::uintptr_t>(large);
  std::free(large);
  EXPECT_TRUE(since(position).covers(at, 64 << 20));

  constexpr int kBlocks = 64;
  constexpr std::size_t kBlock = 100'000;  // below the limit for mappings
  const auto use_heap = [&] {
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(std::malloc(kBlock));
      std::memset(blocks.back(), 1, kBlock);
    }
    // A page within each block, which holds nothing else: gone, and noted, or there still.
    std::vector<std::uintptr_t> pages;
    for (void* block : blocks) {
      pages.push_back((reinterpret_cast<std::uintptr_t>(block) + kBlock / 2) / kPage * kPage);
    }
    const std::uint64_t at = unmap_log.position();
    for (void* block : blocks) std::free(block);
    malloc_trim(0);
    const Seen seen = since(at);
    int gone = 0;
    for (const std::uintptr_t page : pages) {
      unsigned char resident = 0;
      const int there = mincore(reinterpret_cast<void*>(page), kPage, &resident);
      if (there == 0 && (resident & 1) != 0) continue;
      ++gone;
      EXPECT_TRUE(seen.covers(page, kPage));
    }
    return gone;
  };
  EXPECT_GT(use_heap(), 0);
  int gone = 0;
  std::thread([&] { gone = use_heap(); }).join();
  EXPECT_GT(gone, 0);
}

TEST_F(UnmapMonitor, SeesAHeapThatShrinks) {
  if (kOwnAllocator) GTEST_SKIP() << "another allocator";
  auto* const top = static_cast<std::byte*>(sbrk(4 * kPage));
  ASSERT_NE(top, reinterpret_cast<void*>(-1));
  const std::uint64_t position = unmap_log.position();
  ASSERT_NE(sbrk(-static_cast<std::intptr_t>(4 * kPage)), reinterpret_cast<void*>(-1));
  EXPECT_TRUE(since(position).covers(top, 4 * kPage));
  EXPECT_EQ(sbrk(0), top);
}

// Threads that map and unmap at the same time: nobody misses its own, and none disturbs another.
TEST_F(UnmapMonitor, ThreadsFindTheirOwnRanges) {
  std::atomic<int> missed{0}, lost{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        void* const memory =
            mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const std::uint64_t position = unmap_log.position();
        if (munmap(memory, 3 * kPage) != 0) ++missed;
        const Seen seen = since(position);
        if (!seen.whole) {
          ++lost;
        } else if (!seen.covers(memory, 3 * kPage)) {
          ++missed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missed, 0);
  EXPECT_LT(lost, 4000);  // not written yet at that moment
  EXPECT_TRUE(unmap_log.idle());
  EXPECT_TRUE(watching_unmapping());
}

#if defined(__x86_64__)
// Another library's hooks, put over ours: as those of Open MPI and UCX, which end in syscall(), and
// one that makes the call by itself.
int good_hook(void* address, std::size_t length) {
  return static_cast<int>(syscall(SYS_munmap, address, length));
}
int hidden_hook(void* address, std::size_t length) {
  long result = SYS_munmap;
  asm volatile("syscall" : "+a"(result) : "D"(address), "S"(length) : "rcx", "r11", "memory");
  return static_cast<int>(result);
}
void hook_munmap(int (*hook)(void*, std::size_t)) {
  auto* const entry = static_cast<std::uint8_t*>(dlsym(RTLD_NEXT, "munmap"));
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(entry) & ~4095ul);
  ASSERT_EQ(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  const std::uint8_t jump[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
  std::memcpy(entry, jump, sizeof jump);
  std::memcpy(entry + 2, &hook, sizeof hook);
}

TEST_F(UnmapMonitor, FindsOutWhatOthersPutInItsPlace) {
  if (kOwnAllocator) GTEST_SKIP() << "libc's munmap is not what programs call";
  const auto in_child = [](int (*hook)(void*, std::size_t), auto check) {
    const pid_t child = fork();
    if (child == 0) {
      hook_munmap(hook);
      _exit(check() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status == 0;
  };
  std::byte* const memory = map(4);
  EXPECT_TRUE(in_child(&good_hook, [memory] {
    std::uint64_t position = unmap_log.position();
    // What was made before may be stale.
    if (!watching_unmapping() || !since(position).covers(&position, sizeof position)) return false;
    position = unmap_log.position();
    munmap(memory, 4 * kPage);
    return watching_unmapping() && since(position).ranges.size() == 1 &&
           since(position).covers(memory, 4 * kPage);
  }));
  EXPECT_TRUE(
      in_child(&hidden_hook, [] { return !watching_unmapping() && !watching_unmapping(); }));
  EXPECT_TRUE(watching_unmapping());
  munmap(memory, 4 * kPage);
}

#endif

TEST(UnmapLog, TellsRangesInPagesRoundedOutwards) {
  const auto log = std::make_unique<UnmapLog>();
  std::uint64_t position = log->position();
  log->note(5000, 1);
  log->note(0x7fff'ffff'0000, 0x1'0001);
  log->note(0, UnmapLog::kEverything);
  log->note(UINTPTR_MAX - 100, 5000);  // beyond the end
  const Seen seen = since(position, *log);
  EXPECT_TRUE(seen.whole);
  ASSERT_EQ(seen.ranges.size(), 4u);
  EXPECT_EQ(seen.ranges[0], std::pair(std::uintptr_t{4096}, std::uintptr_t{8192}));
  EXPECT_EQ(seen.ranges[1],
            std::pair(std::uintptr_t{0x7fff'ffff'0000}, std::uintptr_t{0x8000'0000'1000}));
  EXPECT_EQ(seen.ranges[2], std::pair(std::uintptr_t{0}, UINTPTR_MAX));
  EXPECT_EQ(seen.ranges[3].second, UINTPTR_MAX);
}

TEST(UnmapLog, SaysWhenSomeAreLost) {
  const auto log = std::make_unique<UnmapLog>();
  std::uint64_t position = log->position();
  for (std::size_t i = 0; i < UnmapLog::kSlots; ++i) log->note(4096 * i, 4096);
  Seen seen = since(position, *log);
  EXPECT_TRUE(seen.whole);
  EXPECT_EQ(seen.ranges.size(), UnmapLog::kSlots);
  log->note(1, 1);
  EXPECT_FALSE(since(position, *log).whole);
  // Who has read to the end goes on from there.
  (void)log->read(&position, [](std::uintptr_t, std::uintptr_t) {});
  log->note(4096, 1);
  seen = since(position, *log);
  EXPECT_TRUE(seen.whole);
  EXPECT_EQ(seen.ranges.size(), 1u);
}

TEST(UnmapLog, KnowsWhetherACallIsUnderWay) {
  const auto log = std::make_unique<UnmapLog>();
  EXPECT_TRUE(log->idle());
  log->begin();
  log->begin();
  log->end();
  EXPECT_FALSE(log->idle());
  log->end();
  EXPECT_TRUE(log->idle());
}

// Each range has its number in both bounds: what a reader gets is never put together from two.
TEST(UnmapLog, NeverTellsHalfOfARange) {
  const auto log = std::make_unique<UnmapLog>();
  constexpr std::uint64_t kEnough = 100'000;
  std::atomic<std::uint64_t> told{0};
  std::vector<std::thread> writers;
  for (std::uintptr_t t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      for (std::uintptr_t i = 0; told.load() < kEnough; ++i) {
        const std::uintptr_t page = 1 + t * 1'000'000 + i % 1'000'000;
        log->note(page * 4096, page * 4096);  // up to twice the number
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  std::uint64_t wrong = 0;
  std::thread reader([&] {
    std::uint64_t position = 0;
    while (told.load() < kEnough) {
      (void)log->read(&position, [&](std::uintptr_t a, std::uintptr_t b) {
        ++told;
        wrong += b != 2 * a ? 1u : 0u;
      });
    }
  });
  for (std::thread& writer : writers) writer.join();
  reader.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace turnout
