// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_wait.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "hca/cm/rsocket_table.h"

namespace turnout::cm {
namespace {

using WaitClock = std::chrono::steady_clock;
using Deadline = std::optional<WaitClock::time_point>;

// While a connection is made: how long until the other ends in this process are looked after again.
constexpr int kHandshakeMs = 20;

// The calling thread's eventfd: -1 and errno when there is no descriptor free.
int wakeup() {
  struct Own {
    Descriptor fd;
    pid_t process = 0;
  };
  thread_local Own own;
  // A child of fork() would wake its parent.
  if (!own.fd || own.process != getpid()) {
    own.fd = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    own.process = getpid();
  }
  return own.fd.get();
}

int clear_wakeup(int fd) {
  eventfd_t ignored;
  return eventfd_read(fd, &ignored);
}

int remaining_ms(const Deadline& deadline, bool handshaking) {
  int ms = -1;
  if (deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - WaitClock::now());
    ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
  }
  return handshaking && (ms < 0 || ms > kHandshakeMs) ? kHandshakeMs : ms;
}

// Of a call of rpoll(): which of its descriptors are rsockets.
class PollSet {
 public:
  PollSet(pollfd* fds, nfds_t count) : fds_(fds), sockets_(count) {
    for (nfds_t i = 0; i < count; ++i) {
      if (fds[i].fd < 0) continue;
      sockets_[i] = find_rsocket(fds[i].fd);
      if (sockets_[i] != nullptr) {
        ++rsockets_;
        continue;
      }
      plain_.push_back(fds[i]);
      places_.push_back(i);
    }
  }
  ~PollSet() { leave(); }
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  [[nodiscard]] bool has_rsockets() const { return rsockets_ != 0; }
  [[nodiscard]] bool handshaking() const {
    return std::any_of(sockets_.begin(), sockets_.end(),
                       [](const auto& s) { return s != nullptr && s->handshaking(); });
  }

  // Fills revents of all; the number of those that have any, or -1 and errno.
  int look() {
    int ready = 0;
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      fds_[i].revents = 0;
      if (sockets_[i] == nullptr) continue;
      const std::lock_guard guard(sockets_[i]->mutex());
      const int wanted = fds_[i].events | POLLERR | POLLHUP | POLLNVAL;
      const int all = sockets_[i]->closed() ? POLLNVAL : sockets_[i]->events();
      fds_[i].revents = static_cast<short>(all & wanted);
      if (fds_[i].revents != 0) ++ready;
    }
    if (plain_.empty()) return ready;
    const int plain = poll(plain_.data(), plain_.size(), 0);
    if (plain < 0) return -1;
    for (std::size_t i = 0; i < plain_.size(); ++i) fds_[places_[i]].revents = plain_[i].revents;
    return ready + plain;
  }

  // Completions of any of them within a moment.
  bool spin_all() {
    const auto end = WaitClock::now() + std::chrono::microseconds(polling_time());
    do {
      for (const auto& socket : sockets_) {
        if (socket == nullptr) continue;
        const std::lock_guard guard(socket->mutex());
        if (!socket->closed() && socket->look()) return true;
      }
    } while (WaitClock::now() < end);
    return false;
  }

  // Leaves the eventfd with all; false if something has come meanwhile.
  bool enter(int eventfd) {
    sleepers_ = plain_;
    eventfd_ = eventfd;
    for (entered_ = 0; entered_ < sockets_.size(); ++entered_) {
      Rsocket* const socket = sockets_[entered_].get();
      if (socket == nullptr) continue;
      const std::lock_guard guard(socket->mutex());
      if (socket->closed() || !socket->arm()) return false;
      socket->add_waiter(eventfd);
      sleepers_.push_back({socket->sleeping_descriptor(fds_[entered_].events), POLLIN, 0});
    }
    sleepers_.push_back({eventfd, POLLIN, 0});
    return true;
  }
  int sleep(int timeout_ms) { return poll(sleepers_.data(), sleepers_.size(), timeout_ms); }
  void leave() {
    for (std::size_t i = 0; i < entered_; ++i) {
      if (sockets_[i] == nullptr) continue;
      const std::lock_guard guard(sockets_[i]->mutex());
      sockets_[i]->remove_waiter(eventfd_);
    }
    entered_ = 0;
    if (eventfd_ >= 0) static_cast<void>(clear_wakeup(eventfd_));
  }

