// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/connection.h"

#include <sys/random.h>

#include "hca/cm/qp.h"

namespace turnout::cm {
namespace {

// IBTA 12.9.8.4: as long as a packet may still be under way.
constexpr std::chrono::nanoseconds kTimewait{std::int64_t{4096} << kAckTimeout};

}  // namespace

std::uint32_t random_psn() {
  std::uint32_t psn = 0;
  if (getrandom(&psn, sizeof psn, GRND_NONBLOCK) != sizeof psn) {
    psn = static_cast<std::uint32_t>(Clock::now().time_since_epoch().count());
  }
  return psn & 0xff'ffff;
}

Message message_of(const Id& id, Kind kind) {
  Message m;
  m.kind = kind;
  m.port_space = static_cast<std::uint16_t>(id.verbs.ps);
  m.qp_type = static_cast<std::uint32_t>(id.verbs.qp_type);
  if (id.adapter != nullptr) {
    m.lid = id.adapter->lid;
    m.gid = id.adapter->gid;
  }
  m.ece_vendor = id.local_ece.vendor_id;
  m.ece_options = id.local_ece.options;
  return m;
}

void close_socket(Id& id) {
  unwatch(id);
  id.socket.reset();
}

void finish(Id& id) {
  clear_deadline(id);
  close_socket(id);
  id.state = State::over;
}

void report_disconnected(Id& id, int status) {
  close_socket(id);
  id.state = State::disconnected;
  queue_event(id, RDMA_CM_EVENT_DISCONNECTED, status);
  set_deadline(id, kTimewait);
}

void report_rejected(Id& id, std::uint32_t reason, const Message* m) {
  static_cast<void>(fail_qp(id));
  finish(id);
  Event& event = queue_event(id, RDMA_CM_EVENT_REJECTED, static_cast<int>(reason));
  if (m != nullptr) fill_private(event, event.verbs.param.conn, *m);
}

void report_unreachable(Id& id, int status) {
  finish(id);
  queue_event(id, RDMA_CM_EVENT_UNREACHABLE, status);
}

}  // namespace turnout::cm
