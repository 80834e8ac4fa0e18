#include "hca/cm/connection.h"

#include <sys/random.h>
#include <unistd.h>

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
using std::chrono::nanoseconds;
using std::chrono::seconds;

// A peer may be busy with other things for long; its end is noticed at once by other means.
constexpr seconds kPatience{60};
// Who connects sends its request with the next system call.
constexpr seconds kSilence{5};
constexpr milliseconds kRetryWait{5}, kNoDescriptorsWait{100};
// A listener that opens again between two connections (perftest -R) has, on a fabric, the time that
// address and route take its client. Here they take none, so a missing listener is waited for.
constexpr milliseconds kListenerWait{500};
constexpr std::size_t kMaxSilent = 1024;
// IBTA 12.9.8.4: as long as a packet may still be under way.
constexpr nanoseconds kTimewait{std::int64_t{4096} << kAckTimeout};
constexpr std::uint32_t k24Bits = 0xffffff;

std::uint32_t random_psn() {
  std::uint32_t psn = 0;
  if (getrandom(&psn, sizeof psn, GRND_NONBLOCK) != sizeof psn) {
    psn = static_cast<std::uint32_t>(Clock::now().time_since_epoch().count());
  }
  return psn & k24Bits;
}

void close_socket(Id& id) {
  unwatch(id);
  id.socket.reset();
}

// Nothing more comes of this connection.
void finish(Id& id) {
  clear_deadline(id);
  close_socket(id);
  id.state = State::over;
}

void forget_silent(Id& id) {
  Id& listener = *id.listener;
  retire(id);
  listener.silent.remove_if([&](const auto& child) { return child.get() == &id; });
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

// What the user of the peer gave, in a field of the size that the CM's message has: the rest is
// zero, rdma_get_cm_event(3).
template <class Param>
void fill_private(Event& event, Param& param, const Message& m) {
  const std::uint8_t size = private_limit(m.kind);
  std::memcpy(event.private_data, m.private_data, m.private_length);
  param.private_data = event.private_data;
  param.private_data_len = size;
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
  id.remote_ece.vendor_id = m.ece_vendor;
  id.remote_ece.options = m.ece_options;
}

void report_disconnected(Id& id, int status = 0) {
  close_socket(id);
  id.state = State::disconnected;
  queue_event(id, RDMA_CM_EVENT_DISCONNECTED, status);
  set_deadline(id, kTimewait);
}

void report_rejected(Id& id, std::uint32_t reason, const Message* m = nullptr) {
  static_cast<void>(fail_qp(id));
  finish(id);
  Event& event = queue_event(id, RDMA_CM_EVENT_REJECTED, static_cast<int>(reason));
  if (m != nullptr) fill_private(event, event.verbs.param.conn, *m);
}

void report_unreachable(Id& id, int status) {
  finish(id);
  queue_event(id, RDMA_CM_EVENT_UNREACHABLE, status);
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
    case State::disconnecting:
      return report_disconnected(id);
    default:
      return close_socket(id);
  }
}

bool fits(const Id& listener, const Message& m) {
  if (m.port_space != static_cast<std::uint16_t>(listener.verbs.ps)) return false;
  const ibv_qp_type own = listener.verbs.qp_type;
  if (own == IBV_QPT_XRC_RECV) return m.qp_type == IBV_QPT_XRC_SEND;
  return m.qp_type == static_cast<std::uint32_t>(own) &&
         (own == IBV_QPT_UD) == (m.kind == Kind::sidr_req);
}

