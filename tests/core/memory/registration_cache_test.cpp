// SPDX-License-Identifier: BSD-3-Clause
// RegistrationCache by examples, and against a model of what may be found and what must be gone.
#include "core/memory/registration_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/verbs/library.h"

namespace turnout {
namespace {

constexpr unsigned kRead = IBV_ACCESS_REMOTE_READ, kWrite = IBV_ACCESS_LOCAL_WRITE;

// Regions that nobody registered; `alive` are those that the cache still has.
struct Regions {
  static inline std::set<ibv_mr*> alive;
  static inline std::vector<std::unique_ptr<ibv_mr>> all;
  static ibv_mr* make() {
    all.push_back(std::make_unique<ibv_mr>());
    all.back()->lkey = all.back()->rkey = static_cast<std::uint32_t>(all.size());
    alive.insert(all.back().get());
    return all.back().get();
  }
  static void drop(ibv_mr* region) noexcept {
    EXPECT_EQ(alive.erase(region), 1u) << "deregistered twice";
  }
  static void forget() {
    alive.clear();
    all.clear();
  }
};

class Cache : public testing::Test {
 protected:
  Cache() { Regions::forget(); }
  ~Cache() override {
    cache_.reset();
    EXPECT_TRUE(Regions::alive.empty());
  }
  void make(std::uint64_t most, std::uint64_t bytes, std::uint64_t budget = 1 << 20) {
    cache_.reset();  // before the account that it is in
    account_ = std::make_unique<MemoryAccount>(budget);
    cache_ = std::make_unique<RegistrationCache>(*account_, most, bytes, &Regions::drop);
    account_->set_spender(cache_.get(), [](void* cache, std::uint64_t wanted) noexcept {
      return static_cast<RegistrationCache*>(cache)->give_back(wanted);
    });
  }
  Registration keep(std::uintptr_t begin, std::size_t length, unsigned access = kRead) {
    return cache_->keep(Regions::make(), begin, length, access);
  }
  bool hits(std::uintptr_t begin, std::size_t length, unsigned access = kRead) {
    return static_cast<bool>(cache_->find(begin, length, access));
  }
  std::unique_ptr<MemoryAccount> account_;
  std::unique_ptr<RegistrationCache> cache_;
};

// Else a simulation would go another way where its program's memory happens to lie elsewhere.
TEST_F(Cache, TakesAsMuchOfTheBudgetWhereverTheMemoryLies) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{4096}, std::size_t{32882}}) {
    std::set<std::uint64_t> taken;
    for (const std::uintptr_t begin : {0x10000u, 0x10001u, 0x10800u, 0x10fffu}) {
      make(10, 1 << 20);
      const Registration kept = keep(begin, length);
      taken.insert(account_->used());
    }
    EXPECT_EQ(taken.size(), 1u) << length;
  }
}

TEST_F(Cache, FindsWhatLiesInsideAndNeedsNoMoreRights) {
  make(10, 1 << 20);
  const Registration kept = keep(1000, 500, kRead | kWrite);
  for (const auto& [begin, length, access, hit] :
       {std::tuple(1000u, 500u, kRead | kWrite, true),
        {1000u, 500u, kRead, true},
        {1200u, 300u, kWrite, true},
        {1499u, 1u, 0u, true},
        {999u, 2u, kRead, false},
        {1000u, 501u, kRead, false},
        {1500u, 1u, kRead, false},
        {1000u, 500u, unsigned{IBV_ACCESS_REMOTE_WRITE}, false}}) {
    EXPECT_EQ(hits(begin, length, access), hit) << begin << "+" << length << " " << access;
  }
  const Registration found = cache_->find(1100, 10, kRead);
  EXPECT_EQ(found.lkey(), kept.lkey());
  EXPECT_EQ(found.rkey(), kept.rkey());
  EXPECT_EQ(cache_->counts().hits, 5u);
  EXPECT_EQ(cache_->counts().misses, 4u);
  EXPECT_EQ(cache_->counts().bytes, 500u);
}

TEST_F(Cache, FindsTheLongOneBehindShortOnesOfTheSameBegin) {
  make(10, 1 << 20);
  keep(1000, 500, kRead);
  keep(1000, 100, kWrite);
  keep(1300, 10, kWrite);
  EXPECT_TRUE(hits(1310, 100, kRead));
  EXPECT_FALSE(hits(1310, 100, kWrite));
}

