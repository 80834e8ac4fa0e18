// SPDX-License-Identifier: BSD-3-Clause
// Reads whole text files of bounded size, such as settings and profiles.
//
// Any thread. Regular files only; never blocks on a pipe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace turnout {

// `shown` names the file in messages, `what` its kind ("settings file").
// Errors: permission, system (with errno), invalid (no regular file, larger than `largest` bytes).
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, std::string_view shown,
                                                 std::string_view what, std::uint64_t largest);

}  // namespace turnout
