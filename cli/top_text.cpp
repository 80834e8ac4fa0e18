// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/value.h"

namespace turnout::cli {
namespace {

constexpr double kMinute = 60, kHour = 3600, kDay = 86400;  // seconds
constexpr double kMostBytes = 9e18;                         // fits std::uint64_t

std::string three_figures(double number) {
  return fmt::format("{:.{}f}", number, number < 9.995 ? 2 : number < 99.95 ? 1 : 0);
}

}  // namespace

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else if ((byte & 0xc0) != 0x80) {  // no further byte of a UTF-8 character
      out += '?';
    }
  }
  return out;
}

std::string shortened_to(std::string text, std::size_t width) {
  if (text.size() <= width) return text;
  text.resize(width);
  if (width > 0) text.back() = '~';
  return text;
}

Line& Line::add(std::string_view text, Style style) {
  pieces_.push_back({style, printable(text)});
  return *this;
}

Line& Line::left(std::string_view text, std::size_t width, Style style) {
  return add(fmt::format("{:<{}}", shortened_to(printable(text), width), width), style);
}

Line& Line::right(std::string_view text, std::size_t width, Style style) {
  return add(fmt::format("{:>{}}", shortened_to(printable(text), width), width), style);
}

void Line::cut(std::size_t width) {
  if (this->width() <= width) return;
  std::size_t room = width;
  for (Piece& piece : pieces_) {
    piece.text.resize(std::min(piece.text.size(), room));
    room -= piece.text.size();
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.text.empty(); });
  if (!pieces_.empty()) pieces_.back().text.back() = '~';
}

void wrap(Lines* lines, std::string_view label, std::string_view text, std::size_t width,
          Style label_style, Style text_style) {
  const std::string clean = printable(text);
  std::string_view rest = clean;
  const std::size_t room = width > label.size() + 10 ? width - label.size() : 10;
  bool first = true;
  do {
    std::size_t end = rest.size();
    if (end > room) {
      end = rest.rfind(' ', room);
      if (end == std::string_view::npos || end == 0) end = room;
    }
    Line line;
    line.left(first ? label : "", label.size(), label_style).add(rest.substr(0, end), text_style);
    line.cut(width);
    lines->push_back(std::move(line));
    rest.remove_prefix(end);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    first = false;
  } while (!rest.empty());
}

void labelled(Lines* lines, std::string_view label, std::string_view text, std::size_t width,
              Style style) {
  wrap(lines, fmt::format("{:<{}}", label, kLabel), text, width,
       style == Style::plain ? Style::label : style, style);
}

std::string short_count(double count) {
  if (!std::isfinite(count) || count < 0) return "-";
  if (count < 0.005) return "0";
  if (count == std::floor(count) && count < 1000) return fmt::format("{:.0f}", count);
  constexpr std::array<std::string_view, 6> names = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (count >= 999.5 && unit + 1 < names.size()) {
    count /= 1000;
    ++unit;
  }
  return count < 1e6 ? three_figures(count) + std::string(names[unit])
                     : fmt::format("{:.0e}", count);
}

std::string short_bytes(double bytes) {
  if (!std::isfinite(bytes) || bytes < 0) return "-";
  return value::human_bytes(static_cast<std::uint64_t>(std::min(bytes, kMostBytes)));
}

std::string short_age(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  seconds = std::max(seconds, 0.0);
  if (seconds < kMinute) return fmt::format("{:.0f}s", std::floor(seconds));
  if (seconds < kHour) return fmt::format("{:.0f}m", std::floor(seconds / kMinute));
  if (seconds < 2 * kDay) return fmt::format("{:.0f}h", std::floor(seconds / kHour));
  return fmt::format("{:.0f}d", std::floor(std::min(seconds / kDay, 1e6)));
}

std::string long_age(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const auto whole = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, 1e12));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  if (part > 0 && share(part, whole) < 0.005) return "<1%";
  return fmt::format("{:.0f}%", std::min(100 * share(part, whole), 999.0));
}

std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t width) {
  const std::size_t inside = width > 3 ? width - 2 : 1;
  const double full = std::min(share(part, whole), 1.0) * static_cast<double>(inside);
  // What is used at all is seen; only what is full looks full.
  auto filled = static_cast<std::size_t>(full);
  if (filled == 0 && part > 0 && whole > 0) filled = 1;
  return fmt::format("[{}{}]", std::string(filled, '|'), std::string(inside - filled, ' '));
}

Style fill_style(std::uint64_t part, std::uint64_t whole) {
  const double full = share(part, whole);
  return full >= 0.9 ? Style::bad : full >= 0.75 ? Style::warning : Style::good;
}

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", value::human_count(count), noun, count == 1 ? "" : "s");
}

}  // namespace turnout::cli