 private:
  pollfd* fds_;
  std::vector<std::shared_ptr<Rsocket>> sockets_;  // null: a plain descriptor, or none
  std::vector<pollfd> plain_, sleepers_;
  std::vector<std::size_t> places_;  // of the plain ones
  std::size_t rsockets_ = 0, entered_ = 0;
  int eventfd_ = -1;
};

}  // namespace

bool spin(Rsocket& socket) {
  const auto end = WaitClock::now() + std::chrono::microseconds(polling_time());
  do {
    if (socket.look()) return true;
  } while (WaitClock::now() < end);
  return false;
}

int sleep_on(Rsocket& socket, std::unique_lock<std::mutex>& lock) {
  const int own = wakeup();
  if (own < 0) return errno;
  socket.add_waiter(own);
  const bool handshaking = socket.handshaking();
  lock.unlock();
  if (handshaking) advance_handshakes();
  pollfd both[] = {{socket.descriptor(), POLLIN, 0}, {own, POLLIN, 0}};
  const int error = poll(both, 2, remaining_ms({}, handshaking)) < 0 ? errno : 0;
  lock.lock();
  socket.remove_waiter(own);
  static_cast<void>(clear_wakeup(own));
  return error;
}

int poll_rsockets(pollfd* fds, nfds_t count, int timeout_ms) {
  PollSet set(fds, count);
  if (!set.has_rsockets()) return poll(fds, count, timeout_ms);
  Deadline deadline;
  if (timeout_ms >= 0) deadline = WaitClock::now() + std::chrono::milliseconds(timeout_ms);
  for (bool spun = false;;) {
    const bool handshaking = set.handshaking();
    if (handshaking) advance_handshakes();
    const int ready = set.look();
    if (ready != 0 || timeout_ms == 0) return ready;
    if (!spun && set.spin_all()) continue;
    spun = true;
    const int own = wakeup();
    if (own < 0) return -1;
    int slept = 0;
    if (set.enter(own)) slept = set.sleep(remaining_ms(deadline, handshaking));
    const int error = errno;
    set.leave();
    if (slept < 0) {
      errno = error;
      return -1;
    }
    if (deadline && WaitClock::now() >= *deadline) return set.look();
  }
}

int select_rsockets(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                    timeval* timeout) {
  if (count < 0 || count > FD_SETSIZE ||
      (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0))) {
    errno = EINVAL;
    return -1;
  }
  struct Kind {
    fd_set* set;
    short asked, answers;  // poll(2)'s events, as select(2) says in its notes
  };
  const Kind kinds[] = {{readable, POLLIN, POLLIN | POLLHUP | POLLERR},
                        {writable, POLLOUT, POLLOUT | POLLERR},
                        {exceptional, POLLPRI, POLLPRI}};
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    short events = 0;
    for (const Kind& kind : kinds) {
      if (kind.set != nullptr && FD_ISSET(fd, kind.set)) {
        events = static_cast<short>(events | kind.asked);
      }
    }
    if (events != 0) fds.push_back({fd, events, 0});
  }
  int ms = -1;
  if (timeout != nullptr) {
    const std::int64_t all = std::int64_t{timeout->tv_sec} * 1000 + (timeout->tv_usec + 999) / 1000;
    ms = static_cast<int>(std::min<std::int64_t>(all, 1 << 30));
  }
  if (poll_rsockets(fds.data(), fds.size(), ms) < 0) return -1;
  int found = 0;
  for (const pollfd& p : fds) {
    if ((p.revents & POLLNVAL) != 0) {
      errno = EBADF;
      return -1;
    }
  }
  for (const Kind& kind : kinds) {
    if (kind.set != nullptr) FD_ZERO(kind.set);
    for (const pollfd& p : fds) {
      if (kind.set == nullptr || (p.events & kind.asked) == 0 || (p.revents & kind.answers) == 0) {
        continue;
      }
      FD_SET(p.fd, kind.set);
      ++found;
    }
  }
  return found;
}

}  // namespace turnout::cm
