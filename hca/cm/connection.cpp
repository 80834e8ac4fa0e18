// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/connection.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "hca/cm/multicast.h"
#include "hca/cm/port.h"
#include "hca/cm/qp.h"

namespace turnout::cm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Who connects sends its request with the next system call.
constexpr seconds kSilence{5};
constexpr milliseconds kNoDescriptorsWait{100};
constexpr milliseconds kLeastWay{1};
constexpr std::size_t kMaxSilent = 1024;
// IBTA 12.9.8.4: as long as a packet may still be under way.
constexpr std::chrono::nanoseconds kTimewait{std::int64_t{4096} << kAckTimeout};

void forget_silent(Id& id) {
  Id& listener = *id.listener;
  retire(id);
  listener.silent.remove_if([&](const auto& child) { return child.get() == &id; });
}

void fill_connection(Event& event, const Message& m) {
  rdma_conn_param& p = event.verbs.param.conn;
  fill_private(event, p, m);
  p.responder_resources = m.initiator_depth;
  p.initiator_depth = m.responder_resources;
  p.flow_control = m.flow_control;
  p.retry_count = m.retry_count;
  p.rnr_retry_count = m.rnr_retry_count;
  p.srq = m.srq;
  p.qp_num = m.qpn;
}

void adopt_peer(Id& id, const Message& m) {
  id.remote_qpn = m.qpn;
  id.remote_psn = m.psn;
  id.remote_lid = m.lid;
  id.rnr_retry_count = m.rnr_retry_count;
  id.responder_resources = std::min(m.initiator_depth, id.adapter->max_responder_resources);
  id.initiator_depth = std::min(m.responder_resources, id.adapter->max_initiator_depth);
  id.ece.remote.vendor_id = m.ece_vendor;
  id.ece.remote.options = m.ece_options;
}

// The peer has ended the connection. On a wire that message arrives after the last one of the queue
// pair, and a program that looks at its completions before its events has found that one first.
// Here both may arrive while it is stopped between the two looks, and it would then destroy the
// queue pair with the completions that it has not seen. So it is told at the next look.
void end_later(Id& id) {
  id.ending = true;
  close_socket(id);
  set_deadline(id, kLeastWay);
}

// The peer has closed its socket: it destroyed its identifier, or its process ended. The events are
// those of the message that a kernel would send for it (IBTA 12.9.6).
void ended(Id& id) {
  switch (id.state) {
    case State::silent:
      return forget_silent(id);
    case State::connecting:
      return id.datagram() ? report_unreachable(id, kSidrRejected)
                           : report_rejected(id, kConsumerDefined);
    case State::requested:
      // Who asks for a datagram service and goes is not missed.
      return id.datagram() ? finish(id) : report_rejected(id, kTimedOut);
    case State::accepted:
    case State::responded:
      return report_rejected(id, kConsumerDefined);
    case State::established:
      return end_later(id);
    case State::disconnecting:
      return report_disconnected(id);
    default:
      return close_socket(id);
  }
}

bool fits(const Id& listener, const Message& m) {
  const Address own_address = local_address(listener);
  if (m.port_space != space_of(listener, own_address) || m.source.ib() != own_address.ib())
    return false;
  const ibv_qp_type own = listener.verbs.qp_type;
  if (own == IBV_QPT_XRC_RECV) return m.qp_type == IBV_QPT_XRC_SEND;
  return m.qp_type == static_cast<std::uint32_t>(own) &&
         (own == IBV_QPT_UD) == (m.kind == Kind::sidr_req);
}

