// The directory of a fabric: how its processes find each other, and the memory that they share.
//
// The memory is a memfd, so it ends with the last process that has it, however that one ended, and
// no file is left. Each process of the fabric has bound an abstract socket, a name in the kernel
// that ends with it, too; the name says which descriptor of which process is the memory. Who joins
// reads the names in /proc/net/unix and opens /proc/PID/fd/FD. What a name says is checked, since
// any user of the host can bind one: the file must be a memfd of this user's, made for this fabric.
//
// Sources: unix(7), memfd_create(2), proc(5). Any thread. Descriptors are the caller's to close.
// The processes of a fabric share one namespace of processes and one of the network.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace turnout::hca {

struct Member {
  std::uint64_t pid_namespace;  // in which pid means something
  pid_t pid;
  int fd;
};

[[nodiscard]] std::uint64_t own_pid_namespace() noexcept;

// Who says to have the memory of this fabric. Errors: system.
[[nodiscard]] Result<std::vector<Member>> list_members(const std::string& fabric);

// The memory that this member has; -1 and errno: ENOENT it is not there or not this fabric's,
// EACCES the process refuses to be looked at (as does one that is ending).
[[nodiscard]] int open_memory(const std::string& fabric, const Member& member) noexcept;

// New memory of `size` bytes, zero, which nobody can make smaller or larger; -1 and errno.
[[nodiscard]] int create_memory(const std::string& fabric, std::uint64_t size) noexcept;

// A name for this process, which has the memory at `fd`, until the result is closed by it and by
// all processes that inherited it; -1 and errno.
[[nodiscard]] int announce(const std::string& fabric, int fd) noexcept;

// Excludes all others who join, until the result is closed. Waits ten seconds at most; -1 and
// errno.
[[nodiscard]] int lock_directory(const std::string& fabric) noexcept;

}  // namespace turnout::hca
