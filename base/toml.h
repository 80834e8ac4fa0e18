// SPDX-License-Identifier: BSD-3-Clause
// toml++ with the project's configuration: header-only, no exceptions; and a filter for its input.
//
// Pure functions, any thread. Errors: invalid, with file and line.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// Its parser asserts that a key begins with a character of keys before it reports that one does
// not. A file is untrusted input, so without NDEBUG, too, it shall be reported.
#define TOML_ASSERT(expr) static_assert(true)
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#endif
#include <toml++/toml.h>
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

namespace turnout {

// The text with ASCII only. Version 3.3 of toml++ tests characters for exotic blanks with a
// function whose end is marked unreachable and reached for letters such as U+0206
// (is_non_ascii_horizontal_whitespace): undefined behaviour. So other letters vanish from comments
// and are refused elsewhere, where TOML's \u00fc says the same. `file` is for messages.
[[nodiscard]] Result<std::string> toml_ascii(std::string_view text, std::string_view file);

}  // namespace turnout