// The first message on an accepted socket.
void admit(Id& id, const Message& m) {
  Id& listener = *id.listener;
  if (!fits(listener, m) || bind_adapter(id) != 0) {
    TURNOUT_LOG(
        hca, info,
        "accepting a connection failed: queue pairs of type {}: the listener has another type",
        m.qp_type);
    const Message no = m.kind == Kind::req ? message_of(id, Kind::rej, kConsumerDefined)
                                           : message_of(id, Kind::sidr_rep, kSidrRejected);
    static_cast<void>(send(id.socket.get(), no));
    return forget_silent(id);
  }
  const auto own = std::find_if(listener.silent.begin(), listener.silent.end(),
                                [&](const auto& child) { return child.get() == &id; });
  static_cast<void>(own->release());  // the event's, and the user's when it is taken
  listener.silent.erase(own);
  id.listener = nullptr;
  clear_deadline(id);
  id.request = m;
  id.verbs.qp_type = listener.verbs.qp_type;
  Address here = m.destination, there = m.source;
  const Address listens = local_address(listener);
  here.port = listens.port;
  if (here.ib()) {
    // As Linux: a request tells the peer's port and not its service.
    here.service = listens.service;
    there.port = 0;
    there.service.id = there.service.mask = 0;
  }
  set_local(id, here);
  set_peer(id, there);
  id.verbs.route.addr.addr.ibaddr.dgid = m.gid;
  set_route(id);
  adopt_peer(id, m);
  id.retry_count = m.retry_count;
  id.options.ack_timeout = listener.options.ack_timeout;
  id.local_psn = random_psn();
  id.state = State::requested;

  Event& event = queue_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST);
  event.verbs.id = &id.verbs;
  event.verbs.listen_id = &listener.verbs;
  if (id.datagram()) {
    fill_private(event, event.verbs.param.ud, m);
  } else {
    fill_connection(event, m);
  }
}

void on_rep(Id& id, const Message& m) {
  clear_deadline(id);
  adopt_peer(id, m);
  id.state = State::responded;
  if (id.verbs.qp == nullptr) {
    fill_connection(queue_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE), m);
    return;
  }
  if (const int error = connect_qp(id); error != 0) {
    static_cast<void>(send(id.socket.get(), message_of(id, Kind::rej, kConsumerDefined)));
    static_cast<void>(fail_qp(id));
    finish(id);
    queue_event(id, RDMA_CM_EVENT_CONNECT_ERROR, -error);
    return;
  }
  // If the peer is gone, that follows as an event of its own.
  static_cast<void>(send(id.socket.get(), message_of(id, Kind::rtu)));
  id.state = State::established;
  fill_connection(queue_event(id, RDMA_CM_EVENT_ESTABLISHED), m);
}

void on_sidr_rep(Id& id, const Message& m) {
  if (m.status != kSidrValid) return report_unreachable(id, static_cast<int>(m.status));
  finish(id);
  Event& event = queue_event(id, RDMA_CM_EVENT_ESTABLISHED);
  rdma_ud_param& p = event.verbs.param.ud;
  fill_private(event, p, m);
  p.ah_attr.dlid = m.lid;
  p.ah_attr.port_num = kPort;
  p.qp_num = m.qpn;
  p.qkey = m.qkey;
}

bool expected(const Id& id, Kind kind) {
  const auto any = [kind](auto... kinds) { return ((kind == kinds) || ...); };
  switch (id.state) {
    case State::silent:
      return any(Kind::req, Kind::sidr_req);
    case State::connecting:
      return id.datagram() ? any(Kind::sidr_rep) : any(Kind::rep, Kind::rej);
    case State::responded:
      return any(Kind::dreq, Kind::rej);
    case State::accepted:
      return any(Kind::rtu, Kind::rej, Kind::dreq);
    case State::established:
      return any(Kind::rtu, Kind::dreq);  // RTU: after rdma_notify()
    case State::disconnecting:
      return any(Kind::rtu, Kind::dreq, Kind::drep);  // both may have sent a DREQ
    default:
      return false;
  }
}

