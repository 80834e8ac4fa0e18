// SPDX-License-Identifier: BSD-3-Clause
#include "base/value.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace turnout::value {
namespace {

TEST(Value, Bytes) {
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  EXPECT_EQ(parse_bytes(" 4KiB ").value(), 4096u);
  EXPECT_EQ(parse_bytes("4 K").value(), 4096u);
  EXPECT_EQ(parse_bytes("1.5M").value(), 1536u * 1024);
  EXPECT_EQ(parse_bytes("64GiB").value(), std::uint64_t{64} << 30);
  EXPECT_EQ(parse_bytes("0").value(), 0u);
  EXPECT_EQ(parse_bytes("16777215TiB").value(), std::uint64_t{16777215} << 40);
  for (const char* bad : {"",
                          "K",
                          "-1",
                          "+1",
                          "1e3",
                          "4kib",
                          "4KB",
                          "1.2345",
                          "1.5",
                          "1.K",
                          ".5K",
                          "0x10",
                          "1,5K",
                          "16777216TiB",
                          "18446744073709551616",
                          "4KiBs",
                          "4 K K",
                          "1.0000000001K",
                          "nan",
                          "١"}) {
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
  }
}

TEST(Value, Durations) {
  EXPECT_EQ(parse_duration("150ns").value(), 150);
  EXPECT_EQ(parse_duration("1.5ms").value(), 1'500'000);
  EXPECT_EQ(parse_duration("1 s").value(), 1'000'000'000);
  EXPECT_EQ(parse_duration("2min").value(), 120'000'000'000);
  EXPECT_EQ(parse_duration("0").value(), 0);
  for (const char* bad : {"", "1", "s", "-1s", "1.5ns", "10000000000s", "1h", "1 m", "1S", "1ss"}) {
    EXPECT_FALSE(parse_duration(bad).ok()) << bad;
  }
}

TEST(Value, CountsAndBooleans) {
  EXPECT_EQ(parse_count("26").value(), 26u);
  for (const char* bad : {"", "-1", "1.0", "1k", "99999999999999999999"}) {
    EXPECT_FALSE(parse_count(bad).ok()) << bad;
  }
  EXPECT_TRUE(parse_boolean("on").value());
  EXPECT_FALSE(parse_boolean("0").value());
  EXPECT_FALSE(parse_boolean("2").ok());
}

TEST(Value, ForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(65536), "64.0 KiB");
  EXPECT_EQ(human_bytes(1023 * 1024), "1.00 MiB");
  EXPECT_EQ(human_bytes(~std::uint64_t{0}), "16.0 EiB");
  EXPECT_EQ(human_duration(999), "999 ns");
  EXPECT_EQ(human_duration(1500), "1.50 us");
  EXPECT_EQ(human_duration(999'999), "1.00 ms");
  EXPECT_EQ(human_count(1234567), "1,234,567");
  EXPECT_EQ(human_count(123), "123");
}

TEST(Value, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("memory_buget", "memory_budget"), 1u);
  EXPECT_EQ(edit_distance("lgo", "log"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

RC_GTEST_PROP(ValueProperty, PrintedBytesAreReadBack, (std::uint64_t bytes)) {
  const auto read = parse_bytes(print_bytes(bytes));
  RC_ASSERT(read.ok());
  RC_ASSERT(read.value() == bytes);
}

RC_GTEST_PROP(ValueProperty, PrintedDurationsAreReadBack, (std::int64_t time)) {
  const std::int64_t t = time < 0 ? ~time : time;
  const auto read = parse_duration(print_duration(t));
  RC_ASSERT(read.ok());
  RC_ASSERT(read.value() == t);
}

RC_GTEST_PROP(ValueProperty, AnyTextIsAnsweredOrRefused, (const std::string& text)) {
  (void)parse_bytes(text).ok();
  (void)parse_duration(text).ok();
  (void)parse_count(text).ok();
  (void)parse_boolean(text).ok();
}

RC_GTEST_PROP(ValueProperty, EditDistanceIsSymmetricAndZeroOnlyForEquals,
              (const std::string& a, const std::string& b)) {
  RC_ASSERT(edit_distance(a, b) == edit_distance(b, a));
  RC_ASSERT((edit_distance(a, b) == 0) == (a == b));
  RC_ASSERT(edit_distance(a, b) <= std::max(a.size(), b.size()));
}

}  // namespace
}  // namespace turnout::value
