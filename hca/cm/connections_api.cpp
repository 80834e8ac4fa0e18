// SPDX-License-Identifier: BSD-3-Clause
// The exported functions that make and end connections and join groups. rdma_connect(3),
// rdma_accept(3), rdma_reject(3), rdma_disconnect(3), rdma_establish(3), rdma_join_multicast(3).
#include <cerrno>

#include "hca/cm/connection.h"
#include "hca/cm/export.h"
#include "hca/cm/multicast.h"

using namespace turnout::cm;

namespace {

int join(Id& id, const sockaddr* to, bool send_only, void* context) {
  Address address;
  if (!from_sockaddr(to, address) || !address.multicast()) return EINVAL;
  if (id.adapter == nullptr || !id.datagram()) return EINVAL;
  if (id.state != State::bound && id.state != State::addr_resolved &&
      id.state != State::route_resolved) {
    return EINVAL;
  }
  Group& g = id.groups.emplace_back();
  g.id = &id;
  g.address = address;
  g.gid = group_gid(address, id.verbs.ps);
  g.lid = group_lid(g.gid);
  g.send_only = send_only;
  g.context = context;

  Event& event = queue_event(id, RDMA_CM_EVENT_MULTICAST_JOIN);
  event.group = &g;
  rdma_ud_param& p = event.verbs.param.ud;
  p.private_data = context;
  p.ah_attr.dlid = g.lid;
  p.ah_attr.port_num = kPort;
  p.ah_attr.is_global = 1;
  p.ah_attr.grh.dgid = g.gid;
  p.qp_num = kMulticastQpn;
  p.qkey = qkey_of(id.verbs.ps);
  return 0;
}

int reject_for(rdma_cm_id* verbs, const void* data, std::uint8_t length, Reason reason) {
  const Lock lock(state_lock());
  return result(reject(id_of(verbs), data, length, reason));
}

}  // namespace

TURNOUT_EXPORT int rdma_connect(rdma_cm_id* verbs, rdma_conn_param* param) {
  return run(id_of(verbs), [&](Id& id) { return connect(id, param); });
}

TURNOUT_EXPORT int rdma_accept(rdma_cm_id* verbs, rdma_conn_param* param) {
  Id& id = id_of(verbs);
  if (!id.datagram()) return run(id, [&](Id&) { return accept(id, param); });
  {
    const Lock lock(state_lock());
    if (const int error = accept(id, param); error != 0) return failure(error);
  }
  release_event(id);  // no other follows on this side
  return 0;
}

TURNOUT_EXPORT int rdma_reject(rdma_cm_id* verbs, const void* data, std::uint8_t length) {
  return reject_for(verbs, data, length, kConsumerDefined);
}

TURNOUT_EXPORT int rdma_reject_ece(rdma_cm_id* verbs, const void* data, std::uint8_t length) {
  return reject_for(verbs, data, length, kVendorOptionNotSupported);
}

TURNOUT_EXPORT int rdma_establish(rdma_cm_id* verbs) {
  const Lock lock(state_lock());
  return result(establish(id_of(verbs)));
}

TURNOUT_EXPORT int rdma_disconnect(rdma_cm_id* verbs) {
  return run(id_of(verbs), [](Id& id) { return disconnect(id); });
}

TURNOUT_EXPORT int rdma_notify(rdma_cm_id* verbs, ibv_event_type type) {
  const Lock lock(state_lock());
  Id& id = id_of(verbs);
  if (type != IBV_EVENT_COMM_EST) return failure(EINVAL);
  work(id);
  if (id.state == State::established) return failure(EISCONN);
  if (id.state != State::accepted) return failure(EINVAL);
  clear_deadline(id);
  id.state = State::established;
  queue_event(id, RDMA_CM_EVENT_ESTABLISHED);
  return 0;
}

TURNOUT_EXPORT int rdma_set_local_ece(rdma_cm_id* verbs, ibv_ece* ece) {
  if (ece == nullptr || ece->comp_mask != 0 || verbs->qp != nullptr) return failure(EINVAL);
  const Lock lock(state_lock());
  id_of(verbs).ece.local = *ece;
  return 0;
}

TURNOUT_EXPORT int rdma_get_remote_ece(rdma_cm_id* verbs, ibv_ece* ece) {
  if (ece == nullptr || verbs->qp != nullptr) return failure(EINVAL);
  const Lock lock(state_lock());
  *ece = id_of(verbs).ece.remote;
  return 0;
}

TURNOUT_EXPORT int rdma_join_multicast(rdma_cm_id* verbs, sockaddr* address, void* context) {
  return run(id_of(verbs), [&](Id& id) { return join(id, address, false, context); });
}

TURNOUT_EXPORT int rdma_join_multicast_ex(rdma_cm_id* verbs, rdma_cm_join_mc_attr_ex* attr,
                                          void* context) {
  constexpr std::uint32_t kNeeded = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (attr == nullptr || attr->comp_mask != kNeeded ||
      attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
    return failure(EINVAL);
  }
  const bool send_only = attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  return run(id_of(verbs), [&](Id& id) { return join(id, attr->addr, send_only, context); });
}

TURNOUT_EXPORT int rdma_leave_multicast(rdma_cm_id* verbs, sockaddr* to) {
  Address address;
  if (!from_sockaddr(to, address)) return failure(EINVAL);
  Lock lock(state_lock());
  return result(leave(id_of(verbs), address, lock));
}
