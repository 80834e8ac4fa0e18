// SPDX-License-Identifier: BSD-3-Clause
// The functions that the shim stands before (functions.def). struct stat and struct stat64 are one
// on x86-64, as are dirent and dirent64.
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

// What opens files and folders. The mode is an int to callers with a variable number of arguments.
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

TURNOUT_SHIM_PATH(int, __open_2, (const char* path, int flags), path, flags)
TURNOUT_SHIM_PATH(int, __open64_2, (const char* path, int flags), path, flags)
TURNOUT_SHIM_AT(int, __openat_2, (int folder, const char* path, int flags), folder, path, flags)
TURNOUT_SHIM_AT(int, __openat64_2, (int folder, const char* path, int flags), folder, path, flags)
TURNOUT_SHIM_PATH(int, creat, (const char* path, mode_t mode), path, mode)
TURNOUT_SHIM_PATH(int, creat64, (const char* path, mode_t mode), path, mode)
TURNOUT_SHIM_PATH(FILE*, fopen, (const char* path, const char* mode), path, mode)
TURNOUT_SHIM_PATH(FILE*, fopen64, (const char* path, const char* mode), path, mode)
TURNOUT_SHIM_PATH(FILE*, freopen, (const char* path, const char* mode, FILE* file), path, mode,
                  file)
TURNOUT_SHIM_PATH(FILE*, freopen64, (const char* path, const char* mode, FILE* file), path, mode,
                  file)
TURNOUT_SHIM_PATH(DIR*, opendir, (const char* path), path)
// The C library's own scandir() does not come by opendir() above.
TURNOUT_SHIM_PATH(int, scandir, (const char* path, dirent*** list, Filter filter, Order order),
                  path, list, filter, order)
TURNOUT_SHIM_PATH(int, scandir64, (const char* path, dirent*** list, Filter filter, Order order),
                  path, list, filter, order)
TURNOUT_SHIM_AT(int, scandirat,
                (int folder, const char* path, dirent*** list, Filter filter, Order order), folder,
                path, list, filter, order)
TURNOUT_SHIM_AT(int, scandirat64,
                (int folder, const char* path, dirent*** list, Filter filter, Order order), folder,
                path, list, filter, order)

// What asks about files.
TURNOUT_SHIM_PATH(int, stat, (const char* path, struct stat* to), path, to)
TURNOUT_SHIM_PATH(int, stat64, (const char* path, struct stat* to), path, to)
TURNOUT_SHIM_PATH(int, lstat, (const char* path, struct stat* to), path, to)
TURNOUT_SHIM_PATH(int, lstat64, (const char* path, struct stat* to), path, to)
TURNOUT_SHIM_PATH(int, statfs, (const char* path, struct statfs* to), path, to)
TURNOUT_SHIM_PATH(int, statfs64, (const char* path, struct statfs* to), path, to)
TURNOUT_SHIM_AT(int, fstatat, (int folder, const char* path, struct stat* to, int flags), folder,
                path, to, flags)
TURNOUT_SHIM_AT(int, fstatat64, (int folder, const char* path, struct stat* to, int flags), folder,
                path, to, flags)
TURNOUT_SHIM_AT(int, statx,
                (int folder, const char* path, int flags, unsigned mask, struct statx* to), folder,
                path, flags, mask, to)
TURNOUT_SHIM_PATH(int, access, (const char* path, int mode), path, mode)
TURNOUT_SHIM_PATH(int, euidaccess, (const char* path, int mode), path, mode)
TURNOUT_SHIM_PATH(int, eaccess, (const char* path, int mode), path, mode)
TURNOUT_SHIM_AT(int, faccessat, (int folder, const char* path, int mode, int flags), folder, path,
                mode, flags)

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

// `ls -l` complains of files that it has found and whose attributes it cannot ask for.
TURNOUT_SHIM_PATH(ssize_t, getxattr, (const char* path, const char* key, void* to, size_t space),
                  path, key, to, space)
TURNOUT_SHIM_PATH(ssize_t, lgetxattr, (const char* path, const char* key, void* to, size_t space),
                  path, key, to, space)
TURNOUT_SHIM_PATH(ssize_t, listxattr, (const char* path, char* to, size_t space), path, to, space)
TURNOUT_SHIM_PATH(ssize_t, llistxattr, (const char* path, char* to, size_t space), path, to, space)

// What turns paths into other paths: links, real paths, the working folder.
TURNOUT_SHIM_PATH(ssize_t, readlink, (const char* path, char* to, size_t space), path, to, space)
TURNOUT_SHIM_PATH(ssize_t, __readlink_chk, (const char* path, char* to, size_t space, size_t there),
                  path, to, space, there)
TURNOUT_SHIM_AT(ssize_t, readlinkat, (int folder, const char* path, char* to, size_t space), folder,
                path, to, space)
TURNOUT_SHIM_AT(ssize_t, __readlinkat_chk,
                (int folder, const char* path, char* to, size_t space, size_t there), folder, path,
                to, space, there)
TURNOUT_SHIM_PATH(int, chdir, (const char* path), path)

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
