// SPDX-License-Identifier: BSD-3-Clause
#include "hca/shim/counters.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstring>

namespace turnout::shim {
namespace {

constexpr char kPort[] = "/ports/1/";

bool write_value(const char* path, std::uint64_t value) noexcept {
  char text[24];
  char* const newline = std::to_chars(text, text + sizeof text - 1, value).ptr;
  *newline = '\n';
  const auto size = static_cast<std::size_t>(newline + 1 - text);
  const auto fd = static_cast<int>(syscall(
      SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0444));
  if (fd < 0) return false;
  const bool whole = write(fd, text, size) == static_cast<ssize_t>(size);
  close(fd);
  return whole;
}

}  // namespace

void renew_counter(const char* place) noexcept {
  const char* name = std::strstr(place, kPort);
  if (name == nullptr || std::strstr(name, "counters/") == nullptr) return;
  name += sizeof kPort - 1;
  const int before = errno;
  using Value = bool(const char*, std::uint64_t*);
  auto* const value_of = reinterpret_cast<Value*>(dlsym(RTLD_DEFAULT, "turnout_counter"));
  std::uint64_t value = 0;
  // Written beside it and put in its place whole; the thread's number tells two that do so.
  char part[PATH_MAX];
  const std::size_t size = std::strlen(place);
  if (value_of != nullptr && size + 16 < sizeof part && value_of(name, &value)) {
    std::memcpy(part, place, size);
    part[size] = '.';
    *std::to_chars(part + size + 1, part + sizeof part - 1, syscall(SYS_gettid)).ptr = '\0';
    if (!write_value(part, value) || syscall(SYS_renameat, AT_FDCWD, part, AT_FDCWD, place) != 0) {
      syscall(SYS_unlinkat, AT_FDCWD, part, 0);
    }
  }
  errno = before;
}

}  // namespace turnout::shim
