#include "sim/text_fields.h"

#include <limits>

namespace turnout::sim {

Status read_first_line(Lines& lines, const std::string& file, std::string_view magic,
                       std::uint64_t version, std::string_view what) {
  if (!lines.next()) {
    if (!lines.status().ok()) return lines.status();
    return {Code::invalid, fmt::format("{}: empty: no {}", file, what)};
  }
  Fields first = lines.fields();
  if (first.word() != magic) {
    first.wrong("first line", fmt::format("expected \"{} {}\"", magic, version));
  }
  const auto found =
      first.number<std::uint64_t>("version", 1, std::numeric_limits<std::uint32_t>::max());
  first.at_end();
  if (!first.ok()) return first.status();
  if (found == version) return {};
  return {Code::version,
          fmt::format("{}: a {} of layout {}; this turnout reads {}", file, what, found, version)};
}

}  // namespace turnout::sim
