// SPDX-License-Identifier: BSD-3-Clause
// The findings of `turnout doctor`: the consequences of a machine's facts for Turnout, and
// remedies. Pure: equal facts give equal findings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor_facts.h"

namespace turnout::cli {

// problem: something will not work; warning: it works, worse than it could; note: good to know.
enum class Level : std::uint8_t { good, note, warning, problem };
[[nodiscard]] std::string_view level_name(Level level) noexcept;

struct Finding {
  Level level = Level::good;
  std::string what;   // a short name, the same for the same check
  std::string found;  // one line
  std::string fix;    // what to do; empty when there is nothing to do
};

[[nodiscard]] std::vector<Finding> judge(const Facts& facts);

}  // namespace turnout::cli
