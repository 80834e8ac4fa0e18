// SPDX-License-Identifier: BSD-3-Clause
// Finds the files of this installation from the running program. A build tree and an installed
// prefix have the same layout, so no path is compiled in and both can be moved.
//
//   PREFIX/bin/turnout
//   PREFIX/LIB/libfabric/libturnout-fi.so   in a build tree: lib/libturnout-fi.so
//   PREFIX/LIB/turnout/libibverbs.so.1      the virtual adapter
//   PREFIX/share/turnout/                   profiles/, plot.py
//
// LIB is GNUInstallDirs' CMAKE_INSTALL_LIBDIR. Any thread; nothing is cached.
#pragma once

#include <string>

namespace turnout {

// The running program's folder; empty if /proc cannot be read.
[[nodiscard]] std::string program_folder();
// Files that are the same on every architecture.
[[nodiscard]] std::string share_folder();
// The provider of this installation; empty: there is none beside the program.
[[nodiscard]] std::string provider_file();
// Of the folders of the virtual adapter that a module in `folder` may have, the first that holds
// it; if none does, the one that a build tree has.
[[nodiscard]] std::string adapter_folder(const std::string& folder);

}  // namespace turnout