void handle(Id& id, const Message& m) {
  switch (m.kind) {
    case Kind::req:
    case Kind::sidr_req:
      return admit(id, m);
    case Kind::rep:
      return on_rep(id, m);
    case Kind::rtu:
      if (id.state != State::accepted) return;
      clear_deadline(id);
      id.state = State::established;
      queue_event(id, RDMA_CM_EVENT_ESTABLISHED);
      return;
    case Kind::rej:
      return report_rejected(id, m.status, &m);
    case Kind::dreq:
      if (id.state == State::disconnecting) return report_disconnected(id);
      static_cast<void>(send(id.socket.get(), message_of(id, Kind::drep)));
      if (id.state == State::established) return end_later(id);
      return report_disconnected(id);
    case Kind::drep:
      return report_disconnected(id);
    case Kind::sidr_rep:
      return on_sidr_rep(id, m);
  }
}

void accept_all(Id& listener) {
  // Level-triggered: what is left is found next time.
  for (int n = 0; n < 64; ++n) {
    Descriptor socket = accept_port(listener.socket.get());
    if (!socket) {
      if (errno != EAGAIN) {
        TURNOUT_LOG(
            hca, warn,
            "accepting a connection failed: {}; retrying, raise the open-file limit (ulimit -n)",
            std::strerror(errno));
        unwatch(listener);
        set_deadline(listener, kNoDescriptorsWait);
      }
      return;
    }
    if (listener.silent.size() >= kMaxSilent) continue;
    auto child = make_id(listener.channel, nullptr, listener.verbs.ps, listener.verbs.qp_type);
    Id& id = *child;
    id.socket = std::move(socket);
    id.state = State::silent;
    id.listener = &listener;
    if (watch(id) != 0) continue;
    listener.silent.push_back(std::move(child));
    set_deadline(id, kSilence);
    work(id);
  }
}

}  // namespace

std::uint32_t random_psn() {
  std::uint32_t psn = 0;
  if (getrandom(&psn, sizeof psn, GRND_NONBLOCK) != sizeof psn) {
    psn = static_cast<std::uint32_t>(Clock::now().time_since_epoch().count());
  }
  return psn & 0xff'ffff;
}

Message message_of(const Id& id, Kind kind, std::uint32_t status) {
  Message m;
  m.kind = kind;
  m.status = status;
  m.port_space = space_of(id, local_address(id));
  m.qp_type = static_cast<std::uint32_t>(id.verbs.qp_type);
  if (id.adapter != nullptr) {
    m.lid = id.adapter->lid;
    m.gid = id.adapter->gid;
  }
  m.ece_vendor = id.ece.local.vendor_id;
  m.ece_options = id.ece.local.options;
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

void work(Id& id) {
  if (id.state == State::listening) return accept_all(id);
  while (id.watched) {
    Message m;
    const Received what = receive(id.socket.get(), m);
    if (what == Received::nothing) return;
    const bool silent = id.state == State::silent;
    if (what == Received::message && expected(id, m.kind)) {
      handle(id, m);
    } else {
      if (what != Received::ended) {
        TURNOUT_LOG(
            hca, warn,
            "reading a message of librdmacm failed: invalid format; closing the connection, use "
            "one version of Turnout in all processes");
      }
      ended(id);
    }
    // It may be freed now. What a request is followed by is told after the request.
    if (silent) return;
  }
}

void expire(Id& id) {
  switch (id.state) {
    case State::silent:
      return forget_silent(id);
    case State::listening:
      static_cast<void>(watch(id));
      return;
    case State::connecting:
      if (!id.watched && Clock::now() < id.give_up) {
        if (const int error = try_connect(id); error != 0) report_unreachable(id, -error);
        return;
      }
      return report_unreachable(id, -ETIMEDOUT);
    case State::accepted:
      return report_unreachable(id, -ETIMEDOUT);
    case State::established:
      if (id.ending) report_disconnected(id);
      return;
    case State::disconnecting:
      return report_disconnected(id, -ETIMEDOUT);
    case State::disconnected:
      queue_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
      return;
    default:
      return;
  }
}

}  // namespace turnout::cm
