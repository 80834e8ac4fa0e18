// SPDX-License-Identifier: BSD-3-Clause
// Reads a file of any size as a stream: traces, recordings, GOAL schedules.
//
// Any thread. Errors: permission, system (with errno); invalid for a folder; those of `read`.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/status.h"

namespace turnout::sim {

[[nodiscard]] inline Status file_failure(std::string_view what, const std::string& path,
                                         int error) {
  return {error == EACCES || error == EPERM ? Code::permission : Code::system,
          fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)),
          error};
}

// Calls read(stream); `what` names the kind of file in messages ("trace").
template <class Read>
[[nodiscard]] auto read_stream(const std::string& path, std::string_view what, Read read)
    -> decltype(read(std::declval<std::istream&>())) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Status{Code::invalid, fmt::format("{} is a folder, not a {}", path, what)};
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return file_failure(fmt::format("read the {}", what), path, errno);
  try {
    return read(in);
  } catch (const std::ios_base::failure&) {  // the library's words for a failed read(2)
    return file_failure(fmt::format("read the {}", what), path, errno != 0 ? errno : EIO);
  }
}

}  // namespace turnout::sim
