// SPDX-License-Identifier: BSD-3-Clause
// The functions that the shim stands before (functions.def).
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "hca/shim/mlx5.h"
#include "hca/shim/real.h"

using namespace turnout::shim;

namespace {

// The argument behind the flags, where the call has one.
mode_t mode_of(int flags, va_list rest) noexcept {
  const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return has_mode ? va_arg(rest, mode_t) : 0;
}

// The layouts that __xstat() was asked for: the kernel's and the C library's are one on x86-64.
bool known_layout(int version) noexcept {
  if (version == 0 || version == 1) return true;
  errno = EINVAL;
  return false;
}

// open(2), where the place may be the device's. What must be a folder or a new file is the system's
// to refuse.
template <class Open>
int open_place(int folder, const char* path, int flags, const Open& open) noexcept {
  const bool any_file = (flags & (O_PATH | O_DIRECTORY | O_EXCL)) == 0;
  return redirect(folder, path, [=](const char* p) {
    const int number = any_file ? device_number(path, p) : -1;
    return number >= 0 ? open_device(number, flags) : open(p);
  });
}

template <class... Mode>
int open_path(Function function, const char* path, int flags, Mode... mode) noexcept {
  return open_place(AT_FDCWD, path, flags,
                    [=](const char* p) { return call_real<int>(function, p, flags, mode...); });
}

template <class... Mode>
int open_path_at(Function function, int folder, const char* path, int flags,
                 Mode... mode) noexcept {
  return open_place(folder, path, flags, [=](const char* p) {
    return call_real<int>(function, folder, p, flags, mode...);
  });
}

int stat_path(Function function, const char* path, struct stat* to) noexcept {
  return redirect(AT_FDCWD, path, [=](const char* p) {
    const int result = call_real<int>(function, p, to);
    if (result == 0) show_device(path, p, to);
    return result;
  });
}

// The arguments of the call are `folder`, the path and `rest`.
template <class To, class... Rest>
int stat_path_at(Function function, int folder, const char* path, int flags, To* to,
                 Rest... rest) noexcept {
  return redirect(folder, path, [=](const char* p) {
    const int result = call_real<int>(function, folder, p, rest...);
    if (result != 0) return result;
    const bool of_folder = (flags & AT_EMPTY_PATH) != 0 && (p == nullptr || *p == '\0');
    if (of_folder) {
      show_device(folder, to);
    } else {
      show_device(path, p, to);
    }
    return result;
  });
}

int stat_fd(Function function, int fd, struct stat* to) noexcept {
  const int result = call_real<int>(function, fd, to);
  if (result == 0) show_device(fd, to);
  return result;
}

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

}  // namespace

