// SPDX-License-Identifier: BSD-3-Clause
#include "provider/connection.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/passive_endpoint.h"

namespace turnout::provider {

Connection::Connection(ConnectionManager& manager, State state) : manager_(manager), state_(state) {
  handle_.fclass = FI_CLASS_CONNREQ;
}

Connection::~Connection() {
  end();
}

int Connection::begin(ConnectionManager& manager, Way way, const Address& own,
                      std::span<const std::byte> data, ::fid* endpoint, EventQueue& events,
                      std::shared_ptr<Connection>& made) {
  std::shared_ptr<Connection> fresh(new Connection(manager, State::connecting));
  fresh->way_ = std::move(way);
  fresh->request_ =
      ConnectionMessage{ConnectionMessage::Kind::request, own, {data.begin(), data.end()}}.encode();
  fresh->endpoint_ = endpoint;
  fresh->events_ = &events;
  {
    const std::lock_guard hold(fresh->mutex_);
    if (const int error = fresh->connect_next(); error != 0) return -error;
  }
  made = std::move(fresh);
  return 0;
}

void Connection::receive(ConnectionManager& manager, Descriptor socket,
                         std::shared_ptr<Listener> listener) {
  std::shared_ptr<Connection> fresh(new Connection(manager, State::receiving_request));
  fresh->socket_ = std::move(socket);
  fresh->listener_ = std::move(listener);
  fresh->deadline_ = Clock::now() + kPatience;
  // Who cannot be watched is closed, and tries again.
  static_cast<void>(manager.watch(fresh->socket_.get(), EPOLLIN, fresh));
}

// With errno: none.
Descriptor Connection::socket_towards(const sockaddr& peer) {
  int family = AF_UNSPEC;
  socklen_t length = sizeof family;
  if (way_.from && getsockopt(way_.from.get(), SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 &&
      family == peer.sa_family) {
    return std::move(way_.from);
  }
  return Descriptor(::socket(peer.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// 0: an attempt is under way. Else the errno of the last socket address.
int Connection::connect_next() {
  int error = EADDRNOTAVAIL;
  while (next_ < way_.to.count) {
    const sockaddr* const at = way_.to.socket(next_++);
    close();
    socket_ = socket_towards(*at);
    if (!socket_) {
      error = errno;
    } else if (connect(socket_.get(), at, length_of(at)) != 0 && errno != EINPROGRESS) {
      error = errno;
    } else {
      error = manager_.watch(socket_.get(), EPOLLOUT, shared_from_this());
      if (error == 0) return 0;
    }
  }
  close();
  return error;
}

void Connection::finish_connecting() {
  // An event of a former socket with this number says nothing.
  pollfd writable{socket_.get(), POLLOUT, 0};
  if (poll(&writable, 1, 0) == 0) return;
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) {
    if (connect_next() != 0) fail(error);
    return;
  }
  if (const int unsent = write(request_); unsent != 0) {
    fail(unsent);
    return;
  }
  state_.store(State::awaiting_reply, std::memory_order_release);
  if (const int watched = manager_.watch(socket_.get(), EPOLLIN, shared_from_this()); watched != 0)
    fail(watched);
}

bool Connection::receive_message() {
  for (;;) {
    const Result<std::size_t> wanted = ConnectionMessage::length_of(received_);
    if (!wanted.ok()) {
      TURNOUT_LOG(provider, warn, "connecting endpoints failed: {}; is it Turnout's port?",
                  wanted.status().text());
      fail(FI_ECONNABORTED);
      return false;
    }
    const std::size_t have = received_.size();
    if (have == wanted.value()) return true;
    received_.resize(wanted.value());
    const ssize_t n = recv(socket_.get(), received_.data() + have, received_.size() - have, 0);
    const int error = errno;
    received_.resize(have + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0) continue;
    if (n < 0 && (error == EAGAIN || error == EINTR)) return false;
    fail(n == 0 ? FI_ECONNABORTED : error);
    return false;
  }
}

void Connection::handle_message() {
  using Kind = ConnectionMessage::Kind;
  Result<ConnectionMessage> message = ConnectionMessage::decode(received_);
  received_.clear();
  const bool asked = state() == State::receiving_request;
  if (!message.ok() || (message->kind == Kind::request) != asked) {
    TURNOUT_LOG(provider, warn, "connecting endpoints failed: {}; is it Turnout's port?",
                message.ok() ? "unexpected kind of message" : message.status().text());
    fail(FI_ECONNABORTED);
    return;
  }
  if (message->kind == Kind::reject) {
    fail(FI_ECONNREFUSED, message->data);
    return;
  }
  peer_ = message->address;
  if (asked) {
    state_.store(State::requested, std::memory_order_release);
    const std::shared_ptr<Listener> listener = std::move(listener_);
    // Nobody listens any more, or there is no memory to say so.
    if (!listener->report(shared_from_this(), message->data, end_of(true))) fail(FI_ECONNABORTED);
  } else {
    state_.store(State::connected, std::memory_order_release);
    report(FI_CONNECTED, message->data);
  }
}

void Connection::ready() noexcept {
  static_cast<void>(contain([this] {
    const LateSignals signals;
    const std::lock_guard hold(mutex_);
    switch (state()) {
      case State::connecting:
        finish_connecting();
        break;
      case State::awaiting_reply:
      case State::receiving_request:
        if (receive_message()) handle_message();
        break;
      case State::requested:
      case State::connected: {
        // Nothing follows but the end.
        std::byte byte{};
        const ssize_t n = recv(socket_.get(), &byte, sizeof byte, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        const bool was_connected = state() == State::connected;
        finish();
        if (was_connected) report(FI_SHUTDOWN);
        break;
      }
      case State::ended:
        break;
    }
    return 0;
  }));
}

void Connection::tick() noexcept {
  const LateSignals signals;
  const std::lock_guard hold(mutex_);
  if (state() != State::receiving_request || Clock::now() < deadline_) return;
  static_cast<void>(contain([this] {
    fail(ETIMEDOUT);
    return 0;
  }));
}

void Connection::give_to(::fid* endpoint, EventQueue& events) {
  const std::lock_guard hold(mutex_);
  endpoint_ = endpoint;
  events_ = &events;
}

ServiceAddress Connection::end_of(bool peers) const noexcept {
  ServiceAddress end;
  socklen_t length = sizeof(sockaddr_in6);
  auto* const place = reinterpret_cast<sockaddr*>(end.sockets[0].data());
  const auto ask = peers ? getpeername : getsockname;
  if (socket_ && ask(socket_.get(), place, &length) == 0) end.count = 1;
  return end;
}

ServiceAddress Connection::end_of_socket(bool peers) {
  const std::lock_guard hold(mutex_);
  return end_of(peers);
}

int Connection::accept(const Address& own, std::span<const std::byte> data) {
  const std::lock_guard hold(mutex_);
  if (state() == State::ended) return -FI_ECONNABORTED;
  if (state() != State::requested) return -FI_EOPBADSTATE;
  assert(events_ != nullptr);
  if (const int error = send(ConnectionMessage::Kind::accept, own, data); error != 0) {
    finish();
    return -FI_ECONNABORTED;
  }
  state_.store(State::connected, std::memory_order_release);
  report(FI_CONNECTED);
  return 0;
}

int Connection::reject(std::span<const std::byte> data) {
  const std::lock_guard hold(mutex_);
  // Who has gone needs no answer.
  if (state() == State::requested)
    static_cast<void>(send(ConnectionMessage::Kind::reject, {}, data));
  finish();
  return 0;
}

void Connection::end() noexcept {
  const std::unique_lock hold = manager_.lock(mutex_);
  events_ = nullptr;
  finish();
}

// 0 or an errno.
int Connection::send(ConnectionMessage::Kind kind, const Address& own,
                     std::span<const std::byte> data) {
  return write(ConnectionMessage{kind, own, {data.begin(), data.end()}}.encode());
}

// The same. A new connection has room for all that is ever sent over one.
int Connection::write(std::span<const std::byte> bytes) noexcept {
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return 0;
  return sent < 0 ? errno : EIO;
}

void Connection::fail(int error, std::span<const std::byte> data) {
  finish();
  if (events_ != nullptr) events_->push_failure(endpoint_, error, data);
}

void Connection::close() noexcept {
  if (socket_) manager_.close(socket_);
}

void Connection::finish() noexcept {
  close();
  state_.store(State::ended, std::memory_order_release);
}

void Connection::report(std::uint32_t event, std::span<const std::byte> data) {
  if (events_ != nullptr) events_->push_connection(event, endpoint_, nullptr, data);
}

}  // namespace turnout::provider
