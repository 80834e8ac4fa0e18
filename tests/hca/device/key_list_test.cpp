// SPDX-License-Identifier: BSD-3-Clause
// Lists of indirect memory keys: where their bytes are, from any byte on, and lists that say what
// cannot be.
#include "hca/device/key_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/split_mix.h"

namespace turnout::hca {
namespace {

using Entries = std::vector<KeyEntry>;
using Bytes = std::vector<std::pair<std::uint32_t, std::uint64_t>>;  // key and address of each

KeyEntry head(std::uint32_t passes, std::uint32_t parts, std::uint32_t bytes) {
  return {std::uint64_t{passes} << 32 | parts, bytes, kRepeatKey};
}
KeyEntry part(std::uint64_t address, std::uint32_t bytes, std::uint32_t stride, std::uint32_t key) {
  return {address, stride << 16 | bytes, key};
}

// What the entries mean, byte by byte.
Bytes expand(const Entries& entries) {
  Bytes out;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const KeyEntry& e = entries[i];
    if (e.key != kRepeatKey) {
      for (std::uint32_t b = 0; b < e.length; ++b) out.emplace_back(e.key, e.address + b);
      continue;
    }
    const auto parts = static_cast<std::uint32_t>(e.address & 0xffff);
    for (std::uint64_t pass = 0; pass < e.address >> 32; ++pass) {
      for (std::uint32_t p = 1; p <= parts; ++p) {
        const KeyEntry& of = entries[i + p];
        for (std::uint32_t b = 0; b < (of.length & 0xffff); ++b) {
          out.emplace_back(of.key, of.address + pass * (of.length >> 16) + b);
        }
      }
    }
    i += parts;
  }
  return out;
}

Bytes read(const Entries& entries, std::uint64_t offset, std::uint64_t length, std::size_t runs,
           std::uint32_t log_entry = 0) {
  Bytes out;
  KeyCursor cursor(entries, log_entry);
  if (!cursor.seek(offset)) return out;
  std::vector<KeyRun> found(runs);
  while (length > 0) {
    const std::size_t count = cursor.next(length, found);
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i) {
      length -= found[i].length;
      for (std::uint64_t b = 0; b < found[i].length; ++b) {
        out.emplace_back(found[i].key, found[i].address + b);
      }
    }
  }
  return out;
}