// The first message on an accepted socket.
void admit(Id& id, const Message& m) {
  Id& listener = *id.listener;
  if (!fits(listener, m) || bind_adapter(id) != 0) {
    TURNOUT_LOG(hca, info, "rdma_listen: a request for queue pairs of type {} is rejected",
                m.qp_type);
    Message answer = message_of(id, m.kind == Kind::req ? Kind::rej : Kind::sidr_rep);
    answer.status = m.kind == Kind::req ? kConsumerDefined : static_cast<unsigned>(kSidrRejected);
    static_cast<void>(send(id.socket.get(), answer));
    return forget_silent(id);
  }
  const auto own = std::find_if(listener.silent.begin(), listener.silent.end(),
                                [&](const auto& child) { return child.get() == &id; });
  own->release();  // the event's, and the user's when it is taken
  listener.silent.erase(own);
  id.listener = nullptr;
  clear_deadline(id);
  id.request = m;
  id.verbs.qp_type = listener.verbs.qp_type;
  Address here = m.destination;
  here.port = local_address(listener).port;
  set_local(id, here);
  set_peer(id, m.source);
  id.verbs.route.addr.addr.ibaddr.dgid = m.gid;
  set_route(id);
  adopt_peer(id, m);
  id.retry_count = m.retry_count;
  id.ack_timeout = listener.ack_timeout;
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
    Message no = message_of(id, Kind::rej);
    no.status = kConsumerDefined;
    static_cast<void>(send(id.socket.get(), no));
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
      if (id.state != State::disconnecting) {
        static_cast<void>(send(id.socket.get(), message_of(id, Kind::drep)));
      }
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
        TURNOUT_LOG(hca, warn, "rdma_listen: accept: {}", std::strerror(errno));
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

bool valid_param(const Id& id, const rdma_conn_param* p, Kind kind, std::size_t before = 0) {
  if (p == nullptr) return before <= private_limit(kind);
  if (p->private_data_len + before > private_limit(kind)) return false;
  if (p->private_data_len != 0 && p->private_data == nullptr) return false;
  return id.datagram() || ((p->responder_resources == RDMA_MAX_RESP_RES ||
                            p->responder_resources <= id.adapter->max_responder_resources) &&
                           (p->initiator_depth == RDMA_MAX_INIT_DEPTH ||
                            p->initiator_depth <= id.adapter->max_initiator_depth));
}

void add_private(Message& m, const void* data, std::size_t length) {
  if (length == 0) return;
  std::memcpy(m.private_data + m.private_length, data, length);
  m.private_length = static_cast<std::uint8_t>(m.private_length + length);
}

void fill_qp(const Id& id, const rdma_conn_param* p, Message& m) {
  if (id.verbs.qp != nullptr) {
    m.qpn = id.verbs.qp->qp_num;
    m.srq = id.verbs.qp->srq != nullptr ? 1 : 0;
  } else if (p != nullptr) {
    m.qpn = p->qp_num & k24Bits;
    m.srq = p->srq;
  }
}

// The request is ready: sends it, now or when there is a listener with room for it.
int try_connect(Id& id) {
  const int error = connect_port(id.socket.get(), static_cast<std::uint16_t>(id.verbs.ps),
                                 id.request.destination);
  if (error == EAGAIN || (error == ECONNREFUSED && Clock::now() < id.refused_until)) {
    set_deadline(id, kRetryWait);
    return 0;
  }
  if (error == ECONNREFUSED) {
    if (id.datagram()) {
      report_unreachable(id, kSidrNoService);
    } else {
      report_rejected(id, kInvalidServiceId);
    }
    return 0;
  }
  if (error != 0) return error;
  // A listener that has gone already is noticed by the end of the socket.
  static_cast<void>(send(id.socket.get(), id.request));
  set_deadline(id, kPatience);
  return watch(id);
}

}  // namespace

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
        TURNOUT_LOG(hca, warn,
                    "librdmacm: a peer sent what is no message of the protocol: dropped");
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
    case State::disconnecting:
      return report_disconnected(id, -ETIMEDOUT);
    case State::disconnected:
      queue_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
      return;
    default:
      return;
  }
}

