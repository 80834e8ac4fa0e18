// SPDX-License-Identifier: BSD-3-Clause
// What opens files and folders.
#include <dirent.h>
#include <fcntl.h>

#include <cstdarg>
#include <cstdio>

#include "hca/shim/real.h"

using namespace turnout::shim;

namespace {

// Whether the call has a third argument.
bool has_mode(int flags) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

template <class... Mode>
int open_in(Function function, const char* path, int flags, Mode... mode) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<int>(function, p, flags, mode...); });
}

template <class... Mode>
int open_at(Function function, int folder, const char* path, int flags, Mode... mode) noexcept {
  return redirect(folder, path, [=](const char* p) {
    return call_real<int>(function, folder, p, flags, mode...);
  });
}

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

int scan(Function function, const char* path, dirent*** list, Filter filter, Order order) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<int>(function, p, list, filter, order); });
}

int scan_at(Function function, int folder, const char* path, dirent*** list, Filter filter,
            Order order) noexcept {
  return redirect(folder, path, [=](const char* p) {
    return call_real<int>(function, folder, p, list, filter, order);
  });
}

FILE* open_stream(Function function, const char* path, const char* mode) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<FILE*>(function, p, mode); });
}

FILE* reopen_stream(Function function, const char* path, const char* mode, FILE* stream) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<FILE*>(function, p, mode, stream); });
}

}  // namespace

extern "C" {

// The mode is an int to callers with a variable number of arguments.
#define TURNOUT_SHIM_OPEN(name)                                            \
  int shim_##name(const char* path, int flags, ...) TURNOUT_SHIM(#name);   \
  int shim_##name(const char* path, int flags, ...) {                      \
    if (!has_mode(flags)) return open_in(Function::name, path, flags, 0u); \
    va_list rest;                                                          \
    va_start(rest, flags);                                                 \
    const mode_t mode = va_arg(rest, mode_t);                              \
    va_end(rest);                                                          \
    return open_in(Function::name, path, flags, mode);                     \
  }
TURNOUT_SHIM_OPEN(open)
TURNOUT_SHIM_OPEN(open64)

#define TURNOUT_SHIM_OPENAT(name)                                                    \
  int shim_##name(int folder, const char* path, int flags, ...) TURNOUT_SHIM(#name); \
  int shim_##name(int folder, const char* path, int flags, ...) {                    \
    if (!has_mode(flags)) return open_at(Function::name, folder, path, flags, 0u);   \
    va_list rest;                                                                    \
    va_start(rest, flags);                                                           \
    const mode_t mode = va_arg(rest, mode_t);                                        \
    va_end(rest);                                                                    \
    return open_at(Function::name, folder, path, flags, mode);                       \
  }
TURNOUT_SHIM_OPENAT(openat)
TURNOUT_SHIM_OPENAT(openat64)

int shim_open_2(const char* path, int flags) TURNOUT_SHIM("__open_2");
int shim_open_2(const char* path, int flags) {
  return open_in(Function::__open_2, path, flags);
}
int shim_open64_2(const char* path, int flags) TURNOUT_SHIM("__open64_2");
int shim_open64_2(const char* path, int flags) {
  return open_in(Function::__open64_2, path, flags);
}
int shim_openat_2(int folder, const char* path, int flags) TURNOUT_SHIM("__openat_2");
int shim_openat_2(int folder, const char* path, int flags) {
  return open_at(Function::__openat_2, folder, path, flags);
}
int shim_openat64_2(int folder, const char* path, int flags) TURNOUT_SHIM("__openat64_2");
int shim_openat64_2(int folder, const char* path, int flags) {
  return open_at(Function::__openat64_2, folder, path, flags);
}

int shim_creat(const char* path, mode_t mode) TURNOUT_SHIM("creat");
int shim_creat(const char* path, mode_t mode) {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<int>(Function::creat, p, mode); });
}
int shim_creat64(const char* path, mode_t mode) TURNOUT_SHIM("creat64");
int shim_creat64(const char* path, mode_t mode) {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<int>(Function::creat64, p, mode); });
}

FILE* shim_fopen(const char* path, const char* mode) TURNOUT_SHIM("fopen");
FILE* shim_fopen(const char* path, const char* mode) {
  return open_stream(Function::fopen, path, mode);
}
FILE* shim_fopen64(const char* path, const char* mode) TURNOUT_SHIM("fopen64");
FILE* shim_fopen64(const char* path, const char* mode) {
  return open_stream(Function::fopen64, path, mode);
}
FILE* shim_freopen(const char* path, const char* mode, FILE* stream) TURNOUT_SHIM("freopen");
FILE* shim_freopen(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(Function::freopen, path, mode, stream);
}
FILE* shim_freopen64(const char* path, const char* mode, FILE* stream) TURNOUT_SHIM("freopen64");
FILE* shim_freopen64(const char* path, const char* mode, FILE* stream) {
  return reopen_stream(Function::freopen64, path, mode, stream);
}

DIR* shim_opendir(const char* path) TURNOUT_SHIM("opendir");
DIR* shim_opendir(const char* path) {
  return redirect(AT_FDCWD, path,
                  [](const char* p) { return call_real<DIR*>(Function::opendir, p); });
}

// The C library's own scandir() does not come by opendir() above. dirent and dirent64 are one.
int shim_scandir(const char* path, dirent*** list, Filter filter, Order order)
    TURNOUT_SHIM("scandir");
int shim_scandir(const char* path, dirent*** list, Filter filter, Order order) {
  return scan(Function::scandir, path, list, filter, order);
}
int shim_scandir64(const char* path, dirent*** list, Filter filter, Order order)
    TURNOUT_SHIM("scandir64");
int shim_scandir64(const char* path, dirent*** list, Filter filter, Order order) {
  return scan(Function::scandir64, path, list, filter, order);
}
int shim_scandirat(int folder, const char* path, dirent*** list, Filter filter, Order order)
    TURNOUT_SHIM("scandirat");
int shim_scandirat(int folder, const char* path, dirent*** list, Filter filter, Order order) {
  return scan_at(Function::scandirat, folder, path, list, filter, order);
}
int shim_scandirat64(int folder, const char* path, dirent*** list, Filter filter, Order order)
    TURNOUT_SHIM("scandirat64");
int shim_scandirat64(int folder, const char* path, dirent*** list, Filter filter, Order order) {
  return scan_at(Function::scandirat64, folder, path, list, filter, order);
}

}  // extern "C"
