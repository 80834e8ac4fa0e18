// SPDX-License-Identifier: BSD-3-Clause
#include "base/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

namespace turnout::value {

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kKi = 1024;
constexpr std::array<Unit, 10> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"K", kKi},
                                              {"KiB", kKi},
                                              {"M", kKi* kKi},
                                              {"MiB", kKi* kKi},
                                              {"G", kKi* kKi* kKi},
                                              {"GiB", kKi* kKi* kKi},
                                              {"T", kKi* kKi* kKi* kKi},
                                              {"TiB", kKi* kKi* kKi* kKi}}};
constexpr std::array<Unit, 5> kTimeUnits = {
    {{"ns", 1}, {"us", 1000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"min", 60'000'000'000}}};

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

Status wrong(std::string_view accepted) {
  return {Code::invalid, fmt::format("expected {}", accepted)};
}

// NUMBER[.FRACTION]UNIT with exact arithmetic: the fraction counts in the smallest unit and is
// refused when it does not come out whole.
template <std::size_t N>
Result<std::uint64_t> parse_with_unit(std::string_view text, const std::array<Unit, N>& units,
                                      std::string_view accepted) {
  text = trim(text);
  std::uint64_t whole = 0;
  const char* const end = text.data() + text.size();
  auto [next, error] = std::from_chars(text.data(), end, whole);
  if (error == std::errc::result_out_of_range) {
    return Status{Code::invalid, "the number is too large"};
  }
  if (error != std::errc{}) return wrong(accepted);
  std::uint64_t fraction = 0, scale = 1;
  if (next != end && *next == '.') {
    ++next;
    const char* const digits = next;
    for (; next != end && *next >= '0' && *next <= '9'; ++next) {
      if (scale >= 1'000'000'000)
        return Status{Code::invalid, "at most nine digits after the decimal point"};
      fraction = fraction * 10 + static_cast<std::uint64_t>(*next - '0');
      scale *= 10;
    }
    if (next == digits) return wrong(accepted);
  }
  const std::string_view unit = trim({next, static_cast<std::size_t>(end - next)});
  // Zero is zero in any unit.
  if (unit.empty() && whole == 0 && fraction == 0) return std::uint64_t{0};
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == unit; });
  if (found == units.end()) return wrong(accepted);
  std::uint64_t value = 0;
  if (__builtin_mul_overflow(whole, found->factor, &value)) {
    return Status{Code::invalid, "the number is too large"};
  }
  __extension__ using Wide = unsigned __int128;
  const Wide part = Wide{fraction} * found->factor;
  if (part % scale != 0) return wrong(accepted);
  if (__builtin_add_overflow(value, static_cast<std::uint64_t>(part / scale), &value)) {
    return Status{Code::invalid, "the number is too large"};
  }
  return value;
}

// At most three significant figures, without a needless ".0" above ten.
std::string three_figures(double v) {
  if (v >= 100) return fmt::format("{:.0f}", v);
  if (v >= 10) return fmt::format("{:.1f}", v);
  return fmt::format("{:.2f}", v);
}

}  // namespace

Result<bool> parse_boolean(std::string_view text) {
  text = trim(text);
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  return wrong("1, true, yes, on, 0, false, no or off");
}

Result<std::uint64_t> parse_count(std::string_view text) {
  text = trim(text);
  std::uint64_t n = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, n);
  if (error == std::errc::result_out_of_range) {
    return Status{Code::invalid, "the number is too large"};
  }
  if (error != std::errc{} || next != end) return wrong("a whole number, 0 or more");
  return n;
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  return parse_with_unit(text, kByteUnits,
                         "a number of bytes such as 4096, 64KiB, 1.5M or 2GiB (powers of two)");
}

Result<std::int64_t> parse_duration(std::string_view text) {
  const Result<std::uint64_t> n =
      parse_with_unit(text, kTimeUnits, "a time with its unit such as 150ns, 10us, 1.5ms or 1s");
  if (!n) return n.status();
  if (n.value() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Status{Code::invalid, "the time is too long"};
  }
  return static_cast<std::int64_t>(n.value());
}

std::string print_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> names = {"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % kKi == 0 && unit + 1 < names.size()) {
    bytes /= kKi;
    ++unit;
  }
  return fmt::format("{}{}", bytes, names[unit]);
}

std::string print_duration(std::int64_t nanoseconds) {
  constexpr std::array<std::string_view, 4> names = {"ns", "us", "ms", "s"};
  if (nanoseconds == 0) return "0s";
  std::size_t unit = 0;
  while (nanoseconds % 1000 == 0 && unit + 1 < names.size()) {
    nanoseconds /= 1000;
    ++unit;
  }
  return fmt::format("{}{}", nanoseconds, names[unit]);
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < kKi) return fmt::format("{} B", bytes);
  auto v = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 999.5 and more would print as "1000": the next unit reads better.
  while (v >= 999.5 && unit + 1 < names.size()) {
    v /= static_cast<double>(kKi);
    ++unit;
  }
  return fmt::format("{} {}", three_figures(v), names[unit]);
}

std::string human_duration(std::int64_t nanoseconds) {
  constexpr std::array<std::string_view, 4> names = {"ns", "us", "ms", "s"};
  if (nanoseconds < 0) return fmt::format("-{}", human_duration(-(nanoseconds + 1)));
  if (nanoseconds < 1000) return fmt::format("{} ns", nanoseconds);
  auto v = static_cast<double>(nanoseconds);
  std::size_t unit = 0;
  while (v >= 999.5 && unit + 1 < names.size()) {
    v /= 1000;
    ++unit;
  }
  return fmt::format("{} {}", three_figures(v), names[unit]);
}

std::string human_count(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_above(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_above[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  // A third of the letters is another word.
  std::string_view best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (!best.empty()) return best;
  // Words left out or added: TURNOUT_BUDGET, TURNOUT_MEMORY_BUDGET_BYTES.
  for (const std::string_view candidate : known) {
    const std::string_view shorter = name.size() < candidate.size() ? name : candidate;
    const std::string_view longer = name.size() < candidate.size() ? candidate : name;
    if (shorter.size() >= 4 && longer.find(shorter) != std::string_view::npos) return candidate;
  }
  // One of its words, misspelt: "memry".
  for (const std::string_view candidate : known) {
    for (std::size_t begin = 0; begin < candidate.size();) {
      const std::size_t end = std::min(candidate.find('_', begin), candidate.size());
      const std::string_view word = candidate.substr(begin, end - begin);
      if (word.size() >= 4 && name.size() >= 4 && edit_distance(name, word) <= 1) return candidate;
      begin = end + 1;
    }
  }
  return {};
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace turnout::value
