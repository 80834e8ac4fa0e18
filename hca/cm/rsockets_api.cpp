// SPDX-License-Identifier: BSD-3-Clause
// rsocket(7): sockets over RDMA, a protocol of its own that is not implemented. Each function
// answers EOPNOTSUPP whatever its arguments, and the first of them says so in the log. No
// prototypes: rsocket.h's have arguments.
#include <sys/types.h>

#include <cerrno>
#include <mutex>

#include "base/log.h"
#include "hca/cm/export.h"

namespace {

ssize_t none(const char* name) {
  static std::once_flag said;
  std::call_once(said, [&] {
    TURNOUT_LOG(hca, warn,
                "{} failed: the virtual adapter does not support rsockets; use TCP sockets", name);
  });
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

// The widest of their results: -1 in each of the others, too.
#define TURNOUT_NO_RSOCKETS(name) \
  TURNOUT_EXPORT ssize_t name() { \
    return none(#name);           \
  }
TURNOUT_NO_RSOCKETS(rsocket)
TURNOUT_NO_RSOCKETS(rbind)
TURNOUT_NO_RSOCKETS(rlisten)
TURNOUT_NO_RSOCKETS(raccept)
TURNOUT_NO_RSOCKETS(rconnect)
TURNOUT_NO_RSOCKETS(rshutdown)
TURNOUT_NO_RSOCKETS(rclose)
TURNOUT_NO_RSOCKETS(rrecv)
TURNOUT_NO_RSOCKETS(rrecvfrom)
TURNOUT_NO_RSOCKETS(rrecvmsg)
TURNOUT_NO_RSOCKETS(rsend)
TURNOUT_NO_RSOCKETS(rsendto)
TURNOUT_NO_RSOCKETS(rsendmsg)
TURNOUT_NO_RSOCKETS(rread)
TURNOUT_NO_RSOCKETS(rreadv)
TURNOUT_NO_RSOCKETS(rwrite)
TURNOUT_NO_RSOCKETS(rwritev)
TURNOUT_NO_RSOCKETS(rpoll)
TURNOUT_NO_RSOCKETS(rselect)
TURNOUT_NO_RSOCKETS(rgetpeername)
TURNOUT_NO_RSOCKETS(rgetsockname)
TURNOUT_NO_RSOCKETS(rsetsockopt)
TURNOUT_NO_RSOCKETS(rgetsockopt)
TURNOUT_NO_RSOCKETS(rfcntl)
TURNOUT_NO_RSOCKETS(riomap)
TURNOUT_NO_RSOCKETS(riounmap)
TURNOUT_NO_RSOCKETS(riowrite)