extern "C" {

#define SHIM_PATH(result, name, parameters, ...)           \
  TURNOUT_SHIM(result, name, parameters) {                 \
    return call_path<result>(Function::name, __VA_ARGS__); \
  }
#define SHIM_AT(result, name, parameters, ...)                \
  TURNOUT_SHIM(result, name, parameters) {                    \
    return call_path_at<result>(Function::name, __VA_ARGS__); \
  }
#define SHIM_OTHER(name)
#include "hca/shim/functions.def"

#define TURNOUT_SHIM_OPEN(name)                                 \
  TURNOUT_SHIM(int, name, (const char* path, int flags, ...)) { \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    const mode_t mode = mode_of(flags, rest);                   \
    va_end(rest);                                               \
    return open_path(Function::name, path, flags, mode);        \
  }
TURNOUT_SHIM_OPEN(open)
TURNOUT_SHIM_OPEN(open64)

#define TURNOUT_SHIM_OPENAT(name)                                           \
  TURNOUT_SHIM(int, name, (int folder, const char* path, int flags, ...)) { \
    va_list rest;                                                           \
    va_start(rest, flags);                                                  \
    const mode_t mode = mode_of(flags, rest);                               \
    va_end(rest);                                                           \
    return open_path_at(Function::name, folder, path, flags, mode);         \
  }
TURNOUT_SHIM_OPENAT(openat)
TURNOUT_SHIM_OPENAT(openat64)

#define TURNOUT_SHIM_OPEN_2(name, name_at)                                \
  TURNOUT_SHIM(int, name, (const char* path, int flags)) {                \
    return open_path(Function::name, path, flags);                        \
  }                                                                       \
  TURNOUT_SHIM(int, name_at, (int folder, const char* path, int flags)) { \
    return open_path_at(Function::name_at, folder, path, flags);          \
  }
TURNOUT_SHIM_OPEN_2(__open_2, __openat_2)
TURNOUT_SHIM_OPEN_2(__open64_2, __openat64_2)

#define TURNOUT_SHIM_STAT(name)                                  \
  TURNOUT_SHIM(int, name, (const char* path, struct stat* to)) { \
    return stat_path(Function::name, path, to);                  \
  }
TURNOUT_SHIM_STAT(stat)
TURNOUT_SHIM_STAT(stat64)
TURNOUT_SHIM_STAT(lstat)
TURNOUT_SHIM_STAT(lstat64)

#define TURNOUT_SHIM_STATAT(name)                                                       \
  TURNOUT_SHIM(int, name, (int folder, const char* path, struct stat* to, int flags)) { \
    return stat_path_at(Function::name, folder, path, flags, to, to, flags);            \
  }
TURNOUT_SHIM_STATAT(fstatat)
TURNOUT_SHIM_STATAT(fstatat64)
TURNOUT_SHIM(int, statx,
             (int folder, const char* path, int flags, unsigned mask, struct statx* to)) {
  return stat_path_at(Function::statx, folder, path, flags, to, flags, mask, to);
}

#define TURNOUT_SHIM_FSTAT(name)                       \
  TURNOUT_SHIM(int, name, (int fd, struct stat* to)) { \
    return stat_fd(Function::name, fd, to);            \
  }
TURNOUT_SHIM_FSTAT(fstat)
TURNOUT_SHIM_FSTAT(fstat64)

// The C library has these for old programs only, where dlsym() does not find them.
#define TURNOUT_SHIM_XSTAT(name, function)                                       \
  TURNOUT_SHIM(int, name, (int version, const char* path, struct stat* to)) {    \
    return known_layout(version) ? stat_path(Function::function, path, to) : -1; \
  }
TURNOUT_SHIM_XSTAT(__xstat, stat)
TURNOUT_SHIM_XSTAT(__xstat64, stat64)
TURNOUT_SHIM_XSTAT(__lxstat, lstat)
TURNOUT_SHIM_XSTAT(__lxstat64, lstat64)

#define TURNOUT_SHIM_XSTATAT(name, function)                                              \
  TURNOUT_SHIM(int, name,                                                                 \
               (int version, int folder, const char* path, struct stat* to, int flags)) { \
    return known_layout(version)                                                          \
               ? stat_path_at(Function::function, folder, path, flags, to, to, flags)     \
               : -1;                                                                      \
  }
TURNOUT_SHIM_XSTATAT(__fxstatat, fstatat)
TURNOUT_SHIM_XSTATAT(__fxstatat64, fstatat64)

#define TURNOUT_SHIM_FXSTAT(name, function)                                  \
  TURNOUT_SHIM(int, name, (int version, int fd, struct stat* to)) {          \
    return known_layout(version) ? stat_fd(Function::function, fd, to) : -1; \
  }
TURNOUT_SHIM_FXSTAT(__fxstat, fstat)
TURNOUT_SHIM_FXSTAT(__fxstat64, fstat64)

TURNOUT_SHIM(char*, realpath, (const char* path, char* to)) {
  return shown(call_path<char*>(Function::realpath, path, to));
}
TURNOUT_SHIM(char*, __realpath_chk, (const char* path, char* to, size_t there)) {
  return shown(call_path<char*>(Function::__realpath_chk, path, to, there));
}
TURNOUT_SHIM(char*, canonicalize_file_name, (const char* path)) {
  return shown(call_path<char*>(Function::canonicalize_file_name, path));
}
TURNOUT_SHIM(char*, getcwd, (char* to, size_t space)) {
  return shown(call_real<char*>(Function::getcwd, to, space));
}
TURNOUT_SHIM(char*, __getcwd_chk, (char* to, size_t space, size_t there)) {
  return shown(call_real<char*>(Function::__getcwd_chk, to, space, there));
}

}  // extern "C"
