// SPDX-License-Identifier: BSD-3-Clause
// The exported functions of rsocket(7): checks of arguments, and blocking.
//
// A number that is no rsocket gives EBADF; one of a parent process gives EPERM, except to rclose(),
// which then closes the child's descriptors only.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <vector>

#include "hca/cm/export.h"
#include "hca/cm/identifier.h"
#include "hca/cm/rsocket_datagram.h"
#include "hca/cm/rsocket_stream.h"
#include "hca/cm/rsocket_table.h"
#include "hca/cm/rsocket_wait.h"

using namespace turnout::cm;

namespace {

using SocketPointer = std::shared_ptr<Rsocket>;

// What a call returns for a count or the negative of an errno value.
ssize_t answer_of(ssize_t done) {
  return done >= 0 ? done : failure(static_cast<int>(-done));
}

// Null and errno.
SocketPointer socket_of(int number) {
  auto found = find_rsocket(number);
  if (found == nullptr) errno = is_parents(number) ? EPERM : EBADF;
  return found;
}

// A step that takes no time, with the mutex: gives an errno value.
template <class Step>
int at_once(int number, const Step& step) {
  const auto socket = socket_of(number);
  if (socket == nullptr) return -1;
  const std::lock_guard guard(socket->mutex());
  return result(socket->closed() ? EBADF : step(*socket));
}

bool waits(Rsocket& socket, int flags) {
  const std::lock_guard guard(socket.mutex());
  return !socket.non_blocking() && (flags & MSG_DONTWAIT) == 0;
}

// An address of a caller's: one of the two families, and as long as that says.
int check_address(const sockaddr* address, socklen_t length) {
  if (address == nullptr) return EFAULT;
  if (length < sizeof address->sa_family) return EINVAL;
  if (address->sa_family == AF_INET) return length < sizeof(sockaddr_in) ? EINVAL : 0;
  if (address->sa_family == AF_INET6) return length < sizeof(sockaddr_in6) ? EINVAL : 0;
  return EAFNOSUPPORT;
}

void give_name(const sockaddr_storage& name, sockaddr* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return;
  const socklen_t size = name.ss_family == AF_INET6  ? sizeof(sockaddr_in6)
                         : name.ss_family == AF_INET ? sizeof(sockaddr_in)
                                                     : 0;
  std::memcpy(to, &name, std::min(size, *length));
  *length = size;
}

// All of a stream's bytes, in the pieces in which they fit. What a failure is preceded by counts.
ssize_t send_all(Rsocket& socket, IovCursor& from, int flags, const MessageAddress& to) {
  const bool may_wait = waits(socket, flags);
  std::size_t sent = 0;
  for (;;) {
    const ssize_t n = until(socket, may_wait, [&] { return socket.try_send(from, flags, to); });
    if (n < 0) return sent != 0 ? static_cast<ssize_t>(sent) : n;
    sent += static_cast<std::size_t>(n);
    if (!may_wait || from.left() == 0 || socket.type() == SOCK_DGRAM) {
      return static_cast<ssize_t>(sent);
    }
  }
}

ssize_t receive_some(Rsocket& socket, IovCursor& to, int flags, MessageAddress& from) {
  const bool may_wait = waits(socket, flags);
  const bool all =
      (flags & MSG_WAITALL) != 0 && (flags & MSG_PEEK) == 0 && socket.type() == SOCK_STREAM;
  std::size_t received = 0;
  for (;;) {
    const ssize_t n = until(socket, may_wait, [&] { return socket.try_receive(to, flags, from); });
    if (n < 0) return received != 0 ? static_cast<ssize_t>(received) : n;
    received += static_cast<std::size_t>(n);
    if (!all || n == 0 || to.left() == 0) return static_cast<ssize_t>(received);
  }
}

ssize_t send_message(int number, const iovec* parts, std::size_t count, int flags,
                     const sockaddr* to, socklen_t to_length) {
  const auto socket = socket_of(number);
  if (socket == nullptr) return -1;
  if ((flags & MSG_OOB) != 0) return failure(EOPNOTSUPP);
  MessageAddress address;
  if (to != nullptr && to_length != 0) {
    if (const int error = check_address(to, to_length); error != 0) return failure(error);
    address.to = to;
    address.to_length = to_length;
  }
  IovCursor from(parts, count);
  return answer_of(send_all(*socket, from, flags, address));
}

ssize_t receive_message(int number, const iovec* parts, std::size_t count, int flags,
                        MessageAddress& from) {
  const auto socket = socket_of(number);
  if (socket == nullptr) return -1;
  if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) return failure(EOPNOTSUPP);
  IovCursor to(parts, count);
  return answer_of(receive_some(*socket, to, flags, from));
}

