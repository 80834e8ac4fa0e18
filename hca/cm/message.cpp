// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/message.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace turnout::cm {
namespace {

bool valid(const Address& a, bool needed) noexcept {
  return a.family == AF_INET || a.family == AF_INET6 || a.ib() || (!needed && !a.present());
}

}  // namespace

bool valid(const Message& m) noexcept {
  constexpr std::uint32_t k24Bits = 0xffffff;
  const bool request = m.kind == Kind::req || m.kind == Kind::sidr_req;
  const bool connected = m.qp_type == IBV_QPT_RC || m.qp_type == IBV_QPT_UC ||
                         m.qp_type == IBV_QPT_XRC_SEND || m.qp_type == IBV_QPT_XRC_RECV;
  return m.magic == Message::kMagic && m.kind >= Kind::req && m.kind <= Kind::sidr_rep &&
         m.private_length <= private_limit(m.kind, m.source) && m.qpn <= k24Bits &&
         m.psn <= k24Bits && m.retry_count <= 7 && m.rnr_retry_count <= 7 &&
         (m.kind != Kind::req || connected) &&
         (m.kind != Kind::sidr_req || m.qp_type == IBV_QPT_UD) && valid(m.source, request) &&
         valid(m.destination, request) && (!request || m.source.ib() == m.destination.ib());
}

Received receive(int fd, Message& message) noexcept {
  for (int resets = 0; resets < 2;) {
    iovec part{&message, sizeof message};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const ssize_t n = recvmsg(fd, &header, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return Received::nothing;
      // The peer closed with messages of ours unread; its own come after this error.
      if (errno == ECONNRESET) {
        ++resets;
        continue;
      }
      return Received::ended;
    }
    if (n == 0) return Received::ended;
    const bool whole = n == sizeof message && (header.msg_flags & MSG_TRUNC) == 0;
    return whole && valid(message) ? Received::message : Received::damaged;
  }
  return Received::ended;
}

int send(int fd, const Message& message) noexcept {
  for (;;) {
    if (::send(fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof message)
      return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace turnout::cm
