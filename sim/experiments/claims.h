// SPDX-License-Identifier: BSD-3-Clause
// Claims of the papers beside ours, each with a verdict that follows from the numbers.
//
// The page of an experiment has one table of them; tools/claims.py collects the tables of all
// pages. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turnout::sim {

// The later, the worse.
enum class Verdict : std::uint8_t {
  met,           // within the tolerance
  tendency,      // outside of it, in the paper's direction with every seed
  missed,        // neither
  contradicted,  // in the other direction with every seed
  not_run,       // this experiment has nothing to compare
};
[[nodiscard]] std::string_view name(Verdict verdict) noexcept;

struct Claim {
  std::string id, what, paper, ours;
  Verdict verdict = Verdict::not_run;
  std::string cause;  // of any verdict but met; not printed if met
};

// Of several seeds.
struct OfSeeds {
  double median = 0, least = 0, most = 0;
};
[[nodiscard]] OfSeeds of_seeds(std::vector<double> values);
// "-19.3 %", of several seeds "-19.3 % (-20.1 to -18.0)".
[[nodiscard]] std::string print_percent(const OfSeeds& percent);

// Differences in percent: met within so many percentage points.
inline constexpr double kPoints = 3;
// Everything else: met within so much of the paper's value [spec/claims.md, E3].
inline constexpr double kPart = 0.15;
// The paper's change in percent; 0: that there is none.
[[nodiscard]] Verdict of_change(double paper, const OfSeeds& ours) noexcept;
[[nodiscard]] Verdict of_value(double paper, double ours) noexcept;

[[nodiscard]] std::string claims_table(const std::vector<Claim>& claims);

}  // namespace turnout::sim
