// SPDX-License-Identifier: BSD-3-Clause
#include "base/value.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

TEST(Value, ACellOfATableEndsWhereItIsMeantTo) {
  EXPECT_EQ(value::markdown_cell("a|b <br> c"), "a\\|b \\<br> c");
  EXPECT_EQ(value::markdown_cell(""), "");
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

// Of the characters that values are made of, so that some texts are values.
rc::Gen<std::string> almost_values() {
  return rc::gen::container<std::string>(
      rc::gen::elementOf(std::string("00123456789.. KMGTiBnusmtrueyonflas-")));
}

// The whole text counts, apart from blanks around it; what is refused says why.
template <class Parse>
void read_whole_or_refuse(Parse parse, const std::string& text) {
  const auto read = parse(text), padded = parse(" \t" + text + "\n");
  RC_ASSERT(read.ok() == padded.ok());
  RC_ASSERT(!parse(text + "?").ok());
  RC_ASSERT(!parse("?" + text).ok());
  if (read.ok()) {
    RC_ASSERT(read.value() == padded.value());
  } else {
    RC_ASSERT(read.status().code() == Code::invalid);
    RC_ASSERT(read.status().text() == padded.status().text());
    RC_ASSERT(read.status().text().find_first_of(' ') != std::string::npos);
  }
}

RC_GTEST_PROP(ValueProperty, TextIsReadWholeOrRefused, ()) {
  const std::string text =
      *rc::gen::oneOf(almost_values(), rc::gen::arbitrary<std::string>(),
                      rc::gen::element<std::string>("yes", "off", "4KiB", "1.5 ms", "0", "26"));
  read_whole_or_refuse(parse_bytes, text);
  read_whole_or_refuse(parse_duration, text);
  read_whole_or_refuse(parse_count, text);
  read_whole_or_refuse(parse_boolean, text);
}

RC_GTEST_PROP(ValueProperty, ANumberCountsInItsUnit, (std::uint64_t n)) {
  using Unit = std::pair<std::string, std::uint64_t>;
  const auto [bytes, in_bytes] = *rc::gen::elementOf(std::vector<Unit>{
      {"", 1}, {"B", 1}, {"K", 1024}, {"MiB", 1 << 20}, {"G", 1 << 30}, {"TiB", 1ULL << 40}});
  const auto [time, in_time] = *rc::gen::elementOf(
      std::vector<Unit>{{"ns", 1}, {"us", 1000}, {"ms", 1'000'000}, {"s", 1'000'000'000}});
  n >>= *rc::gen::inRange(0, 64);  // of any size
  const auto space = *rc::gen::element<std::string>("", " ");
  std::uint64_t expected = 0;
  const auto size = parse_bytes(std::to_string(n) + space + bytes);
  RC_ASSERT(size.ok() == !__builtin_mul_overflow(n, in_bytes, &expected));
  if (size.ok()) RC_ASSERT(size.value() == expected);
  const auto duration = parse_duration(std::to_string(n) + space + time);
  const bool fits = !__builtin_mul_overflow(n, in_time, &expected) && expected <= INT64_MAX;
  RC_ASSERT(duration.ok() == fits);
  if (fits) RC_ASSERT(duration.value() == static_cast<std::int64_t>(expected));
}

RC_GTEST_PROP(ValueProperty, EditDistanceIsSymmetricAndZeroOnlyForEquals,
              (const std::string& a, const std::string& b)) {
  RC_ASSERT(edit_distance(a, b) == edit_distance(b, a));
  RC_ASSERT((edit_distance(a, b) == 0) == (a == b));
  RC_ASSERT(edit_distance(a, b) <= std::max(a.size(), b.size()));
}

}  // namespace
}  // namespace turnout::value
