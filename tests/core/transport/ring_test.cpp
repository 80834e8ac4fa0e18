// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

namespace turnout {
namespace {

TEST(RingCursor, ThePhaseIsNeverZeroAndChangesEachRound) {
  for (const std::uint32_t entries : {1u, 2u, 3u, 16u, 128u}) {
    RingCursor cursor;
    std::vector<std::uint8_t> before(entries, 0);
    for (std::uint64_t position = 0; position < entries * 600u; ++position) {
      ASSERT_EQ(cursor.entry, position % entries);
      ASSERT_EQ(cursor.phase, 1 + position / entries % 255);
      ASSERT_NE(cursor.phase, before[cursor.entry]);
      before[cursor.entry] = cursor.phase;
      cursor.advance(entries);
    }
  }
}

TEST(Crc32c, GivesThePublishedValuesBothWays) {
  constexpr std::string_view check = "123456789";
  EXPECT_EQ(crc32c(0, check.data(), check.size()), 0xE3069283u);
  const std::vector<unsigned char> zeros(32);  // RFC 3720 B.4
  EXPECT_EQ(crc32c(0, zeros.data(), zeros.size()), 0x8A9136AAu);
  std::vector<unsigned char> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 37 + 5);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_EQ(crc32c(7, bytes.data(), n), crc32c_by_table(7, bytes.data(), n)) << n;
    const std::uint32_t first = crc32c(0, bytes.data(), n);
    ASSERT_EQ(crc32c(first, bytes.data() + n, bytes.size() - n),
              crc32c(0, bytes.data(), bytes.size()));
  }
}

// Every piece of a message that is an old one's still shows.
TEST(RingChecksum, ShowsWhatIsNotPlacedYet) {
  struct Entry {
    std::array<unsigned char, 48> payload;
    wire::Header header;
  };
  const auto message = [](std::uint32_t sequence) {
    Entry entry{};
    for (std::size_t i = 0; i < entry.payload.size(); ++i) {
      entry.payload[i] = static_cast<unsigned char>(i + 3 * sequence);
    }
    entry.header.sequence = sequence;
    entry.header.length = static_cast<std::uint16_t>(entry.payload.size());
    entry.header.phase = static_cast<std::uint8_t>(sequence);
    entry.header.index =
        ring_checksum(crc32c(0, entry.payload.data(), entry.payload.size()), entry.header);
    return entry;
  };
  const auto whole = [](const Entry& entry) {
    return ring_checksum(crc32c(0, entry.payload.data(), entry.payload.size()), entry.header) ==
           entry.header.index;
  };
  const Entry before = message(1), after = message(2);
  ASSERT_TRUE(whole(before) && whole(after));
  for (std::size_t from = 0; from < sizeof(Entry); ++from) {
    for (std::size_t to = from + 1; to <= sizeof(Entry); ++to) {
      Entry mixed = after;
      std::memcpy(reinterpret_cast<unsigned char*>(&mixed) + from,
                  reinterpret_cast<const unsigned char*>(&before) + from, to - from);
      const bool same = std::memcmp(&mixed, &after, sizeof(Entry)) == 0 ||
                        std::memcmp(&mixed, &before, sizeof(Entry)) == 0;
      ASSERT_EQ(whole(mixed), same) << from << ".." << to;
    }
  }
}

TEST(RingSender, EntriesFollowEachOther) {
  RingSender ring{1000, 1, 4, 512, 4, 0, {}};
  EXPECT_EQ(ring.entry_end(), 1000u + 512u);
  ring.next.entry = 3;
  EXPECT_EQ(ring.entry_end(), 1000u + 4 * 512u);
  ring.next.advance(4);
  EXPECT_EQ(ring.entry_end(), 1000u + 512u);
  EXPECT_EQ(ring.next.phase, 2);
}

TEST(RingSender, CountsATotalOnceAndOnlyItsOwn) {
  RingSender ring{1000, 1, 8, 512, 0, 6, {}};
  ring.take_total(5, 3);  // of an earlier ring
  EXPECT_EQ(ring.credits, 0u);
  ring.take_total(6, 3);
  ring.take_total(6, 3);
  EXPECT_EQ(ring.credits, 3u);
  ring.take_total(6, 2);  // late
  EXPECT_EQ(ring.credits, 3u);
  ring.take_total(6, 3 + 9);  // more than there are entries
  EXPECT_EQ(ring.credits, 3u);
  ring.take_total(6, 3 + 8);
  EXPECT_EQ(ring.credits, 8u);
  ring.credits = 0;
  ring.returned = 0xfffffffe;  // it wraps around
  ring.take_total(6, 2);
  EXPECT_EQ(ring.credits, 4u);
}

}  // namespace
}  // namespace turnout
