// SPDX-License-Identifier: BSD-3-Clause

#include <filesystem>

#include "sim/formats/goal.h"
#include "sim/formats/recording.h"
#include "sim/formats/trace.h"

namespace turnout::sim {

Result<Trace> open_trace(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return read_recordings({path}, path);
  if (path.ends_with(".otf2")) return read_otf2_file(path);
  if (path.ends_with(".goal")) return read_goal_file(path);
  return read_trace_file(path);
}

}  // namespace turnout::sim
