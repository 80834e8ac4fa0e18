// SPDX-License-Identifier: BSD-3-Clause
// rsocket(7): sockets over RDMA, a protocol of its own that is not implemented. Each function
// answers EOPNOTSUPP, and the first of them says so in the log.
#include <rdma/rsocket.h>

#include <cerrno>
#include <mutex>

#include "base/log.h"
#include "hca/cm/export.h"

namespace {

int none(const char* name) {
  static std::once_flag said;
  std::call_once(said, [&] {
    TURNOUT_LOG(hca, warn,
                "{} failed: the virtual adapter does not support rsockets; use TCP sockets", name);
  });
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

TURNOUT_EXPORT int rsocket(int, int, int) {
  return none("rsocket");
}
TURNOUT_EXPORT int rbind(int, const sockaddr*, socklen_t) {
  return none("rbind");
}
TURNOUT_EXPORT int rlisten(int, int) {
  return none("rlisten");
}
TURNOUT_EXPORT int raccept(int, sockaddr*, socklen_t*) {
  return none("raccept");
}
TURNOUT_EXPORT int rconnect(int, const sockaddr*, socklen_t) {
  return none("rconnect");
}
TURNOUT_EXPORT int rshutdown(int, int) {
  return none("rshutdown");
}
TURNOUT_EXPORT int rclose(int) {
  return none("rclose");
}
TURNOUT_EXPORT ssize_t rrecv(int, void*, size_t, int) {
  return none("rrecv");
}
TURNOUT_EXPORT ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) {
  return none("rrecvfrom");
}
TURNOUT_EXPORT ssize_t rrecvmsg(int, msghdr*, int) {
  return none("rrecvmsg");
}
TURNOUT_EXPORT ssize_t rsend(int, const void*, size_t, int) {
  return none("rsend");
}
TURNOUT_EXPORT ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) {
  return none("rsendto");
}
TURNOUT_EXPORT ssize_t rsendmsg(int, const msghdr*, int) {
  return none("rsendmsg");
}
TURNOUT_EXPORT ssize_t rread(int, void*, size_t) {
  return none("rread");
}
TURNOUT_EXPORT ssize_t rreadv(int, const iovec*, int) {
  return none("rreadv");
}
TURNOUT_EXPORT ssize_t rwrite(int, const void*, size_t) {
  return none("rwrite");
}
TURNOUT_EXPORT ssize_t rwritev(int, const iovec*, int) {
  return none("rwritev");
}
TURNOUT_EXPORT int rpoll(pollfd*, nfds_t, int) {
  return none("rpoll");
}
TURNOUT_EXPORT int rselect(int, fd_set*, fd_set*, fd_set*, timeval*) {
  return none("rselect");
}
TURNOUT_EXPORT int rgetpeername(int, sockaddr*, socklen_t*) {
  return none("rgetpeername");
}
TURNOUT_EXPORT int rgetsockname(int, sockaddr*, socklen_t*) {
  return none("rgetsockname");
}
TURNOUT_EXPORT int rsetsockopt(int, int, int, const void*, socklen_t) {
  return none("rsetsockopt");
}
TURNOUT_EXPORT int rgetsockopt(int, int, int, void*, socklen_t*) {
  return none("rgetsockopt");
}
TURNOUT_EXPORT int rfcntl(int, int, ...) {
  return none("rfcntl");
}
TURNOUT_EXPORT off_t riomap(int, void*, size_t, int, int, off_t) {
  return none("riomap");
}
TURNOUT_EXPORT int riounmap(int, void*, size_t) {
  return none("riounmap");
}
TURNOUT_EXPORT size_t riowrite(int, const void*, size_t, off_t, int) {
  return static_cast<size_t>(none("riowrite"));
}
