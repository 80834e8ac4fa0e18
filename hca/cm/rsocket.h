// SPDX-License-Identifier: BSD-3-Clause
// An rsocket: what streams and datagram sockets have in common. rsocket(7).
//
// Its number is a real descriptor that is readable when there may be something to do: when the
// queue's events are armed and one has come, or when the connection manager has work. No thread
// stands behind it; whatever happens is noticed by the calls of the program. Several threads may
// use one at the same time. The table (hca/cm/rsocket_table.h) and calls under way share it; the
// descriptor is closed with the last of them.
//
// All but the mutex itself under mutex(). Results of int are errno values; of ssize_t: a count, or
// the negative of one. Nothing here waits (hca/cm/rsocket_wait.h), except close().
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hca/cm/rsocket_cursor.h"
#include "hca/cm/rsocket_options.h"

namespace turnout::cm {

// What a message beside its bytes has.
struct MessageAddress {
  const sockaddr* to = nullptr;  // sending
  socklen_t to_length = 0;
  sockaddr_storage from{};  // receiving
  bool truncated = false;   // receiving: the message was longer than the buffers
};

class Rsocket {
 public:
  Rsocket(int domain, int type) : domain_(domain), type_(type), options_(default_options()) {}
  virtual ~Rsocket() = default;
  Rsocket(const Rsocket&) = delete;
  Rsocket& operator=(const Rsocket&) = delete;

  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }
  [[nodiscard]] int domain() const noexcept { return domain_; }
  [[nodiscard]] int type() const noexcept { return type_; }
  [[nodiscard]] RsocketOptions& options() noexcept { return options_; }
  [[nodiscard]] bool non_blocking() const noexcept { return non_blocking_; }
  void set_non_blocking(bool on) noexcept { non_blocking_ = on; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  // SO_ERROR: reading clears it.
  [[nodiscard]] int take_error() noexcept { return std::exchange(error_, 0); }
  [[nodiscard]] bool has_error() const noexcept { return error_ != 0; }

  [[nodiscard]] virtual int descriptor() const noexcept = 0;
  [[nodiscard]] virtual bool has_queues() const noexcept = 0;
  [[nodiscard]] virtual int bind(const sockaddr* address) = 0;
  [[nodiscard]] virtual int listen(int backlog) = 0;
  [[nodiscard]] virtual ssize_t try_accept(std::shared_ptr<Rsocket>& accepted) = 0;
  // EINPROGRESS: it goes on with every progress; ends_connecting() tells how it ended.
  [[nodiscard]] virtual int connect(const sockaddr* address) = 0;
  [[nodiscard]] virtual ssize_t ends_connecting() = 0;
  [[nodiscard]] virtual ssize_t try_send(IovCursor& from, int flags, const MessageAddress& to) = 0;
  [[nodiscard]] virtual ssize_t try_receive(IovCursor& to, int flags, MessageAddress& from) = 0;
  [[nodiscard]] virtual int shutdown(int how) = 0;
  [[nodiscard]] virtual int local_name(sockaddr_storage& name) const = 0;
  [[nodiscard]] virtual int peer_name(sockaddr_storage& name) const = 0;

  // All the bits of poll(2) that hold now.
  [[nodiscard]] virtual short events() = 0;
  // Cheap: looks for completions; true if there were any.
  virtual bool look() = 0;
  // Before a sleep on the descriptor. True if nothing came meanwhile.
  [[nodiscard]] virtual bool arm() = 0;
  // Not readable any more would make no sense to wait for: -1 then.
  [[nodiscard]] virtual int sleeping_descriptor(short) const noexcept { return descriptor(); }
  // A connection is being made, which may need other rsockets of this process to answer. Any
  // thread, without the mutex.
  [[nodiscard]] bool handshaking() const noexcept { return handshaking_; }
  virtual void advance() = 0;

  // The program is done with it: delivers what was sent, as SO_LINGER says, and tells the peer.
  virtual void close() = 0;
  // In a child of fork(): the parent has it. Closes descriptors, and leaves the rest.
  virtual void abandon() = 0;

  // Threads that sleep until this changes: their eventfds. Another thread may have seen the event.
  void add_waiter(int eventfd) { waiters_.push_back(eventfd); }
  void remove_waiter(int eventfd);
  void changed() const;
  void mark_closed();

 protected:
  void set_handshaking(bool on) noexcept { handshaking_ = on; }
  void set_error(int error) noexcept { error_ = error; }

 private:
  std::mutex mutex_;
  const int domain_, type_;
  RsocketOptions options_;
  std::atomic<bool> handshaking_ = false;
  bool non_blocking_ = false, closed_ = false;
  int error_ = 0;
  std::vector<int> waiters_;
};

}  // namespace turnout::cm
