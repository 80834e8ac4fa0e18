// SPDX-License-Identifier: BSD-3-Clause
// What mpi_launch.h wants to know of this process and its launcher. Reads the environment, asks the
// launcher for its version. One thread; no errors: what cannot be known is left as it is.
#pragma once

#include <string>
#include <vector>

#include "cli/mpi_launch.h"

namespace turnout::cli {

[[nodiscard]] LaunchFacts launch_facts(std::vector<std::string> command);
// The launch, as lines for a shell.
[[nodiscard]] std::string shell_text(const Launch& launch);

}  // namespace turnout::cli