int connect(Id& id, const rdma_conn_param* p) {
  const Kind kind = id.datagram() ? Kind::sidr_req : Kind::req;
  if (id.state != State::route_resolved || !valid_param(id, p, kind, id.connect_data.size())) {
    return EINVAL;
  }
  const Adapter& a = *id.adapter;
  id.responder_resources = a.max_responder_resources;
  id.initiator_depth = a.max_initiator_depth;
  id.local_psn = random_psn();
  Message m = message_of(id, kind);
  m.retry_count = m.rnr_retry_count = 7;
  if (p != nullptr) {
    if (p->responder_resources != RDMA_MAX_RESP_RES) {
      id.responder_resources = p->responder_resources;
    }
    if (p->initiator_depth != RDMA_MAX_INIT_DEPTH) id.initiator_depth = p->initiator_depth;
    m.flow_control = p->flow_control;
    m.retry_count = std::min<std::uint8_t>(p->retry_count, 7);
    m.rnr_retry_count = std::min<std::uint8_t>(p->rnr_retry_count, 7);
  }
  fill_qp(id, p, m);
  m.psn = id.local_psn;
  m.responder_resources = id.responder_resources;
  m.initiator_depth = id.initiator_depth;
  m.source = local_address(id);
  m.destination = peer_address(id);
  add_private(m, id.connect_data.data(), id.connect_data.size());
  if (p != nullptr) add_private(m, p->private_data, p->private_data_len);
  id.retry_count = m.retry_count;
  id.request = m;
  id.give_up = Clock::now() + kPatience;
  id.refused_until = Clock::now() + kListenerWait;
  id.state = State::connecting;
  const int error = try_connect(id);
  if (error != 0) id.state = State::route_resolved;
  return error;
}

int accept(Id& id, const rdma_conn_param* p) {
  work(id);
  const Kind kind = id.datagram() ? Kind::sidr_rep : Kind::rep;
  if (id.state != State::requested || !valid_param(id, p, kind)) return EINVAL;
  Message m = message_of(id, kind);
  fill_qp(id, p, m);
  if (p != nullptr) add_private(m, p->private_data, p->private_data_len);
  if (id.datagram()) {
    m.qkey = qkey_of(id.verbs.ps);
    const int error = send(id.socket.get(), m);
    finish(id);
    return error == EPIPE ? 0 : error;  // who asked has gone
  }
  if (p != nullptr) {
    if (p->responder_resources != RDMA_MAX_RESP_RES) {
      id.responder_resources = p->responder_resources;
    }
    if (p->initiator_depth != RDMA_MAX_INIT_DEPTH) id.initiator_depth = p->initiator_depth;
    m.flow_control = p->flow_control;
  }
  m.rnr_retry_count =
      p != nullptr ? std::min<std::uint8_t>(p->rnr_retry_count, 7) : id.request.rnr_retry_count;
  m.psn = id.local_psn;
  m.responder_resources = id.responder_resources;
  m.initiator_depth = id.initiator_depth;
  if (const int error = connect_qp(id); error != 0) return error;
  if (const int error = send(id.socket.get(), m); error != 0) return error;
  id.state = State::accepted;
  set_deadline(id, kPatience);
  return 0;
}

int reject(Id& id, const void* data, std::uint8_t length, Reason reason) {
  work(id);
  const bool answerable =
      id.state == State::requested || id.state == State::responded || id.state == State::accepted;
  const Kind kind = id.datagram() ? Kind::sidr_rep : Kind::rej;
  if (!answerable || length > private_limit(kind) || (length != 0 && data == nullptr)) {
    return EINVAL;
  }
  Message m = message_of(id, kind);
  m.status = id.datagram() ? static_cast<std::uint32_t>(kSidrRejected) : reason;
  add_private(m, data, length);
  const int error = send(id.socket.get(), m);
  finish(id);
  return error == EPIPE ? 0 : error;
}

int establish(Id& id) {
  work(id);
  if (id.state != State::responded || id.verbs.qp != nullptr) return EINVAL;
  if (const int error = send(id.socket.get(), message_of(id, Kind::rtu)); error != 0) return error;
  id.state = State::established;
  return 0;
}

int disconnect(Id& id) {
  if (id.state < State::connecting || id.state == State::silent) return EINVAL;
  if (id.watched) work(id);
  if (const int error = fail_qp(id); error != 0) return error;
  const bool open =
      id.state == State::responded || id.state == State::accepted || id.state == State::established;
  // Nothing to end: the peer was quicker, or there never was a connection.
  if (!open) return 0;
  clear_deadline(id);
  id.state = State::disconnecting;
  if (send(id.socket.get(), message_of(id, Kind::dreq)) != 0) {
    report_disconnected(id);
  } else {
    set_deadline(id, kPatience);
  }
  return 0;
}

}  // namespace turnout::cm
