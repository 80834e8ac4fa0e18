// SPDX-License-Identifier: BSD-3-Clause
// Files that `turnout sim` and `turnout plot` use: plot.py of this installation, and files that are
// removed when their owner ends. One thread; no errors.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "base/installation.h"

namespace turnout::cli {

// Empty if it is nowhere.
[[nodiscard]] inline std::string plot_script() {
  std::error_code error;
  const std::string path = share_folder() + "/plot.py";
  return std::filesystem::is_regular_file(path, error) ? path : std::string();
}

struct RemoveFile {
  void operator()(const std::string* path) const {
    std::error_code ignored;
    std::filesystem::remove(*path, ignored);
    delete path;
  }
};
using TemporaryFile = std::unique_ptr<const std::string, RemoveFile>;  // its path

}  // namespace turnout::cli