bool valid_parts(const iovec* parts, int count) {
  if (count < 0 || count > IOV_MAX || (count != 0 && parts == nullptr)) return false;
  std::size_t all = 0;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len > static_cast<std::size_t>(SSIZE_MAX) - all) return false;
    all += parts[i].iov_len;
  }
  return true;
}

// What needs the socket and not only its options.
int socket_option(Rsocket& socket, int level, int name, int& value) {
  auto* const stream = dynamic_cast<RsocketStream*>(&socket);
  if (level == IPPROTO_TCP && name == TCP_MAXSEG && stream != nullptr) {
    value = stream->largest_segment();
    return 0;
  }
  if (level != SOL_SOCKET) return ENOPROTOOPT;
  switch (name) {
    case SO_ERROR:
      value = socket.take_error();
      return 0;
    case SO_TYPE:
      value = socket.type();
      return 0;
    case SO_DOMAIN:
      value = socket.domain();
      return 0;
    case SO_PROTOCOL:
      value = stream != nullptr ? IPPROTO_TCP : IPPROTO_UDP;
      return 0;
    case SO_ACCEPTCONN:
      value = stream != nullptr && stream->listening() ? 1 : 0;
      return 0;
    default:
      return ENOPROTOOPT;
  }
}

// Null and errno.
std::shared_ptr<RsocketStream> stream_of(int number) {
  auto socket = std::dynamic_pointer_cast<RsocketStream>(socket_of(number));
  if (socket == nullptr && find_rsocket(number) != nullptr) errno = EOPNOTSUPP;
  return socket;
}

}  // namespace

// Other types, and flags beside them, are refused before anything else happens: librspreload then
// takes a socket of the kernel.
TURNOUT_EXPORT int rsocket(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return failure(EAFNOSUPPORT);
  const bool stream = type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  const bool datagram = type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  if (!stream && !datagram) return failure(EPROTONOSUPPORT);
  SocketPointer made;
  if (stream) {
    made = RsocketStream::make(domain);
  } else {
    made = RsocketDatagram::make(domain);
  }
  if (made == nullptr) return -1;
  add_rsocket(made);
  return made->descriptor();
}

TURNOUT_EXPORT int rbind(int number, const sockaddr* address, socklen_t length) {
  if (const int error = check_address(address, length); error != 0) return failure(error);
  return at_once(number, [&](Rsocket& s) { return s.bind(address); });
}

TURNOUT_EXPORT int rlisten(int number, int backlog) {
  return at_once(number, [&](Rsocket& s) { return s.listen(backlog); });
}

TURNOUT_EXPORT int raccept(int number, sockaddr* address, socklen_t* length) {
  const auto socket = socket_of(number);
  if (socket == nullptr) return -1;
  SocketPointer accepted;
  const ssize_t done =
      until(*socket, waits(*socket, 0), [&] { return socket->try_accept(accepted); });
  if (done < 0) return failure(static_cast<int>(-done));
  const std::lock_guard guard(accepted->mutex());
  sockaddr_storage name{};
  static_cast<void>(accepted->peer_name(name));
  give_name(name, address, length);
  add_rsocket(accepted);
  return accepted->descriptor();
}

TURNOUT_EXPORT int rconnect(int number, const sockaddr* address, socklen_t length) {
  const auto socket = socket_of(number);
  if (socket == nullptr) return -1;
  const bool ends = address != nullptr && length >= sizeof(sockaddr) &&
                    address->sa_family == AF_UNSPEC && socket->type() == SOCK_DGRAM;
  if (const int error = ends ? 0 : check_address(address, length); error != 0) {
    return failure(error);
  }
  const int begun = at_once(number, [&](Rsocket& s) { return s.connect(address); });
  if (begun == 0 || errno != EINPROGRESS || !waits(*socket, 0)) return begun;
  return static_cast<int>(
      answer_of(until(*socket, true, [&] { return socket->ends_connecting(); })));
}

