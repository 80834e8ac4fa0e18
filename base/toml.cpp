// SPDX-License-Identifier: BSD-3-Clause
#include "base/toml.h"

#include <fmt/format.h>

namespace turnout {

Result<std::string> toml_ascii(std::string_view text, std::string_view file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte-order mark is allowed
  std::string ascii(text);
  std::size_t line = 1;
  std::string_view quote;  // what ends the string we are in
  bool comment = false;
  for (std::size_t i = 0; i < ascii.size(); ++i) {
    const char c = ascii[i];
    const std::string_view rest = std::string_view(ascii).substr(i);
    if (c == '\n') {
      ++line;
      comment = false;
      if (quote.size() == 1) quote = {};  // an error, which toml++ tells about
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (!comment) {
        return Status{Code::invalid, fmt::format("{}, line {}: non-ASCII character; write it as "
                                                 "\\u00fc in a string in double quotes",
                                                 file, line)};
      }
      ascii[i] = '?';
    } else if (comment) {
      continue;
    } else if (!quote.empty()) {
      if (c == '\\' && quote.front() == '"') {
        if (rest.size() > 1 && rest[1] != '\n') ++i;
      } else if (rest.starts_with(quote)) {
        i += quote.size() - 1;
        quote = {};
      }
    } else if (c == '#') {
      comment = true;
    } else if (c == '"' || c == '\'') {
      const std::string_view triple = c == '"' ? R"(""")" : "'''";
      quote = rest.starts_with(triple) ? triple : triple.substr(0, 1);
      i += quote.size() - 1;
    }
  }
  return ascii;
}

}  // namespace turnout
