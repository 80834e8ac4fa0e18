// SPDX-License-Identifier: BSD-3-Clause
// The functions that take descriptors (functions.def): the emulated device's go to it.
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "hca/shim/mlx5.h"
#include "hca/shim/real.h"

using namespace turnout::shim;

#define CALLER __builtin_return_address(0)

namespace {

// `to`, which `caller` has made a duplicate of `from`, or -1.
int duplicated(int from, int to, const void* caller) noexcept {
  if (to != from && to >= 0 && (mark_of(from) | mark_of(to)) != 0 && !is_device_code(caller)) {
    duplicate_device_file(from, to);
  }
  return to;
}

}  // namespace

extern "C" {

TURNOUT_SHIM(ssize_t, read, (int fd, void* bytes, size_t count)) {
  if (goes_to_device(fd, CALLER)) return read_device_file(fd, bytes, count);
  return call_real<ssize_t>(Function::read, fd, bytes, count);
}

TURNOUT_SHIM(ssize_t, __read_chk, (int fd, void* bytes, size_t count, size_t there)) {
  // The C library ends the process of one that asks for more than there is space for.
  if (goes_to_device(fd, CALLER) && count <= there) return read_device_file(fd, bytes, count);
  return call_real<ssize_t>(Function::__read_chk, fd, bytes, count, there);
}

TURNOUT_SHIM(ssize_t, write, (int fd, const void* bytes, size_t count)) {
  if (goes_to_device(fd, CALLER)) return write_device_file(fd, bytes, count);
  return call_real<ssize_t>(Function::write, fd, bytes, count);
}

TURNOUT_SHIM(int, ioctl, (int fd, unsigned long request, ...)) {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (goes_to_device(fd, CALLER)) return control_device_file(fd, request, argument);
  return call_real<int>(Function::ioctl, fd, request, argument);
}

TURNOUT_SHIM(int, close, (int fd)) {
  if (goes_to_device(fd, CALLER)) return close_device_file(fd);
  return call_real<int>(Function::close, fd);
}

TURNOUT_SHIM(int, dup, (int fd)) {
  return duplicated(fd, call_real<int>(Function::dup, fd), CALLER);
}

TURNOUT_SHIM(int, dup2, (int fd, int to)) {
  return duplicated(fd, call_real<int>(Function::dup2, fd, to), CALLER);
}

TURNOUT_SHIM(int, dup3, (int fd, int to, int flags)) {
  return duplicated(fd, call_real<int>(Function::dup3, fd, to, flags), CALLER);
}

// What is behind the command, an int, a pointer or nothing, is handed on as it came.
#define TURNOUT_SHIM_FCNTL(name)                                              \
  TURNOUT_SHIM(int, name, (int fd, int command, ...)) {                       \
    va_list rest;                                                             \
    va_start(rest, command);                                                  \
    void* const argument = va_arg(rest, void*);                               \
    va_end(rest);                                                             \
    const int result = call_real<int>(Function::name, fd, command, argument); \
    const bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC; \
    return duplicates ? duplicated(fd, result, CALLER) : result;              \
  }
TURNOUT_SHIM_FCNTL(fcntl)
TURNOUT_SHIM_FCNTL(fcntl64)

// Through this one rdma-core lists the kernel's devices; without it, those of sysfs.
TURNOUT_SHIM(int, socket, (int family, int type, int protocol)) {
  if (family == AF_NETLINK && protocol == NETLINK_RDMA && has_device()) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return call_real<int>(Function::socket, family, type, protocol);
}

}  // extern "C"
