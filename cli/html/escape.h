// SPDX-License-Identifier: BSD-3-Clause
// Text of others inside an HTML page. Pure functions, any thread.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace turnout::cli {

// What some characters are replaced by.
using Replacements = std::initializer_list<std::pair<char, std::string_view>>;

inline std::string escaped(std::string_view text, const Replacements& replacements) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto* const found = std::find_if(replacements.begin(), replacements.end(),
                                           [&](const auto& one) { return one.first == c; });
    if (found != replacements.end()) {
      out += found->second;
    } else {
      out += c;
    }
  }
  return out;
}

// For text between tags and in quoted attributes; control characters become blanks.
[[nodiscard]] inline std::string html_text(std::string_view text) {
  std::string out = escaped(
      text, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}});
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return out;
}

// JSON for a script element: no character of it can end the element or begin a comment.
[[nodiscard]] inline std::string script_json(std::string_view json) {
  return escaped(json, {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}});
}

// At most so many bytes, cut between characters and then ended with three points.
[[nodiscard]] inline std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace turnout::cli
