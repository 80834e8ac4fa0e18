// SPDX-License-Identifier: BSD-3-Clause
// Private folders for the reports and shared files of one user's processes: owned by the user,
// closed to others, with files that are written completely or not at all.
//
// Functions on descriptors owned by a Descriptor; any thread, any process. Errors: permission (a
// folder of another user or accessible to others, or a symbolic link), system with errno, invalid
// for a file that is too large.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace turnout {

// XDG_RUNTIME_DIR if it can be written to, else /tmp.
[[nodiscard]] std::string runtime_folder();

// The folder, made if need be: ours, private, and no link that somebody put in its place. Without
// `make` an empty Descriptor says that it is not there.
[[nodiscard]] Result<Descriptor> open_private(const std::string& path, bool make);

// Written beside its place, then renamed. `path` is the folder's, for messages.
[[nodiscard]] Status write_whole(const Descriptor& folder, const std::string& path,
                                 const std::string& file_name, std::string_view text);
[[nodiscard]] Result<std::string> read_report_file(const Descriptor& folder,
                                                   const std::string& file_name);
// Calls it with the name of each file in the folder, one at a time; false: it cannot be read.
bool for_each_entry(const Descriptor& folder, const std::function<void(std::string_view)>& call);
// Names of what is in the folder; empty if it cannot be read.
[[nodiscard]] std::vector<std::string> entries(const Descriptor& folder);

[[nodiscard]] Status write_all(int fd, std::string_view text);
// "cannot WHAT PATH: ..."
[[nodiscard]] Status folder_failure(std::string_view what, const std::string& path, int error);

}  // namespace turnout
