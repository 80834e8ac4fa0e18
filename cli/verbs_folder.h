// SPDX-License-Identifier: BSD-3-Clause
// Where the files lie that `turnout verbs` shows its program: a private folder for as long as the
// program runs, or one for each user and adapter that stays.
//
// A PassingFolder owns what lies in its folder and removes it. One that could not, as its process
// was killed, is found by its name (pid, start time and pid namespace of the process) and removed
// by the next sweep of the same user. One thread at a time. Errors: permission (a folder that is
// not the user's own, or open to others), system with errno.
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
