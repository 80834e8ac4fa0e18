// SPDX-License-Identifier: BSD-3-Clause
// Where a name stands in a table of names, such as those of an enumeration's values in their order.
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

}  // namespace turnout
