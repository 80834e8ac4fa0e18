// SPDX-License-Identifier: BSD-3-Clause
// Splits lists of variables such as PATH. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace turnout::cli {

// The words between any of `separators`; empty ones are left out.
[[nodiscard]] inline std::vector<std::string> split(std::string_view list,
                                                    std::string_view separators) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(separators), list.size());
    if (end > 0) words.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

}  // namespace turnout::cli
