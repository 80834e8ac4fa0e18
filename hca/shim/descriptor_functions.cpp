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

// Through this one rdma-core lists the kernel's devices; without it, those of sysfs.
TURNOUT_SHIM(int, socket, (int family, int type, int protocol)) {
  if (family == AF_NETLINK && protocol == NETLINK_RDMA && has_device()) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return call_real<int>(Function::socket, family, type, protocol);
}

}  // extern "C"
