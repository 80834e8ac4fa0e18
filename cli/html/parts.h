// SPDX-License-Identifier: BSD-3-Clause
// The files of the page as text, made by CMake from page.html, page.css and page.js.
#pragma once

#include <string_view>

namespace turnout::cli {

extern const std::string_view kPageTemplate, kPageStyle, kPageScript;

}  // namespace turnout::cli
