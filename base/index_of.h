// SPDX-License-Identifier: BSD-3-Clause
// Where a name stands in a table of names, such as those of an enumeration's values in their order,
// and which name a value has.
//
// Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace turnout {

template <std::size_t kSize>
[[nodiscard]] constexpr std::optional<std::size_t> index_of(
    const std::array<std::string_view, kSize>& names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

// `unknown`: of a value that is not in the table.
template <class Enum, std::size_t kSize>
[[nodiscard]] constexpr std::string_view name_of(const std::array<std::string_view, kSize>& names,
                                                 Enum value,
                                                 std::string_view unknown = "?") noexcept {
  const auto i = static_cast<std::size_t>(value);
  return i < kSize ? names[i] : unknown;
}

}  // namespace turnout
