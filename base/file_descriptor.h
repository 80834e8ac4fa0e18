// SPDX-License-Identifier: BSD-3-Clause
// Owned file descriptors, never 0, 1 or 2: in a program that closed its standard streams, the next
// file opened would get one of these numbers, and printed text would end up in it. Any thread.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace turnout {

// The same file under a number of at least 3; -1 with errno when that fails (`fd` is closed then).
[[nodiscard]] inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

// Makes a file this large (ftruncate(2)); false with errno. Where the process may not have such
// files that is EFBIG, and not the signal SIGXFSZ, which would end it.
[[nodiscard]] inline bool set_size(int fd, std::uint64_t size) noexcept {
  if (rlimit most{}; getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size) {
    errno = EFBIG;
    return false;
  }
  return ftruncate(fd, static_cast<off_t>(size)) == 0;
}

// Owns one file descriptor and closes it. Moves, does not copy; any thread, one at a time.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(above_standard(fd)) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace turnout
