// SPDX-License-Identifier: BSD-3-Clause
// The steps of a connection that the user's calls take.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/cm/connection.h"
#include "hca/cm/multicast.h"
#include "hca/cm/port.h"
#include "hca/cm/qp.h"

namespace turnout::cm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetryWait{5};
// A listener that opens again between two connections (perftest -R) has, on a fabric, the time that
// address and route take its client. Here they take none, so a missing listener is waited for; half
// a second was too short on two cores that were busy with a build.
constexpr milliseconds kListenerWait{2000};
constexpr std::uint32_t k24Bits = 0xffffff;

bool valid_param(const Id& id, const rdma_conn_param* p, Kind kind, std::size_t before = 0) {
  if (p == nullptr) return before <= private_limit(kind, local_address(id));
  if (p->private_data_len + before > private_limit(kind, local_address(id))) return false;
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

// What the user asks of the connection; what it leaves to us stays as it is.
void set_depths(Id& id, const rdma_conn_param& p) {
  if (p.responder_resources != RDMA_MAX_RESP_RES) id.responder_resources = p.responder_resources;
  if (p.initiator_depth != RDMA_MAX_INIT_DEPTH) id.initiator_depth = p.initiator_depth;
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

}  // namespace

int try_connect(Id& id) {
  const int error = connect_port(id.socket.get(), id.request.port_space, id.request.destination);
  if (error == EAGAIN || (error == ECONNREFUSED && Clock::now() < id.refused_until)) {
    set_deadline(id, kRetryWait);
    return 0;
  }
  if (error == ECONNREFUSED) {
    id.datagram() ? report_unreachable(id, kSidrNoService) : report_rejected(id, kInvalidServiceId);
    return 0;
  }
  if (error != 0) return error;
  // A listener that has gone already is noticed by the end of the socket.
  static_cast<void>(send(id.socket.get(), id.request));
  set_deadline(id, kPatience);
  return watch(id);
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
    set_depths(id, *p);
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
  m.port_space = space_of(id, m.destination);
  if (m.destination.ib()) m.destination.port = static_cast<std::uint16_t>(m.destination.service.id);
  add_private(m, id.connect_data.data(), id.connect_data.size());
  if (p != nullptr) add_private(m, p->private_data, p->private_data_len);
  id.retry_count = m.retry_count;
  id.request = m;
  id.give_up = Clock::now() + kPatience;
  id.refused_until = Clock::now() + (id.options.refused_at_once ? milliseconds{0} : kListenerWait);
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
    set_depths(id, *p);
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
  if (!answerable || length > private_limit(kind, local_address(id)) ||
      (length != 0 && data == nullptr)) {
    return EINVAL;
  }
  Message m = message_of(id, kind, id.datagram() ? std::uint32_t{kSidrRejected} : reason);
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
