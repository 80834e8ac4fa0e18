// SPDX-License-Identifier: BSD-3-Clause
// WaitObject: what a program blocks on itself until a queue, a counter or one of a wait set has
// something: a file descriptor (FI_WAIT_FD, FI_WAIT_POLLFD; an eventfd) for poll(2), select(2) and
// epoll(7), or a mutex with a condition variable (FI_WAIT_MUTEX_COND).
//
// Shared by the objects of a wait set, else its object's own. Any thread. The program waits after
// fi_trywait has said that it may; with a mutex, it calls that with the mutex held, which is
// recursive for that. Source: fi_poll(3), fi_cq(3), eventfd(2).
#pragma once

#include <poll.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace turnout::provider {

class WaitObject {
 public:
  // 0, or -FI_E*: -FI_ENOSYS for a kind of waiting that is not known. `made` is null where the
  // program waits in calls of ours, or not at all.
  [[nodiscard]] static int make(fi_wait_obj kind, std::shared_ptr<WaitObject>& made) {
    switch (kind) {
      case FI_WAIT_NONE:
      case FI_WAIT_UNSPEC:
      case FI_WAIT_YIELD:
        return 0;
      case FI_WAIT_FD:
      case FI_WAIT_POLLFD:
      case FI_WAIT_MUTEX_COND:
        made = std::shared_ptr<WaitObject>(new WaitObject(kind));
        return made->has_condition() || made->fd_ ? 0 : -errno;
      default:
        return -FI_ENOSYS;
    }
  }
  WaitObject(const WaitObject&) = delete;
  WaitObject& operator=(const WaitObject&) = delete;
  // The condition variable is not destroyed: that would wait for threads that a child of fork()
  // does not have. It owns nothing.
  ~WaitObject() = default;

  // There is something; who calls does so again and again until that has been read, and may hold
  // locks that fi_trywait takes. So the mutex, which the program may hold, is not taken: who begins
  // to wait meanwhile is woken by the next call.
  void signal() noexcept {
    if (has_condition()) {
      pthread_cond_broadcast(&condition_);
      return;
    }
    const std::lock_guard hold(state_);
    const std::uint64_t one = 1;
    if (!signalled_) signalled_ = write(fd_.get(), &one, sizeof one) == sizeof one;
  }
  // The same, called once, without any lock of ours: the program may call us with the mutex held.
  void signal_once() noexcept {
    if (!has_condition()) return signal();
    pthread_mutex_lock(&mutex_);
    pthread_cond_broadcast(&condition_);
    pthread_mutex_unlock(&mutex_);
  }
  // The program will look at what it waits for before it blocks.
  void clear() noexcept {
    if (has_condition()) return;
    const std::lock_guard hold(state_);
    std::uint64_t count = 0;
    // Empty: the program has read it itself.
    if (signalled_)
      signalled_ = read(fd_.get(), &count, sizeof count) != sizeof count && errno != EAGAIN;
  }
  // FI_GETWAIT and FI_GETWAITOBJ of an object with this one, or with none.
  [[nodiscard]] static int control(const WaitObject* wait, int command, void* argument) {
    if (command != FI_GETWAIT && command != FI_GETWAITOBJ) return -FI_ENOSYS;
    if (wait == nullptr) return -FI_ENODATA;
    if (argument == nullptr) return -FI_EINVAL;
    if (command == FI_GETWAITOBJ) {
      *static_cast<fi_wait_obj*>(argument) = wait->kind_;
    } else if (wait->kind_ == FI_WAIT_FD) {
      *static_cast<int*>(argument) = wait->fd_.get();
    } else if (wait->kind_ == FI_WAIT_POLLFD) {
      return wait->describe(*static_cast<fi_wait_pollfd*>(argument));
    } else {
      *static_cast<fi_mutex_cond*>(argument) = {&wait->mutex_, &wait->condition_};
    }
    return 0;
  }

 private:
  explicit WaitObject(fi_wait_obj kind) : kind_(kind) {
    if (!has_condition()) {
      fd_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      return;
    }
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex_, &recursive);
    pthread_mutexattr_destroy(&recursive);
  }
  [[nodiscard]] bool has_condition() const noexcept { return kind_ == FI_WAIT_MUTEX_COND; }
  // One descriptor, always the same.
  [[nodiscard]] int describe(fi_wait_pollfd& out) const noexcept {
    const std::size_t room = out.nfds;
    out.change_index = 1;
    out.nfds = 1;
    if (room < 1) return -FI_ETOOSMALL;
    if (out.fd == nullptr) return -FI_EINVAL;
    out.fd[0] = {fd_.get(), POLLIN, 0};
    return 0;
  }

  const fi_wait_obj kind_;
  std::mutex state_;  // of what follows
  Descriptor fd_;
  bool signalled_ = false;
  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  mutable pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

// What a thread signals once while it holds locks of ours is signalled when this ends, which is
// declared before they are taken. One thread; an inner one leaves it to the outer one.
class LateSignals {
 public:
  LateSignals() noexcept : outer_(std::exchange(innermost, this)) {}
  ~LateSignals() {
    innermost = outer_;
    if (outer_ != nullptr) return;
    for (const std::shared_ptr<WaitObject>& object : objects_) object->signal_once();
  }
  LateSignals(const LateSignals&) = delete;
  LateSignals& operator=(const LateSignals&) = delete;

  // False: there is none here, the caller signals.
  [[nodiscard]] static bool leave(const std::shared_ptr<WaitObject>& object) {
    LateSignals* one = innermost;
    if (one == nullptr) return false;
    while (one->outer_ != nullptr) one = one->outer_;
    one->objects_.push_back(object);
    return true;
  }

 private:
  LateSignals* const outer_;
  std::vector<std::shared_ptr<WaitObject>> objects_;
  static inline thread_local LateSignals* innermost = nullptr;
};

}  // namespace turnout::provider
