// SPDX-License-Identifier: BSD-3-Clause
// ConnectionManager: the thread that watches the sockets of a fabric's connections (FI_EP_MSG), and
// the connection requests that no endpoint has taken yet.
//
// One per fabric, from the first passive endpoint or connection on; it ends with the fabric. Any
// thread may call. A watched object is called by this thread alone, for as long as it is watched
// and perhaps once more. The child of a fork() has no such thread; it opens a fabric of its own.
// Source: epoll(7).
#pragma once

#include <rdma/fabric.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace turnout::provider {

class Connection;

// What has a socket that the thread waits for.
class Watched {
 public:
  virtual ~Watched() = default;
  // Its socket is ready, or failed.
  virtual void ready() noexcept = 0;
  // About once a second.
  virtual void tick() noexcept {}
};

class ConnectionManager {
 public:
  // Errors: system (no descriptor, no thread).
  [[nodiscard]] static Result<std::unique_ptr<ConnectionManager>> start();
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // Calls ready() whenever the socket has one of these epoll(7) events; level-triggered. 0 or an
  // errno. Watching a socket that is watched changes the events.
  [[nodiscard]] int watch(int fd, std::uint32_t events, std::shared_ptr<Watched> object);
  // Ends the connection of a socket and closes it. In the child of a fork(), which shares socket
  // and epoll instance with its parent, closes the descriptor alone.
  void close(Descriptor& socket) noexcept;
  // Holds the lock of a watched object; in the child of a fork(), where the thread may have had it,
  // nothing: nobody else is there.
  [[nodiscard]] std::unique_lock<std::mutex> lock(std::mutex& mutex) const;

  // A request that waits for fi_endpoint or fi_reject with this handle, until then owned here.
  void add_request(::fid* handle, std::shared_ptr<Connection> request);
  // Null: there is none, or it was taken.
  [[nodiscard]] std::shared_ptr<Connection> take_request(::fid* handle) noexcept;

 private:
  ConnectionManager(Descriptor epoll, Descriptor stop);
  void serve() noexcept;

  const Descriptor epoll_;
  const Descriptor stop_;  // an eventfd
  const pid_t pid_;
  std::mutex mutex_;                                           // guards the two tables
  std::unordered_map<int, std::shared_ptr<Watched>> watched_;  // by socket
  std::unordered_map<::fid*, std::shared_ptr<Connection>> requests_;
  std::unique_ptr<std::thread> thread_;  // let go in the child of a fork()
};

}  // namespace turnout::provider
