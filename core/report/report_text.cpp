// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/value.h"

namespace turnout {

std::string count_text(double count) {
  return value::human_count(static_cast<std::uint64_t>(std::clamp(count, 0.0, 1e18)));
}

std::string bytes_text(double bytes) {
  return value::human_bytes(static_cast<std::uint64_t>(std::clamp(bytes, 0.0, 1e18)));
}

std::string seconds_text(std::int64_t nanoseconds) {
  return fmt::format("{:.1f}s", static_cast<double>(nanoseconds) / 1e9);
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out;
}

std::string wrap(const std::string& lead, std::string_view text, std::size_t columns) {
  std::string out = lead;
  const std::size_t room = columns > lead.size() + 20 ? columns - lead.size() : 20;
  const std::string indent(lead.size(), ' ');
  while (text.size() > room) {
    std::size_t cut = text.rfind(' ', room);
    if (cut == std::string_view::npos || cut == 0) cut = room;
    out += text.substr(0, cut);
    out += '\n';
    out += indent;
    text.remove_prefix(cut);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  out += text;
  out += '\n';
  return out;
}

std::string channels_over_time(const DirectionReport& direction) {
  const auto& spans = direction.spans;
  if (spans.empty()) return "-";
  std::string full(name(spans.front().channel));
  for (std::size_t i = 1; i < spans.size(); ++i) {
    full += fmt::format(" -> {} @{}", name(spans[i].channel), seconds_text(spans[i].since));
    if (full.size() > kChannelColumns) break;
  }
  if (full.size() <= kChannelColumns) return full;
  const std::string_view last = name(spans.back().channel);
  const std::string switches = fmt::format("{} switches", direction.switches);
  const std::string both = fmt::format("{} .. {}", name(spans.front().channel), last);
  const std::string all =
      fmt::format("{} @{}, {}", both, seconds_text(spans.back().since), switches);
  if (all.size() <= kChannelColumns) return all;
  const std::string untimed = fmt::format("{}, {}", both, switches);
  return untimed.size() <= kChannelColumns ? untimed
                                           : fmt::format(".. {}, {}", last, direction.switches);
}

}  // namespace turnout
