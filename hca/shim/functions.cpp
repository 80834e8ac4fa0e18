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

// The mode is an int to callers with a variable number of arguments.
#define TURNOUT_SHIM_OPEN(name)                                 \
  TURNOUT_SHIM(int, name, (const char* path, int flags, ...)) { \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    const mode_t mode = mode_of(flags, rest);                   \
    va_end(rest);                                               \
    return call_path<int>(Function::name, path, flags, mode);   \
  }
TURNOUT_SHIM_OPEN(open)
TURNOUT_SHIM_OPEN(open64)

#define TURNOUT_SHIM_OPENAT(name)                                           \
  TURNOUT_SHIM(int, name, (int folder, const char* path, int flags, ...)) { \
    va_list rest;                                                           \
    va_start(rest, flags);                                                  \
    const mode_t mode = mode_of(flags, rest);                               \
    va_end(rest);                                                           \
    return call_path_at<int>(Function::name, folder, path, flags, mode);    \
  }
TURNOUT_SHIM_OPENAT(openat)
TURNOUT_SHIM_OPENAT(openat64)

// The C library has these for old programs only, where dlsym() does not find them.
#define TURNOUT_SHIM_XSTAT(name, function)                                            \
  TURNOUT_SHIM(int, name, (int version, const char* path, struct stat* to)) {         \
    return known_layout(version) ? call_path<int>(Function::function, path, to) : -1; \
  }
TURNOUT_SHIM_XSTAT(__xstat, stat)
TURNOUT_SHIM_XSTAT(__xstat64, stat64)
TURNOUT_SHIM_XSTAT(__lxstat, lstat)
TURNOUT_SHIM_XSTAT(__lxstat64, lstat64)

#define TURNOUT_SHIM_XSTATAT(name, function)                                                      \
  TURNOUT_SHIM(int, name,                                                                         \
               (int version, int folder, const char* path, struct stat* to, int flags)) {         \
    return known_layout(version) ? call_path_at<int>(Function::function, folder, path, to, flags) \
                                 : -1;                                                            \
  }
TURNOUT_SHIM_XSTATAT(__fxstatat, fstatat)
TURNOUT_SHIM_XSTATAT(__fxstatat64, fstatat64)

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
