// SPDX-License-Identifier: BSD-3-Clause
// The folder with the files that `turnout verbs` shows to its program: a private folder for the
// program's lifetime, or a permanent one per user and adapter.
//
// A PassingFolder owns its folder's contents and removes them. If its process is killed, the next
// sweep of the same user finds the folder by its name (pid, start time and PID namespace of the
// process) and removes it. One thread at a time. Errors: permission (a folder of another user, or
// accessible to others), system with errno.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace turnout::cli {

struct RemoveFolder {
  void operator()(const std::string* path) const;
};
using PassingFolder = std::unique_ptr<const std::string, RemoveFolder>;  // its path, without links
// In TMPDIR, or /tmp where that is no folder.
[[nodiscard]] Result<PassingFolder> make_passing_folder();

// Removes folders of processes of this user that are no more. What cannot be removed stays.
void sweep_folders();

// The one that stays, made if need be, below XDG_RUNTIME_DIR or /tmp. `ending` of its name: "", or
// what tells another kind of files from those.
[[nodiscard]] Result<std::string> keep_folder(std::uint64_t guid, std::string_view ending);

}  // namespace turnout::cli
