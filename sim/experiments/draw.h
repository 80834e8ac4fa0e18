// SPDX-License-Identifier: BSD-3-Clause
// Drawing: plots computed data with tools/plot.py.
//
// One call runs Python, waits for it and writes an SVG. Any thread. Errors: unsupported if Python
// or matplotlib is missing, with the remedy; system if the script failed, with its messages on
// standard error.
#pragma once

#include <string>

#include "base/status.h"

namespace turnout::sim {

// `script` is the path of tools/plot.py, empty: it is not there; `data` a file of its format.
[[nodiscard]] Status draw(const std::string& script, const std::string& data,
                          const std::string& picture);

}  // namespace turnout::sim
