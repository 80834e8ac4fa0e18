// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/text_fields.h"

#include <limits>

namespace turnout::sim {

Result<std::uint64_t> read_first_line(Lines& lines, const std::string& file, std::string_view magic,
                                      std::uint64_t newest, std::string_view what) {
  if (!lines.next()) {
    if (!lines.status().ok()) return lines.status();
    return Status{Code::invalid, fmt::format("{}: empty file; expected a {}", file, what)};
  }
  Fields first = lines.fields();
  if (first.word() != magic) {
    first.wrong("first line", fmt::format("expected \"{} {}\"", magic, newest));
  }
  const auto found =
      first.number<std::uint64_t>("version", 1, std::numeric_limits<std::uint32_t>::max());
  first.at_end();
  if (!first.ok()) return first.status();
  if (found <= newest) return found;
  return Status{Code::version,
                fmt::format("{}: a {} of format version {}; this turnout reads versions up to {}",
                            file, what, found, newest)};
}

}  // namespace turnout::sim
