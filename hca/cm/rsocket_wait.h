// SPDX-License-Identifier: BSD-3-Clause
// Waiting for rsockets: blocking calls, rpoll() and rselect().
//
// A thread that goes to sleep arms the events of its sockets, looks once more, and leaves the
// number of an eventfd of its own with them: of two threads that wait for one socket, only one may
// find the event, and it wakes the other. Any thread may call, without a mutex of an rsocket.
#pragma once

#include <poll.h>
#include <sys/select.h>

#include <cerrno>
#include <mutex>

#include "hca/cm/rsocket.h"

namespace turnout::cm {

// Looks for completions for as long as rsocket(7)'s polling_time. True if there were any. With the
// mutex.
[[nodiscard]] bool spin(Rsocket& socket);
// Sleeps until `socket` may have changed; the caller has armed it. 0 or an errno value: EINTR.
// With the mutex, which is free meanwhile.
[[nodiscard]] int sleep_on(Rsocket& socket, std::unique_lock<std::mutex>& lock);

// Calls `attempt` with the mutex until it gives something else than -EAGAIN.
template <class Attempt>
ssize_t until(Rsocket& socket, bool may_wait, const Attempt& attempt) {
  std::unique_lock lock(socket.mutex());
  for (;;) {
    if (socket.closed()) return -EBADF;
    const ssize_t done = attempt();
    if (done != -EAGAIN || !may_wait) return done;
    if (spin(socket) || !socket.arm()) continue;
    if (const int error = sleep_on(socket, lock); error != 0) return -error;
  }
}

// As poll(2) and select(2), and rsockets among the descriptors. -1 and errno.
[[nodiscard]] int poll_rsockets(pollfd* fds, nfds_t count, int timeout_ms);
[[nodiscard]] int select_rsockets(int count, fd_set* readable, fd_set* writable,
                                  fd_set* exceptional, timeval* timeout);

}  // namespace turnout::cm
