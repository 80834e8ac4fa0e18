// SPDX-License-Identifier: BSD-3-Clause
// Parses and prints values with units, for settings, the `turnout` command and reports. Pure
// functions, any thread.
//
// Parsing must consume the whole text, apart from surrounding blanks, so a mistyped unit is an
// error and never another number. Units of bytes are powers of two.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace turnout::value {

// Errors: invalid; the text says what is accepted.
[[nodiscard]] Result<bool> parse_boolean(std::string_view text);  // 1 true yes on / 0 false no off
[[nodiscard]] Result<std::uint64_t> parse_count(std::string_view text);  // 26
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);  // 4096, 4KiB, 1.5M
[[nodiscard]] Result<std::int64_t> parse_duration(
    std::string_view text);  // 150ns, 1.5s -> nanoseconds

// Exact: parsing the result gives the value back. "4KiB", "4097", "1s", "1500ms", "0s".
[[nodiscard]] std::string print_bytes(std::uint64_t bytes);
[[nodiscard]] std::string print_duration(std::int64_t nanoseconds);

// For people, three figures at most: "4.0 KiB", "1.24 GiB"; "850 ns", "1.2 s".
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
[[nodiscard]] std::string human_duration(std::int64_t nanoseconds);
[[nodiscard]] std::string human_count(std::uint64_t count);  // "12,345"

// For a cell of a table in Markdown: '|' ends one, '<' begins a tag.
[[nodiscard]] std::string markdown_cell(std::string_view text);

// Levenshtein distance, with a swap of neighbours counted as one edit.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The known name that `name` was probably meant to be: two slips in a long one, one in a short one,
// or words left out or added. Empty if nothing is near.
[[nodiscard]] std::string_view nearest_name(std::string_view name,
                                            std::span<const std::string_view> known);

}  // namespace turnout::value
