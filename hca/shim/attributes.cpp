// SPDX-License-Identifier: BSD-3-Clause
// What asks about files: stat() and its kin, access, extended attributes.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "hca/shim/real.h"

using namespace turnout::shim;

namespace {

template <class Buffer>
int ask(Function function, const char* path, Buffer* to) noexcept {
  return redirect(AT_FDCWD, path, [=](const char* p) { return call_real<int>(function, p, to); });
}

int ask_at(Function function, int folder, const char* path, struct stat* to, int flags) noexcept {
  return redirect(folder, path,
                  [=](const char* p) { return call_real<int>(function, folder, p, to, flags); });
}

int may(Function function, const char* path, int mode) noexcept {
  return redirect(AT_FDCWD, path, [=](const char* p) { return call_real<int>(function, p, mode); });
}

ssize_t attribute(Function function, const char* path, const char* name, void* to,
                  std::size_t space) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<ssize_t>(function, p, name, to, space); });
}

ssize_t attributes(Function function, const char* path, char* to, std::size_t space) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<ssize_t>(function, p, to, space); });
}

// The layouts that __xstat() was asked for: the kernel's and the C library's are one on x86-64.
bool known_layout(int version) noexcept {
  if (version == 0 || version == 1) return true;
  errno = EINVAL;
  return false;
}

}  // namespace

extern "C" {

// struct stat and struct stat64 are one on x86-64.
#define TURNOUT_SHIM_STAT(name)                                           \
  int shim_##name(const char* path, struct stat* to) TURNOUT_SHIM(#name); \
  int shim_##name(const char* path, struct stat* to) {                    \
    return ask(Function::name, path, to);                                 \
  }
TURNOUT_SHIM_STAT(stat)
TURNOUT_SHIM_STAT(stat64)
TURNOUT_SHIM_STAT(lstat)
TURNOUT_SHIM_STAT(lstat64)

#define TURNOUT_SHIM_STATFS(name)                                           \
  int shim_##name(const char* path, struct statfs* to) TURNOUT_SHIM(#name); \
  int shim_##name(const char* path, struct statfs* to) {                    \
    return ask(Function::name, path, to);                                   \
  }
TURNOUT_SHIM_STATFS(statfs)
TURNOUT_SHIM_STATFS(statfs64)

#define TURNOUT_SHIM_STATAT(name)                                                                \
  int shim_##name(int folder, const char* path, struct stat* to, int flags) TURNOUT_SHIM(#name); \
  int shim_##name(int folder, const char* path, struct stat* to, int flags) {                    \
    return ask_at(Function::name, folder, path, to, flags);                                      \
  }
TURNOUT_SHIM_STATAT(fstatat)
TURNOUT_SHIM_STATAT(fstatat64)

// The C library has these for old programs only, where dlsym() does not find them.
#define TURNOUT_SHIM_XSTAT(name, function)                                             \
  int shim_##name(int version, const char* path, struct stat* to) TURNOUT_SHIM(#name); \
  int shim_##name(int version, const char* path, struct stat* to) {                    \
    return known_layout(version) ? ask(Function::function, path, to) : -1;             \
  }
TURNOUT_SHIM_XSTAT(__xstat, stat)
TURNOUT_SHIM_XSTAT(__xstat64, stat64)
TURNOUT_SHIM_XSTAT(__lxstat, lstat)
TURNOUT_SHIM_XSTAT(__lxstat64, lstat64)

#define TURNOUT_SHIM_XSTATAT(name, function)                                                 \
  int shim_##name(int version, int folder, const char* path, struct stat* to, int flags)     \
      TURNOUT_SHIM(#name);                                                                   \
  int shim_##name(int version, int folder, const char* path, struct stat* to, int flags) {   \
    return known_layout(version) ? ask_at(Function::function, folder, path, to, flags) : -1; \
  }
TURNOUT_SHIM_XSTATAT(__fxstatat, fstatat)
TURNOUT_SHIM_XSTATAT(__fxstatat64, fstatat64)

int shim_statx(int folder, const char* path, int flags, unsigned mask, struct statx* to)
    TURNOUT_SHIM("statx");
int shim_statx(int folder, const char* path, int flags, unsigned mask, struct statx* to) {
  return redirect(folder, path, [=](const char* p) {
    return call_real<int>(Function::statx, folder, p, flags, mask, to);
  });
}

#define TURNOUT_SHIM_ACCESS(name)                                  \
  int shim_##name(const char* path, int mode) TURNOUT_SHIM(#name); \
  int shim_##name(const char* path, int mode) {                    \
    return may(Function::name, path, mode);                        \
  }
TURNOUT_SHIM_ACCESS(access)
TURNOUT_SHIM_ACCESS(euidaccess)
TURNOUT_SHIM_ACCESS(eaccess)

int shim_faccessat(int folder, const char* path, int mode, int flags) TURNOUT_SHIM("faccessat");
int shim_faccessat(int folder, const char* path, int mode, int flags) {
  return redirect(folder, path, [=](const char* p) {
    return call_real<int>(Function::faccessat, folder, p, mode, flags);
  });
}

// `ls -l` complains of files that it has found and whose attributes it cannot ask for.
#define TURNOUT_SHIM_GETXATTR(name)                                                     \
  ssize_t shim_##name(const char* path, const char* key, void* to, std::size_t space)   \
      TURNOUT_SHIM(#name);                                                              \
  ssize_t shim_##name(const char* path, const char* key, void* to, std::size_t space) { \
    return attribute(Function::name, path, key, to, space);                             \
  }
TURNOUT_SHIM_GETXATTR(getxattr)
TURNOUT_SHIM_GETXATTR(lgetxattr)

#define TURNOUT_SHIM_LISTXATTR(name)                                                      \
  ssize_t shim_##name(const char* path, char* to, std::size_t space) TURNOUT_SHIM(#name); \
  ssize_t shim_##name(const char* path, char* to, std::size_t space) {                    \
    return attributes(Function::name, path, to, space);                                   \
  }
TURNOUT_SHIM_LISTXATTR(listxattr)
TURNOUT_SHIM_LISTXATTR(llistxattr)

}  // extern "C"
