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

ibv_sge piece_of(std::vector<std::uint8_t>& bytes, std::size_t from, std::size_t count) {
  return {reinterpret_cast<std::uint64_t>(bytes.data() + from), static_cast<std::uint32_t>(count),
          0};
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
    const std::size_t first = bytes.size() / 3;
    const ibv_sge pieces[2] = {piece_of(bytes, 0, first),
                               piece_of(bytes, first, bytes.size() - first)};
    const std::uint64_t position = log.append(pieces, 2);
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
  const ibv_sge piece = piece_of(bytes, 0, bytes.size());
  int appended = 0;
  for (; appended < 100 && log.has_room(bytes.size()); ++appended) (void)log.append(&piece, 1);
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
  const ibv_sge piece = piece_of(bytes, 0, 3);
  const std::uint64_t position = log.append(&piece, 1);
  SentLog taken(std::move(log));
  std::vector<std::uint8_t> copy(3);
  taken.copy_out(position, 3, reinterpret_cast<std::byte*>(copy.data()));
  EXPECT_EQ(copy, bytes);
  EXPECT_EQ(account.used(), taken.capacity());
  EXPECT_TRUE(log.has_room(10));  // begins anew
}

}  // namespace
}  // namespace turnout
