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
#include <string>
#include <utility>

#include "base/status.h"

namespace turnout::cli {

class PassingFolder {
 public:
  // In TMPDIR, or /tmp where that is no folder.
  [[nodiscard]] static Result<PassingFolder> make();
  PassingFolder(PassingFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PassingFolder& operator=(PassingFolder&&) = delete;
  ~PassingFolder();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }  // without links

 private:
  explicit PassingFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Removes folders of processes of this user that are no more. What cannot be removed stays.
void sweep_folders();

// The one that stays, made if need be, below XDG_RUNTIME_DIR or /tmp.
[[nodiscard]] Result<std::string> keep_folder(std::uint64_t guid);

}  // namespace turnout::cli
