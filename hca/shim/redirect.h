// SPDX-License-Identifier: BSD-3-Clause
// Where a path that a kernel driver would have is found: in the tree of ordinary files that
// TURNOUT_SHIM_ROOT names.
//
// Ours are /dev/infiniband, /sys/class/infiniband, /sys/class/infiniband_verbs and
// /sys/devices/turnout with what is below them, as far as the system has nothing of that name
// itself: what is really there stays as it is. With an emulated mlx5 device (TURNOUT_SHIM_MLX5) it
// is not seen: rdma-core lists the devices of one folder, the system's or ours. Paths may be
// relative (to the working folder or to an open one) and may have `.` and `..`, which are taken by
// name: a link inside the tree does not change what its `..` means.
//
// Nothing here owns or allocates anything; all of it lies on the caller's stack. Any thread, signal
// handlers, before constructors and in children of threads that forked. errno is kept except for
// the one error: ENAMETOOLONG, when the path in the tree is longer than the system takes.
#pragma once

#include <climits>

namespace turnout::shim {

struct Place {
  char text[PATH_MAX];
};

// Reads the environment once more; until the first call it is read each time.
void read_root() noexcept;

// False for nearly all paths there are, without a system call: place_of() would not change them.
[[nodiscard]] bool may_be_ours(const char* path) noexcept;

// The path to use instead: in `place`, or `path` itself. `folder` is that of the *at() calls. Null
// with errno: the path is ours and too long.
[[nodiscard]] const char* place_of(int folder, const char* path, Place& place) noexcept;

// N of a place that is TREE/dev/infiniband/uverbsN and is there, else -1.
[[nodiscard]] int command_file_number(const char* place) noexcept;

// Turns a path inside the tree into the one that programs know it by, in place; null is let pass.
char* shown(char* path) noexcept;

}  // namespace turnout::shim