TURNOUT_EXPORT int rshutdown(int number, int how) {
  return at_once(number, [&](Rsocket& s) { return s.shutdown(how); });
}

TURNOUT_EXPORT int rclose(int number) {
  bool of_parent = false;
  const auto socket = remove_rsocket(number, of_parent);
  if (socket == nullptr) return failure(EBADF);
  if (of_parent) {
    socket->abandon();
    return 0;
  }
  const std::lock_guard guard(socket->mutex());
  socket->close();
  socket->mark_closed();
  return 0;
}

TURNOUT_EXPORT ssize_t rrecvfrom(int number, void* buffer, std::size_t length, int flags,
                                 sockaddr* address, socklen_t* address_length) {
  const iovec part{buffer, std::min<std::size_t>(length, SSIZE_MAX)};
  MessageAddress from;
  const ssize_t n = receive_message(number, &part, 1, flags, from);
  if (n >= 0) give_name(from.from, address, address_length);
  return n;
}

TURNOUT_EXPORT ssize_t rrecv(int number, void* buffer, std::size_t length, int flags) {
  return rrecvfrom(number, buffer, length, flags, nullptr, nullptr);
}

TURNOUT_EXPORT ssize_t rread(int number, void* buffer, std::size_t length) {
  return rrecvfrom(number, buffer, length, 0, nullptr, nullptr);
}

TURNOUT_EXPORT ssize_t rreadv(int number, const iovec* parts, int count) {
  if (!valid_parts(parts, count)) return failure(EINVAL);
  MessageAddress from;
  return receive_message(number, parts, static_cast<std::size_t>(count), 0, from);
}

// Control data has no meaning here.
TURNOUT_EXPORT ssize_t rrecvmsg(int number, msghdr* message, int flags) {
  if (message == nullptr) return failure(EFAULT);
  if (message->msg_control != nullptr && message->msg_controllen != 0) return failure(EOPNOTSUPP);
  const auto count = static_cast<int>(std::min<std::size_t>(message->msg_iovlen, INT_MAX));
  if (!valid_parts(message->msg_iov, count)) return failure(EMSGSIZE);
  MessageAddress from;
  const ssize_t n = receive_message(number, message->msg_iov, message->msg_iovlen, flags, from);
  if (n < 0) return n;
  give_name(from.from, static_cast<sockaddr*>(message->msg_name), &message->msg_namelen);
  message->msg_flags = from.truncated ? MSG_TRUNC : 0;
  return n;
}

TURNOUT_EXPORT ssize_t rsendto(int number, const void* buffer, std::size_t length, int flags,
                               const sockaddr* address, socklen_t address_length) {
  const iovec part{const_cast<void*>(buffer), std::min<std::size_t>(length, SSIZE_MAX)};
  return send_message(number, &part, 1, flags, address, address_length);
}

TURNOUT_EXPORT ssize_t rsend(int number, const void* buffer, std::size_t length, int flags) {
  return rsendto(number, buffer, length, flags, nullptr, 0);
}

TURNOUT_EXPORT ssize_t rwrite(int number, const void* buffer, std::size_t length) {
  return rsendto(number, buffer, length, 0, nullptr, 0);
}

TURNOUT_EXPORT ssize_t rwritev(int number, const iovec* parts, int count) {
  if (!valid_parts(parts, count)) return failure(EINVAL);
  return send_message(number, parts, static_cast<std::size_t>(count), 0, nullptr, 0);
}

TURNOUT_EXPORT ssize_t rsendmsg(int number, const msghdr* message, int flags) {
  if (message == nullptr) return failure(EFAULT);
  if (message->msg_control != nullptr && message->msg_controllen != 0) return failure(EOPNOTSUPP);
  const auto count = static_cast<int>(std::min<std::size_t>(message->msg_iovlen, INT_MAX));
  if (!valid_parts(message->msg_iov, count)) return failure(EMSGSIZE);
  return send_message(number, message->msg_iov, message->msg_iovlen, flags,
                      static_cast<const sockaddr*>(message->msg_name), message->msg_namelen);
}

