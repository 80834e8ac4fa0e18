// SPDX-License-Identifier: BSD-3-Clause
// The descriptors of the emulated mlx5 device (hca/mlx5/device_calls.h), whose library
// TURNOUT_SHIM_MLX5 names: the first open() of /dev/infiniband/uverbsN loads it.
//
// The device says which descriptors are its own; calls with them go to it, all others cost one
// load. What the device itself calls while it is called goes to the system. What the shim does not
// see leaves a mark behind: close_range() over a descriptor of the device, and closing by system
// call. Duplicates of a descriptor are the device's, too; those that are passed on to another
// process are the kernel's memory files. In the child of a fork() a descriptor that was there
// before is closed without ending what it stands for, which is its parent's; so it is in the child
// of a vfork(), which has its parent's memory.
//
// Nothing here is owned by the caller. Any thread; signal handlers, but for open_device().
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hca/mlx5/device_calls.h"

namespace turnout::shim {

// Marks of a descriptor.
inline constexpr unsigned kDevice = 1;       // the device's
inline constexpr unsigned kCommandFile = 2;  // it says that it is a character device
inline constexpr unsigned kInherited = 4;    // of the process that forked

inline constexpr std::size_t kMarkedFds = 65536;  // the device has no descriptor from here on
extern std::atomic<std::uint8_t> marks[kMarkedFds];
extern std::atomic<bool> active;
[[nodiscard]] inline unsigned mark_of(int fd) noexcept {
  const auto index = static_cast<unsigned>(fd);
  return index < kMarkedFds ? marks[index].load(std::memory_order_relaxed) : 0;
}
// The code of the device's library, or the shim's, which calls it: a function that the library ends
// with a call of another returns to there.
[[nodiscard]] bool is_device_code(const void* address) noexcept;
// A call with this descriptor, from `caller`, is the device's to answer.
[[nodiscard]] inline bool goes_to_device(int fd, const void* caller) noexcept {
  return mark_of(fd) != 0 && !is_device_code(caller);
}

// Copies what the environment says, and prepares for fork() if there is a device.
void read_device() noexcept;
// The environment names a device; it may not have been opened yet.
[[nodiscard]] inline bool has_device() noexcept {
  return active.load(std::memory_order_relaxed);
}

// A command file of uverbsN, or -1 with errno: ENODEV, and the reason in a line on standard error,
// when the device cannot be had; EMFILE, when its descriptor would be past the last.
[[nodiscard]] int open_device(int number, int flags) noexcept;
// For descriptors that go to the device.
[[nodiscard]] ssize_t read_device_file(int fd, void* bytes, std::size_t count) noexcept;
[[nodiscard]] ssize_t write_device_file(int fd, const void* bytes, std::size_t count) noexcept;
[[nodiscard]] int control_device_file(int fd, unsigned long request, void* argument) noexcept;
[[nodiscard]] int close_device_file(int fd) noexcept;
// `to` has become a duplicate of `from`; one of them is marked.
void duplicate_device_file(int from, int to) noexcept;

// What stat(2) and statx(2) say of a path in the tree or of a descriptor, where it is a command
// file: 231:(192 + N), what the kernel gives uverbsN. path: what was asked for; place: by what.
void show_device(const char* path, const char* place, struct stat* of) noexcept;
void show_device(const char* path, const char* place, struct statx* of) noexcept;
void show_device(int fd, struct stat* of) noexcept;
void show_device(int fd, struct statx* of) noexcept;
// N where open() of this place is the device's to answer, else -1.
[[nodiscard]] int device_number(const char* path, const char* place) noexcept;

}  // namespace turnout::shim
