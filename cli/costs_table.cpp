// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "core/selection/device_costs.h"

namespace turnout::cli {

int costs_table(bool markdown) {
  if (markdown) {
    fmt::print("{}", selection::costs_page());
    return 0;
  }
  const Result<Settings> settings = Settings::load();
  if (!settings) {
    fmt::print(stderr, "turnout: {}\n", settings.status().text());
    return 1;
  }
  const Result<selection::CostsFile> costs = selection::load_costs(settings.value());
  if (!costs) {
    fmt::print(stderr, "turnout: {}\n", costs.status().text());
    return 1;
  }
  fmt::print("{}", selection::print_costs(costs.value()));
  return 0;
}

}  // namespace turnout::cli
