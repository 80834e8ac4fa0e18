// SPDX-License-Identifier: BSD-3-Clause
// What tables and summaries of reports share: text of a file made safe for a terminal, lines of a
// given width, a direction's channels over time.
//
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/report/report.h"

namespace turnout {

// Without control characters.
[[nodiscard]] std::string printable(std::string_view text);

// `text` after `lead`, broken at blanks so that lines have at most `columns`; further lines are
// indented as far as the lead reaches.
[[nodiscard]] std::string wrap(const std::string& lead, std::string_view text, std::size_t columns);

// Of sums that cannot overflow: as value::human_count() and human_bytes() have them.
[[nodiscard]] std::string count_text(double count);
[[nodiscard]] std::string bytes_text(double bytes);

// "1.2s"
[[nodiscard]] std::string seconds_text(std::int64_t nanoseconds);

// "DC-sendrecv -> RC-RDMA @1.0s" in at most kChannelColumns: the middle is left out where there is
// no room for it.
inline constexpr std::size_t kChannelColumns = 41;
[[nodiscard]] std::string channels_over_time(const DirectionReport& direction);

}  // namespace turnout
