// SPDX-License-Identifier: BSD-3-Clause
// Drawing: tools/plot.py makes a picture of computed data.
//
// One call starts Python, waits for it, and leaves an SVG. Any thread. Errors: unsupported: no
// Python with matplotlib here, saying how to get one; system: the script failed, its own words are
// on standard error.
#pragma once

#include <string>

#include "base/status.h"

namespace turnout::sim {

// `script` is the path of tools/plot.py, empty: it is not there; `data` a file of its format.
[[nodiscard]] Status draw(const std::string& script, const std::string& data,
                          const std::string& picture);

}  // namespace turnout::sim
