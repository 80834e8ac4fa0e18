// SPDX-License-Identifier: BSD-3-Clause
// The directory of a fabric: how its processes find each other and their shared memory.
//
// The memory is a memfd, so it disappears with the last process that has it open, and leaves no
// file. Each process binds an abstract socket, whose name disappears with the process; the name
// gives the process and the descriptor of the memory. A joining process reads the names in
// /proc/net/unix and opens /proc/PID/fd/FD. Any user of the host can bind a name, so it is
// verified: the file must be a memfd of this user, created for this fabric. If that cannot be
// checked, the name counts only if a process of this user listens on it, so other users' names
// cannot block a fabric.
//
// Sources: unix(7) (abstract sockets, SO_PEERCRED), memfd_create(2), proc(5); L. Lamport, "A New
// Solution of Dijkstra's Concurrent Programming Problem", CACM 17(8), 1974. Any thread. The
// processes of a fabric share one PID namespace and one network namespace.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace turnout::hca {

struct Member {
  std::uint64_t pid_namespace;  // in which pid means something
  pid_t pid;
  int fd;
  std::string name;  // of its socket
};

[[nodiscard]] std::uint64_t own_pid_namespace() noexcept;

// Who says to have the memory of this fabric. Errors: system.
[[nodiscard]] Result<std::vector<Member>> list_members(const std::string& fabric);

// The memory that this member has; none and errno: ENOENT it is not there or not this fabric's,
// EACCES the process refuses to be looked at (as does one that is ending).
[[nodiscard]] Descriptor open_memory(const std::string& fabric, const Member& member) noexcept;

// New memory of `size` bytes, zero, which nobody can make smaller or larger; none and errno.
[[nodiscard]] Descriptor create_memory(const std::string& fabric, std::uint64_t size) noexcept;

// A name for this process, which has the memory at `fd`, until the result is closed by it and by
// all processes that inherited it; none and errno.
[[nodiscard]] Descriptor announce(const std::string& fabric, int fd) noexcept;

// A process of this user has bound this name, and lives. Each call takes a place among those that
// wait to be accepted at the socket, for as long as that has its name: not for a question that is
// asked all the time.
[[nodiscard]] bool is_of_this_user(const std::string& name) noexcept;

// Excludes all others who join, until the result is closed. Who comes first is first. Waits ten
// seconds at most. Errors: system, with the process that has it.
[[nodiscard]] Result<Descriptor> lock_directory(const std::string& fabric);

}  // namespace turnout::hca
