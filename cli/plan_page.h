// SPDX-License-Identifier: BSD-3-Clause
// The HTML page of `turnout plan --html`: tables and plots in one file, without scripts and without
// any resource besides. Pure function, any thread. Untrusted names: nothing of them becomes markup.
#pragma once

#include <string>

#include "sim/plan/plan.h"

namespace turnout::cli {

[[nodiscard]] std::string plan_page(const sim::plan::Plan& plan);

}  // namespace turnout::cli
