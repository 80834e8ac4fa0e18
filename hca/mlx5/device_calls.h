// SPDX-License-Identifier: BSD-3-Clause
// What the shim needs of the emulated mlx5 device, which is a library of its own
// (libturnout-mlx5.so): the shim is preloaded everywhere and links nothing, the device is loaded by
// the first process that opens /dev/infiniband/uverbsN.
//
// The functions behave like the system calls of the same name on a descriptor of the device: a
// command file (the one that open() returns), its asynchronous event file, or a completion channel.
// They return -1 with errno on failure. Any thread may call; bus_error() is called from a signal
// handler, synchronously with the store that caused it. Nothing here is owned by the caller.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace turnout::hca {

struct Mlx5DeviceCalls {
  std::uint32_t size;  // of this struct: both sides were built together
  // A new command file. flags: of open(2); only O_CLOEXEC matters.
  int (*open)(int flags);
  ssize_t (*write)(int fd, const void* bytes, std::size_t count);
  ssize_t (*read)(int fd, void* bytes, std::size_t count);
  int (*ioctl)(int fd, unsigned long request, void* argument);
  // Ends what the descriptor stands for, and closes it.
  int (*close)(int fd);
  // dup(2) and the like have made the descriptor `to` what `from` is. Either may be the program's
  // own: what `to` stood for has ended.
  void (*duplicate)(int from, int to);
  // A SIGBUS: true when the fault was a store to a doorbell, which was done, so that the
  // interrupted program goes on behind it; or the first access to a page of the device's memory,
  // which is there now. False: it is the program's own.
  bool (*bus_error)(const siginfo_t* info, void* ucontext);
};

// The one symbol that the library exports. mark(): tells the shim which descriptors are the
// device's (`ours`), and which no longer are. command: it is a command file, so fstat(2) says that
// it is a character device. Null: the device cannot be had; the reason is in the log.
using Mlx5DeviceEntry = const Mlx5DeviceCalls*(void (*mark)(int fd, bool ours, bool command));
inline constexpr char kMlx5DeviceEntry[] = "turnout_mlx5_device";

}  // namespace turnout::hca
