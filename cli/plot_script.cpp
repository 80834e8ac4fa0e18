// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plot_script.h"

#include <filesystem>
#include <system_error>

#include "base/installation.h"

namespace turnout::cli {

std::string plot_script() {
  std::error_code error;
  const std::string path = share_folder() + "/plot.py";
  return std::filesystem::is_regular_file(path, error) ? path : std::string();
}

}  // namespace turnout::cli
