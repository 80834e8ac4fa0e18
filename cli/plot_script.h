// Where tools/plot.py is: beside the installed command, or in the source tree.
//
// Any thread; no errors, an empty text if it is nowhere.
#pragma once

#include <string>

namespace turnout::cli {

[[nodiscard]] std::string plot_script();

}  // namespace turnout::cli
