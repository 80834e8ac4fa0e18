// SPDX-License-Identifier: BSD-3-Clause
// WaitDescriptor: the file descriptor of a queue or a counter that was opened with FI_WAIT_FD, for
// poll(2), select(2) and epoll(7). An eventfd: readable from signal() until clear().
//
// Owned by its object; calls hold what guards that. The program waits for the descriptor without
// any lock, after fi_trywait has said that it may. Source: fi_poll(3), fi_cq(3), eventfd(2).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>

#include "base/file_descriptor.h"

namespace turnout::provider {

class WaitDescriptor {
 public:
  // 0, or -FI_E*: -FI_ENOSYS for a kind of waiting that is not offered. `made` is null where the
  // program waits in calls of ours, or not at all.
  [[nodiscard]] static int make(fi_wait_obj wait, std::unique_ptr<WaitDescriptor>& made) {
    switch (wait) {
      case FI_WAIT_NONE:
      case FI_WAIT_UNSPEC:
      case FI_WAIT_YIELD:
        return 0;
      case FI_WAIT_FD:
        made.reset(new WaitDescriptor);
        return made->fd_ ? 0 : -errno;
      default:
        return -FI_ENOSYS;
    }
  }
  WaitDescriptor(const WaitDescriptor&) = delete;
  WaitDescriptor& operator=(const WaitDescriptor&) = delete;

  void signal() noexcept {
    const std::uint64_t one = 1;
    if (!signalled_) signalled_ = write(fd_.get(), &one, sizeof one) == sizeof one;
  }
  void clear() noexcept {
    std::uint64_t count = 0;
    // Empty: the program has read it itself.
    if (signalled_)
      signalled_ = read(fd_.get(), &count, sizeof count) != sizeof count && errno != EAGAIN;
  }
  // fi_control of an object with this descriptor, or without one.
  [[nodiscard]] static int control(const WaitDescriptor* wait, int command, void* argument) {
    if (command != FI_GETWAIT) return -FI_ENOSYS;
    if (wait == nullptr) return -FI_ENODATA;
    if (argument == nullptr) return -FI_EINVAL;
    *static_cast<int*>(argument) = wait->fd_.get();
    return 0;
  }

 private:
  WaitDescriptor() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  Descriptor fd_;
  bool signalled_ = false;
};

}  // namespace turnout::provider
