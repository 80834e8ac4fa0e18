// SPDX-License-Identifier: BSD-3-Clause
// Results of a study as a table for people, as JSON and as CSV.
//
// Pure; any thread. Times in JSON and CSV are picoseconds (names end in _ps), sizes bytes; 64-bit
// hashes are text. The CSV has one line per policy and quantity, so that channels and kinds of
// memory may differ between policies. Numbers of JSON stay exact up to 2^53 ps, two and a half
// hours of virtual time.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "sim/study/study.h"

namespace turnout::sim {

struct Spread {
  Picoseconds least = 0, median = 0, p99 = 0, most = 0;
};
// Of sorted values, by nearest rank; zeros of none.
[[nodiscard]] Spread spread(std::span<const Picoseconds> sorted) noexcept;

// "1.234 us": four figures, from ps to s.
[[nodiscard]] std::string print_time(Picoseconds time);
[[nodiscard]] std::string print_mean_time(double picoseconds);  // a mean, rounded

[[nodiscard]] std::string format_table(const Study& study);
[[nodiscard]] std::string to_json(const Study& study);
[[nodiscard]] std::string to_csv(const Study& study);

// With the folders above it. Errors: system, naming it.
[[nodiscard]] Status make_folder(const std::string& folder);
// Replaces the file at once, or leaves it as it was. Errors: system, naming the path.
[[nodiscard]] Status write_text_file(const std::string& path, const std::string& text);

}  // namespace turnout::sim
