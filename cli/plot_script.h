// SPDX-License-Identifier: BSD-3-Clause
// Where plot.py of this installation is.
//
// Any thread; no errors, an empty text if it is nowhere.
#pragma once

#include <string>

namespace turnout::cli {

[[nodiscard]] std::string plot_script();

}  // namespace turnout::cli
