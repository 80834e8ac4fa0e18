// SPDX-License-Identifier: BSD-3-Clause
// Text of others inside an HTML page. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace turnout::cli {

// For text between tags and in quoted attributes; control characters become blanks.
[[nodiscard]] std::string html_text(std::string_view text);
// JSON for a script element: no character of it can end the element or begin a comment.
[[nodiscard]] std::string script_json(std::string_view json);
// At most so many bytes, cut between characters and then ended with three points.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most);

}  // namespace turnout::cli
