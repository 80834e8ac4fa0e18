// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/async_answers.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <mutex>

namespace turnout::hca {

int AsyncAnswers::open() noexcept {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return errno;
  reader_ = Descriptor(ends[0]);
  writer_ = Descriptor(ends[1]);
  return reader_ && writer_ ? 0 : errno;
}

int AsyncAnswers::put(std::uint64_t wr_id, std::span<const std::byte> answer) const noexcept {
  iovec parts[2] = {{&wr_id, sizeof wr_id},
                    {const_cast<std::byte*>(answer.data()), answer.size()}};  // NOLINT
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return sendmsg(writer_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

void AsyncAnswers::end() const noexcept {
  (void)shutdown(writer_.get(), SHUT_WR);
}

ssize_t AsyncAnswers::read(int fd, void* to, std::size_t count) noexcept {
  // Between the look at an answer's length and its taking no other thread takes one.
  static std::mutex taking;
  std::byte first;
  for (;;) {
    ssize_t bytes = recv(fd, &first, sizeof first, MSG_PEEK | MSG_TRUNC);
    if (bytes == 0) return -EIO;
    if (bytes < 0) return -errno;
    const std::lock_guard lock(taking);
    bytes = recv(fd, &first, sizeof first, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (bytes == 0) return -EIO;
    if (bytes < 0) return -errno;
    if (static_cast<std::size_t>(bytes) > count) return -ENOSPC;
    bytes = recv(fd, to, count, MSG_DONTWAIT);
    return bytes >= 0 ? bytes : -errno;
  }
}

}  // namespace turnout::hca