TEST(KeyList, ReadsEntriesOfTheWire) {
  const std::array<std::byte, 16> bytes{std::byte{0}, std::byte{0}, std::byte{1}, std::byte{2},
                                        std::byte{0}, std::byte{0}, std::byte{9}, std::byte{8},
                                        std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                        std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
  const KeyEntry e = read_key_entry(bytes.data());
  EXPECT_EQ(e.length, 0x102U);
  EXPECT_EQ(e.key, 0x908U);
  EXPECT_EQ(e.address, 0x102030405060708U);
}

TEST(KeyList, PiecesInTheirOrder) {
  const Entries entries{{1000, 3, 0x1100}, {}, {2000, 2, 0x1200}, {5000, 4, 0x1100}, {}};
  EXPECT_TRUE(is_well_formed(entries));
  EXPECT_EQ(read(entries, 0, 9, 8), expand(entries));
  EXPECT_EQ(read(entries, 0, 100, 8), expand(entries)) << "more than there is";
  const Bytes end{{0x1200, 2001}, {0x1100, 5000}};
  EXPECT_EQ(read(entries, 4, 2, 1), end);
  KeyCursor cursor(entries, 0);
  EXPECT_FALSE(cursor.seek(9));
}

TEST(KeyList, WhatGoesOnIsOneRun) {
  const Entries entries{
      {1000, 3, 0x1100}, {1003, 5, 0x1100}, head(4, 1, 8), part(1008, 8, 8, 0x1100)};
  KeyCursor cursor(entries, 0);
  ASSERT_TRUE(cursor.seek(1));
  std::array<KeyRun, 4> runs{};
  ASSERT_EQ(cursor.next(1000, runs), 1U);
  EXPECT_EQ(runs[0].address, 1001U);
  EXPECT_EQ(runs[0].length, 39U);
}

TEST(KeyList, ABlockThatRepeats) {
  const Entries entries{{50, 1, 0x900},
                        head(3, 2, 12),
                        part(1000, 8, 10, 0x1100),
                        part(2000, 4, 4, 0x1200),
                        {7000, 5, 0x1300}};
  EXPECT_TRUE(is_well_formed(entries));
  const Bytes all = expand(entries);
  ASSERT_EQ(all.size(), 42U);
  EXPECT_EQ(read(entries, 0, 42, 3), all);
  EXPECT_EQ(read(entries, 20, 22, 32), Bytes(all.begin() + 20, all.end()));
}

TEST(KeyList, EntriesOfOneLength) {
  const Entries entries{{0x10000, 77, 0x1100}, {0x50000, 0, kRepeatKey}, {0x20000, 1, 0x1100}};
  constexpr std::uint32_t kLog = 12;
  KeyCursor cursor(entries, kLog);
  ASSERT_TRUE(cursor.seek(4000));
  std::array<KeyRun, 4> runs{};
  ASSERT_EQ(cursor.next(4196, runs), 3U);
  EXPECT_EQ(runs[0].address, 0x10000U + 4000);
  EXPECT_EQ(runs[0].length, 96U);
  EXPECT_EQ(runs[1].key, kRepeatKey);
  EXPECT_EQ(runs[1].length, 4096U);
  EXPECT_EQ(runs[2].address, 0x20000U);
  EXPECT_EQ(runs[2].length, 4U);
  EXPECT_FALSE(cursor.seek(3U << kLog));
}

TEST(KeyList, ListsThatAreNotWhole) {
  EXPECT_FALSE(is_well_formed(Entries{head(2, 0, 0)})) << "no parts";
  EXPECT_FALSE(is_well_formed(Entries{head(2, 2, 8), part(0, 8, 8, 0x900)})) << "too few parts";
  EXPECT_FALSE(is_well_formed(Entries{head(2, 1, 9), part(0, 8, 8, 0x900)})) << "another length";
  EXPECT_FALSE(is_well_formed(Entries{head(2, 2, 0), head(1, 1, 4), part(0, 4, 4, 0x900)}))
      << "a block within a block";
  EXPECT_TRUE(is_well_formed({}));
  // Damaged, they come to an end.
  for (const Entries& entries :
       {Entries{head(0xffff'ffff, 1, 5), part(0, 0, 0, 0x900)}, Entries{head(9, 7, 1)},
        Entries{head(0xffff'ffff, 2, 1), part(0, 0, 3, 0x900), part(0, 0, 3, 0x900), {1, 1, 0x900}},
        Entries{head(0xffff'ffff, 1, 0), part(0, 4, 4, 0x900)}}) {
    for (const std::uint64_t offset : {0ULL, 1ULL, 1ULL << 33}) {
      EXPECT_LE(read(entries, offset, 10, 4).size(), 10U);
    }
  }
}

TEST(KeyList, AnyListFromAnyByteOn) {
  SplitMix64 random(3);
  for (int round = 0; round < 2000; ++round) {
    Entries entries;
    for (std::uint64_t n = 1 + random.next() % 5; n > 0; --n) {
      const auto key = static_cast<std::uint32_t>(0x900 + random.next() % 3);
      if (random.next() % 2 == 0) {
        entries.push_back(
            {random.next() % 100, static_cast<std::uint32_t>(random.next() % 9), key});
        continue;
      }
      const std::size_t at = entries.size();
      const auto parts = static_cast<std::uint32_t>(1 + random.next() % 3);
      entries.push_back(head(static_cast<std::uint32_t>(random.next() % 5), parts, 0));
      for (std::uint32_t i = 0; i < parts; ++i) {
        const auto bytes = static_cast<std::uint32_t>(random.next() % 5);
        entries.push_back(
            part(random.next() % 100, bytes, static_cast<std::uint32_t>(random.next() % 9), key));
        entries[at].length += bytes;
      }
    }
    ASSERT_TRUE(is_well_formed(entries));
    const Bytes all = expand(entries);
    const std::uint64_t from = random.next() % (all.size() + 1);
    const std::uint64_t length = random.next() % (all.size() - from + 1);
    ASSERT_EQ(read(entries, from, length, 1 + random.next() % 4),
              Bytes(all.begin() + static_cast<std::ptrdiff_t>(from),
                    all.begin() + static_cast<std::ptrdiff_t>(from + length)))
        << "round " << round;
  }
}

}  // namespace
}  // namespace turnout::hca