TEST_F(Cache, KeepsUnusedOnesUpToItsLimitsTheLatestUsedLongest) {
  make(3, 1000);
  for (std::uintptr_t i = 0; i < 3; ++i) keep(1000 * i, 100);
  EXPECT_TRUE(hits(0, 100));  // now the latest used
  keep(5000, 100);
  EXPECT_FALSE(hits(1000, 100));
  EXPECT_TRUE(hits(0, 100));
  EXPECT_EQ(cache_->counts().evictions, 1u);
  // By bytes: 900 and the latest 100.
  keep(8000, 900);
  EXPECT_EQ(cache_->unused(), 2u);
  EXPECT_TRUE(hits(8000, 900));
  EXPECT_EQ(cache_->counts().bytes_peak, 1200u);
  // One that is too large alone is gone when its use ends.
  keep(20'000, 1001);
  EXPECT_EQ(cache_->unused(), 0u);
  EXPECT_TRUE(Regions::alive.empty());
}

TEST_F(Cache, OnesInUseStayWhateverTheLimits) {
  make(0, 0);
  Registration first = keep(1000, 100);
  Registration second = cache_->find(1000, 50, kRead);
  ASSERT_TRUE(second);
  first.reset();
  EXPECT_EQ(Regions::alive.size(), 1u);
  EXPECT_FALSE(cache_->drop_unused());
  second.reset();
  EXPECT_TRUE(Regions::alive.empty());
}

TEST_F(Cache, WhatIsUnmappedIsNotFoundAndGoesWithItsLastUse) {
  make(10, 1 << 20);
  Registration used = keep(1000, 100);
  keep(1200, 100);
  keep(1400, 100);
  cache_->invalidate(1099, 1201);
  EXPECT_FALSE(hits(1000, 1));
  EXPECT_FALSE(hits(1200, 1));
  EXPECT_TRUE(hits(1400, 100));
  EXPECT_EQ(cache_->counts().invalidations, 2u);
  EXPECT_EQ(Regions::alive.size(), 2u);
  // The same addresses, registered anew while the old one is in use.
  Registration renewed = keep(1000, 100);
  EXPECT_NE(renewed.lkey(), used.lkey());
  used.reset();
  EXPECT_EQ(Regions::alive.size(), 2u);
  EXPECT_TRUE(hits(1000, 100));
  // What only touches it does not concern it.
  cache_->invalidate(900, 1000);
  cache_->invalidate(1100, 1400);
  cache_->invalidate(1200, 1200);
  EXPECT_EQ(cache_->entries(), 2u);
}

TEST_F(Cache, ALargerOneReplacesWhatItCovers) {
  make(10, 1 << 20);
  keep(1000, 100);
  keep(1100, 100, kWrite);
  Registration used = keep(1000, 150, kRead);
  const Registration larger = keep(1000, 300, kRead);
  EXPECT_EQ(cache_->entries(), 2u);  // and the one for writing
  EXPECT_EQ(Regions::alive.size(), 3u);
  used.reset();
  EXPECT_EQ(Regions::alive.size(), 2u);
  EXPECT_EQ(cache_->find(1000, 100, kRead).lkey(), larger.lkey());
}

TEST_F(Cache, ADiscardedOneIsFoundNoMore) {
  make(10, 1 << 20);
  Registration one = keep(1000, 100);
  Registration other = cache_->find(1000, 100, kRead);
  one.discard();
  EXPECT_FALSE(hits(1000, 100));
  EXPECT_EQ(Regions::alive.size(), 1u);
  other.reset();
  EXPECT_TRUE(Regions::alive.empty());
}

TEST_F(Cache, GivesUnusedOnesToWhoNeedsTheBudget) {
  make(1000, 1 << 30, 40'000);
  const std::uint64_t before = account_->used();
  for (std::uintptr_t i = 0; i < 8; ++i)
    keep(i << 24, 1 << 20);  // 257 pages at most: 2,056 bytes each
  const Registration used = keep(std::uintptr_t{9} << 24, 1 << 20);
  EXPECT_GT(account_->used(), before + 9 * 2056);
  // More than all of them: nobody gives anything.
  EXPECT_FALSE(account_->reserve(MemoryKind::rings, 40'000));
  EXPECT_EQ(cache_->unused(), 8u);
  const std::uint64_t room = account_->available() + 3 * 2056;
  ASSERT_TRUE(account_->reserve(MemoryKind::rings, room));
  EXPECT_EQ(cache_->unused(), 5u);
  EXPECT_FALSE(hits(0, 1));
  EXPECT_TRUE(hits(std::uintptr_t{7} << 24, 1));
  EXPECT_EQ(account_->used(), account_->budget());
  account_->release(MemoryKind::rings, room);
}

// Without room for a record it serves its one use.
TEST_F(Cache, NoRoomForARecordMeansNoEntry) {
  make(10, 1 << 20, 10);
  ibv_mr* const region = Regions::make();
  const_cast<verbs::Functions&>(verbs::functions()).ibv_dereg_mr_fn = [](ibv_mr* own) {
    Regions::drop(own);
    return 0;
  };
  Registration use = cache_->keep(region, 1000, 100, kRead);
  EXPECT_TRUE(use);
  EXPECT_EQ(use.lkey(), region->lkey);
  EXPECT_FALSE(hits(1000, 100));
  EXPECT_EQ(account_->used(), 0u);
  use.reset();
  EXPECT_TRUE(Regions::alive.empty());
}

struct Model {
  struct Entry {
    std::uintptr_t begin, end;
    unsigned access;
    int uses;
    bool listed;
  };
  std::map<std::uint32_t, Entry> entries;  // by key
};

// From the whole range in every case, not from its beginning in the first ones.
template <class T>
T pick(T least, T below) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(least, below));
}

RC_GTEST_PROP(RegistrationCacheProperty, FindsOnlyWhatIsThereAndLeavesNothing, ()) {
  Regions::forget();
  const auto most = pick<std::uint64_t>(0, 12);
  const auto most_bytes = pick<std::uint64_t>(0, 1500);
  MemoryAccount account(*rc::gen::element<std::uint64_t>(4000, 1 << 20, 1 << 20, 1 << 20));
  {
    RegistrationCache cache(account, most, most_bytes, &Regions::drop);
    account.set_spender(&cache, [](void* c, std::uint64_t bytes) noexcept {
      return static_cast<RegistrationCache*>(c)->give_back(bytes);
    });
    std::vector<std::pair<Registration, std::uint32_t>> uses;
    Model model;
    const auto key_alive = [](std::uint32_t key) {
      return Regions::alive.contains(Regions::all[key - 1].get());
    };
    // Unused entries may leave at any time; all others stay until their last use ends.
    const auto agree = [&] {
      std::uint64_t unused = 0, unused_bytes = 0, bytes = 0;
      for (auto it = model.entries.begin(); it != model.entries.end();) {
        Model::Entry& entry = it->second;
        const bool alive = key_alive(it->first);
        if (entry.uses > 0) RC_ASSERT(alive);
        if (!entry.listed && entry.uses == 0) RC_ASSERT(!alive);
        if (!alive) {
          it = model.entries.erase(it);
          continue;
        }
        bytes += entry.end - entry.begin;
        if (entry.uses == 0) {
          ++unused;
          unused_bytes += entry.end - entry.begin;
        }
        ++it;
      }
      RC_ASSERT(unused == cache.unused());
      RC_ASSERT(unused <= most);
      RC_ASSERT(unused_bytes <= most_bytes);
      RC_ASSERT(bytes == cache.counts().bytes);
      RC_ASSERT(account.used() <= account.budget());
    };
    const int steps = pick(1, 200);
    for (int i = 0; i < steps; ++i) {
      const auto begin = pick<std::uintptr_t>(1, 200);
      const auto length = pick<std::size_t>(1, 100);
      const auto access = *rc::gen::element<unsigned>(0, kRead, kWrite, kRead | kWrite);
      switch (pick(0, 8)) {
        case 0:
        case 1:
        case 2:
        case 3: {
          Registration use = cache.find(begin, length, access);
          const bool may =
              std::any_of(model.entries.begin(), model.entries.end(), [&](const auto& pair) {
                const Model::Entry& e = pair.second;
                return e.listed && e.begin <= begin && begin + length <= e.end &&
                       (access & ~e.access) == 0;
              });
          RC_ASSERT(static_cast<bool>(use) == may);
          if (use) {
            Model::Entry& entry = model.entries.at(use.lkey());
            RC_ASSERT(entry.listed && entry.begin <= begin && begin + length <= entry.end);
            RC_ASSERT((access & ~entry.access) == 0u);
            ++entry.uses;
          } else {
            ibv_mr* const region = Regions::make();
            // A use of its own would be deregistered by the library, which is not here.
            if (account.available() < 3000) {
              Regions::drop(region);
              break;
            }
            use = cache.keep(region, begin, length, access);
            for (auto& [key, e] : model.entries) {
              const bool covered =
                  begin <= e.begin && e.end <= begin + length && (e.access & ~access) == 0;
              if (covered) e.listed = false;
            }
            model.entries[use.lkey()] = {begin, begin + length, access, 1, true};
          }
          const std::uint32_t key = use.lkey();
          uses.emplace_back(std::move(use), key);
          break;
        }
        case 4:
        case 5:
        case 6:
          if (!uses.empty()) {
            const auto at = pick<std::size_t>(0, uses.size());
            Model::Entry& entry = model.entries.at(uses[at].second);
            --entry.uses;
            if (pick(0, 5) == 0) {
              entry.listed = false;
              uses[at].first.discard();
            }
            uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(at));
          }
          break;
        default:
          cache.invalidate(begin, begin + length);
          for (auto& [key, e] : model.entries) {
            if (e.begin < begin + length && begin < e.end) e.listed = false;
          }
      }
      agree();
    }
    uses.clear();
  }
  RC_ASSERT(Regions::alive.empty());
  RC_ASSERT(account.line(MemoryKind::registrations).now == 0u);
}

}  // namespace
}  // namespace turnout