TURNOUT_EXPORT int rpoll(pollfd* fds, nfds_t count, int timeout) {
  return poll_rsockets(fds, count, timeout);
}

TURNOUT_EXPORT int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                           timeval* timeout) {
  return select_rsockets(count, readable, writable, exceptional, timeout);
}

TURNOUT_EXPORT int rgetpeername(int number, sockaddr* address, socklen_t* length) {
  if (address == nullptr || length == nullptr) return failure(EFAULT);
  return at_once(number, [&](Rsocket& s) {
    sockaddr_storage name{};
    const int error = s.peer_name(name);
    if (error == 0) give_name(name, address, length);
    return error;
  });
}

TURNOUT_EXPORT int rgetsockname(int number, sockaddr* address, socklen_t* length) {
  if (address == nullptr || length == nullptr) return failure(EFAULT);
  return at_once(number, [&](Rsocket& s) {
    sockaddr_storage name{};
    const int error = s.local_name(name);
    if (error == 0) give_name(name, address, length);
    return error;
  });
}

TURNOUT_EXPORT int rsetsockopt(int number, int level, int name, const void* value,
                               socklen_t length) {
  return at_once(number, [&](Rsocket& s) {
    return set_option(s.options(), s.has_queues(), level, name, value, length);
  });
}

TURNOUT_EXPORT int rgetsockopt(int number, int level, int name, void* value, socklen_t* length) {
  return at_once(number, [&](Rsocket& s) {
    int number_of_it = 0;
    if (socket_option(s, level, name, number_of_it) == 0) {
      return give_option(&number_of_it, sizeof number_of_it, value, length);
    }
    return get_option(s.options(), level, name, value, length);
  });
}

// F_GETFD and F_SETFD are about the descriptor; it stays non-blocking whatever the socket is.
TURNOUT_EXPORT int rfcntl(int number, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const int argument = command == F_SETFL || command == F_SETFD ? va_arg(arguments, int) : 0;
  va_end(arguments);
  const auto socket = socket_of(number);
  if (socket == nullptr) return -1;
  const std::lock_guard guard(socket->mutex());
  switch (command) {
    case F_GETFL:
      return O_RDWR | (socket->non_blocking() ? O_NONBLOCK : 0);
    case F_SETFL:
      socket->set_non_blocking((argument & O_NONBLOCK) != 0);
      return 0;
    case F_GETFD:
    case F_SETFD:
      return fcntl(socket->descriptor(), command, argument);
    default:
      return failure(EOPNOTSUPP);
  }
}

TURNOUT_EXPORT off_t riomap(int number, void* buffer, std::size_t length, int protection, int flags,
                            off_t offset) {
  if (flags != 0) return failure(EINVAL);
  const auto stream = stream_of(number);
  if (stream == nullptr) return -1;
  const std::lock_guard guard(stream->mutex());
  const int error = stream->closed() ? EBADF : stream->map(buffer, length, protection, offset);
  return error == 0 ? offset : failure(error);
}

TURNOUT_EXPORT int riounmap(int number, void* buffer, std::size_t length) {
  const auto stream = stream_of(number);
  if (stream == nullptr) return -1;
  const std::lock_guard guard(stream->mutex());
  return result(stream->closed() ? EBADF : stream->unmap(buffer, length));
}

// size_t of -1 is a failure.
TURNOUT_EXPORT std::size_t riowrite(int number, const void* buffer, std::size_t count, off_t offset,
                                    int flags) {
  const auto stream = stream_of(number);
  if (stream == nullptr) return static_cast<std::size_t>(-1);
  const iovec part{const_cast<void*>(buffer), std::min<std::size_t>(count, SSIZE_MAX)};
  IovCursor from(&part, 1);
  const bool may_wait = waits(*stream, flags);
  std::size_t written = 0;
  for (;;) {
    const auto at = static_cast<std::uint64_t>(offset) + written;
    const ssize_t n = until(*stream, may_wait, [&] { return stream->try_write(from, at); });
    if (n < 0 && written == 0) return static_cast<std::size_t>(answer_of(n));
    if (n > 0) written += static_cast<std::size_t>(n);
    if (n < 0 || !may_wait || from.left() == 0) return written;
  }
}
