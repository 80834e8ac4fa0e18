// SPDX-License-Identifier: BSD-3-Clause
#include "core/types/mpi_library.h"

#include <dlfcn.h>

#include <vector>

namespace turnout {

std::string mpi_library() {
  // Not MPI_Get_library_version: a tool that counts the program's calls would count this one.
  using Ask = int (*)(char* version, int* length);
  const auto ask = reinterpret_cast<Ask>(::dlsym(RTLD_DEFAULT, "PMPI_Get_library_version"));
  if (ask == nullptr) return {};
  std::vector<char> version(16384);  // MPI_MAX_LIBRARY_VERSION_STRING: MPICH 8192, Open MPI 256
  int length = 0;
  if (ask(version.data(), &length) != 0) return {};
  version.back() = '\0';
  std::string line;
  for (const char* c = version.data(); *c != '\0' && *c != '\n'; ++c) {
    const bool blank = *c == ' ' || *c == '\t';
    if (!blank || (!line.empty() && line.back() != ' ')) line += blank ? ' ' : *c;
  }
  return line;
}

}  // namespace turnout
