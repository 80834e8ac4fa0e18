// Descriptors that stay clear of 0, 1 and 2: in a program that closed its standard streams the next
// file opened takes their place, and what anybody prints would be written into it. Any thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace turnout {

// The same file under a number of at least 3; -1 with errno when that fails (`fd` is closed then).
[[nodiscard]] inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

}  // namespace turnout
