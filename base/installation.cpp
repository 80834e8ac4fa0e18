// SPDX-License-Identifier: BSD-3-Clause
#include "base/installation.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace turnout {

namespace fs = std::filesystem;

std::string program_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string() : program.parent_path().string();
}

std::string share_folder() {
  return (fs::path(program_folder()).parent_path() / "share" / "turnout").string();
}

std::string provider_file() {
  const fs::path prefix = fs::path(program_folder()).parent_path();
  std::error_code error;
  for (const char* folder : {"lib", TURNOUT_LIBDIR "/libfabric", "lib/libfabric"}) {
    const fs::path file = prefix / folder / "libturnout-fi.so";
    if (fs::is_regular_file(file, error)) return file.string();
  }
  return {};
}

std::string adapter_folder(const std::string& folder) {
  // Beside the provider of a build tree, of an installation; beside programs of either.
  for (const char* relative :
       {"/turnout", "/../turnout", "/../" TURNOUT_LIBDIR "/turnout", "/../lib/turnout"}) {
    std::string candidate = folder + relative;
    if (::access((candidate + "/libibverbs.so.1").c_str(), R_OK) == 0) return candidate;
  }
  return folder + "/turnout";
}

}  // namespace turnout
