// SPDX-License-Identifier: BSD-3-Clause
// SentLog: what goes in comes out, whatever grows and is dropped in between, and its bytes are in
// the budget.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <numeric>
#include <vector>

#include "core/transport/sent_log.h"

namespace turnout {
namespace {

const std::byte* bytes_of(const std::vector<std::uint8_t>& bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

RC_GTEST_PROP(SentLog, GivesBackWhatWasAppended, (std::vector<std::uint8_t> draws)) {
  MemoryAccount account(1 << 20);
  SentLog log(account);
  struct Kept {
    std::uint64_t position;
    std::vector<std::uint8_t> bytes;
  };
  std::deque<Kept> kept;
  std::uint8_t next = 0;
  for (const std::uint8_t draw : draws) {
    if (draw % 3 == 0 && !kept.empty()) {
      log.pop(kept.front().bytes.size());
      kept.pop_front();
      continue;
    }
    std::vector<std::uint8_t> bytes(draw);
    std::iota(bytes.begin(), bytes.end(), next);
    next = static_cast<std::uint8_t>(next + 41);
    RC_ASSERT(log.has_room(bytes.size()));
    const std::byte* from = bytes_of(bytes);
    // Where there is a place for them in one piece, they may be there already.
    if (std::byte* const place = log.place_of_next(bytes.size());
        place != nullptr && !bytes.empty() && draw % 2 == 0) {
      std::memcpy(place, from, bytes.size());
      from = place;
    }
    const std::uint64_t position = log.append(from, bytes.size());
    kept.push_back({position, std::move(bytes)});
    RC_ASSERT(account.used() == log.capacity());
  }
  for (const Kept& message : kept) {
    std::vector<std::uint8_t> copy(message.bytes.size());
    log.copy_out(message.position, copy.size(), reinterpret_cast<std::byte*>(copy.data()));
    RC_ASSERT(copy == message.bytes);
  }
  log.clear();
  RC_ASSERT(account.used() == 0u);
}

TEST(SentLog, HasNoRoomWhereTheBudgetHasNone) {
  MemoryAccount account(4096);
  SentLog log(account);
  EXPECT_TRUE(log.has_room(200));
  std::vector<std::uint8_t> bytes(200);
  int appended = 0;
  for (; appended < 100 && log.has_room(bytes.size()); ++appended)
    (void)log.append(bytes_of(bytes), bytes.size());
  // 1 KiB, then 2 KiB while the first is still there: the next step would need 6 of the 4.
  EXPECT_EQ(appended, 10);
  EXPECT_EQ(account.used(), 2048u);
  log.pop(bytes.size());
  EXPECT_TRUE(log.has_room(bytes.size()));
}

TEST(SentLog, IsTakenOverWithItsBytes) {
  MemoryAccount account(1 << 20);
  SentLog log(account);
  ASSERT_TRUE(log.has_room(3));
  std::vector<std::uint8_t> bytes = {1, 2, 3};
  const std::uint64_t position = log.append(bytes_of(bytes), 3);
  SentLog taken(std::move(log));
  std::vector<std::uint8_t> copy(3);
  taken.copy_out(position, 3, reinterpret_cast<std::byte*>(copy.data()));
  EXPECT_EQ(copy, bytes);
  EXPECT_EQ(account.used(), taken.capacity());
  EXPECT_TRUE(log.has_room(10));  // begins anew
}

}  // namespace
}  // namespace turnout
