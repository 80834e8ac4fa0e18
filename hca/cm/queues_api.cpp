// SPDX-License-Identifier: BSD-3-Clause
// The exported functions about queue pairs, shared receive queues and their completion queues.
// rdma_create_qp(3), rdma_create_srq(3), rdma_init_qp_attr(3).
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstring>

#include "hca/cm/export.h"
#include "hca/cm/multicast.h"
#include "hca/cm/qp.h"

using namespace turnout::cm;

namespace {

struct Queue {
  ibv_comp_channel*& channel;
  ibv_cq*& cq;
};
Queue send_of(rdma_cm_id& id) {
  return {id.send_cq_channel, id.send_cq};
}
Queue receive_of(rdma_cm_id& id) {
  return {id.recv_cq_channel, id.recv_cq};
}

void destroy(Queue q) {
  if (q.cq != nullptr) ibv_destroy_cq(q.cq);
  if (q.channel != nullptr) ibv_destroy_comp_channel(q.channel);
  q.cq = nullptr;
  q.channel = nullptr;
}

// rdma_get_send_comp() and its kin expect the identifier as the queue's context.
bool create(rdma_cm_id& id, Queue q, std::uint32_t entries) {
  q.channel = ibv_create_comp_channel(id.verbs);
  if (q.channel == nullptr) return false;
  q.cq = ibv_create_cq(id.verbs, static_cast<int>(entries), &id, q.channel, 0);
  return q.cq != nullptr;
}

// The queues that the user left to us.
bool create_missing(rdma_cm_id& id, const ibv_qp_init_attr_ex& a) {
  const bool send = a.send_cq == nullptr && id.send_cq == nullptr && a.cap.max_send_wr > 0;
  const bool receive = a.recv_cq == nullptr && id.recv_cq == nullptr && a.cap.max_recv_wr > 0;
  if (send && !create(id, send_of(id), a.cap.max_send_wr)) return false;
  return !receive || create(id, receive_of(id), a.cap.max_recv_wr);
}

// Those of an XRC SRQ are shared with the queue pair and go with the SRQ.
void destroy_queues(rdma_cm_id& id) {
  if (id.qp != nullptr || id.srq != nullptr) return;
  destroy(receive_of(id));
  destroy(send_of(id));
}

int fail_create(rdma_cm_id& id, int error) {
  destroy_queues(id);
  return failure(error);
}

// The domain of an XRC target or SRQ, where the user left it out: 0 or errno.
template <class Attributes>
int add_xrcd(const Id& id, Attributes& a, std::uint32_t mask_bit) {
  if ((a.comp_mask & mask_bit) != 0 && a.xrcd != nullptr) return 0;
  const Lock lock(state_lock());
  a.xrcd = default_xrcd(*id.adapter);
  if (a.xrcd == nullptr) return errno;
  a.comp_mask |= mask_bit;
  return 0;
}

// The protection domain, likewise.
template <class Attributes>
int add_pd(const rdma_cm_id& id, Attributes& a, std::uint32_t mask_bit) {
  if ((a.comp_mask & mask_bit) == 0 || a.pd == nullptr) a.pd = id.pd;
  a.comp_mask |= mask_bit;
  return a.pd->context == id.verbs ? 0 : EINVAL;
}

// Adapters round a send queue's entries up and grant inline data that was not asked for; programs
// (rdma_xclient) use it.
ibv_qp* create_with_inline(ibv_context* context, ibv_qp_init_attr_ex& a) {
  constexpr std::uint32_t kGranted = 64;
  const std::uint32_t wanted = a.cap.max_inline_data;
  if (wanted < kGranted && a.cap.max_send_wr > 0) {
    a.cap.max_inline_data = kGranted;
    if (ibv_qp* const qp = ibv_create_qp_ex(context, &a); qp != nullptr) return qp;
    a.cap.max_inline_data = wanted;
  }
  return ibv_create_qp_ex(context, &a);
}

}  // namespace

TURNOUT_EXPORT int rdma_create_qp_ex(rdma_cm_id* verbs, ibv_qp_init_attr_ex* attr) {
  Id& id = id_of(verbs);
  if (attr == nullptr || verbs->qp != nullptr || id.adapter == nullptr) return failure(EINVAL);
  const auto other = [](const ibv_cq* own, const ibv_cq* given) {
    return own != nullptr && given != nullptr && own != given;
  };
  if (other(verbs->send_cq, attr->send_cq) || other(verbs->recv_cq, attr->recv_cq)) {
    return failure(EINVAL);
  }
  const int error = attr->qp_type == IBV_QPT_XRC_RECV ? add_xrcd(id, *attr, IBV_QP_INIT_ATTR_XRCD)
                                                      : add_pd(*verbs, *attr, IBV_QP_INIT_ATTR_PD);
  if (error != 0) return failure(error);
  if (!create_missing(*verbs, *attr)) return fail_create(*verbs, errno);
  if (attr->send_cq == nullptr) attr->send_cq = verbs->send_cq;
  if (attr->recv_cq == nullptr) attr->recv_cq = verbs->recv_cq;
  if (attr->srq == nullptr && attr->qp_type != IBV_QPT_XRC_SEND &&
      attr->qp_type != IBV_QPT_XRC_RECV) {
    attr->srq = verbs->srq;
  }
  ibv_qp* const qp = create_with_inline(verbs->verbs, *attr);
  if (qp == nullptr) return fail_create(*verbs, errno);
  const Lock lock(state_lock());
  if (const int unprepared = prepare_qp(id, qp); unprepared != 0) {
    ibv_destroy_qp(qp);
    return fail_create(*verbs, unprepared);
  }
  if (qp->pd != nullptr) verbs->pd = qp->pd;
  verbs->qp = qp;
  return 0;
}

TURNOUT_EXPORT int rdma_create_qp(rdma_cm_id* verbs, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (attr == nullptr) return failure(EINVAL);
  ibv_qp_init_attr_ex ex{};
  // The struct is the beginning of the extended one.
  constexpr std::size_t kCommon = offsetof(ibv_qp_init_attr_ex, comp_mask);
  std::memcpy(&ex, attr, kCommon);
  if (pd != nullptr) {
    ex.comp_mask = IBV_QP_INIT_ATTR_PD;
    ex.pd = pd;
  }
  if (rdma_create_qp_ex(verbs, &ex) != 0) return -1;
  std::memcpy(attr, &ex, kCommon);
  return 0;
}

TURNOUT_EXPORT void rdma_destroy_qp(rdma_cm_id* verbs) {
  ibv_qp* qp = verbs->qp;
  {
    const Lock lock(state_lock());
    leave_all(id_of(verbs));
    verbs->qp = nullptr;
  }
  // Without the lock: the queues wait for the user to acknowledge their events.
  if (qp != nullptr) ibv_destroy_qp(qp);
  destroy_queues(*verbs);
}

TURNOUT_EXPORT int rdma_create_srq_ex(rdma_cm_id* verbs, ibv_srq_init_attr_ex* attr) {
  Id& id = id_of(verbs);
  if (attr == nullptr || verbs->srq != nullptr || id.adapter == nullptr) return failure(EINVAL);
  if (const int error = add_pd(*verbs, *attr, IBV_SRQ_INIT_ATTR_PD); error != 0)
    return failure(error);
  const bool xrc =
      (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type == IBV_SRQT_XRC;
  if (xrc) {
    if (const int error = add_xrcd(id, *attr, IBV_SRQ_INIT_ATTR_XRCD); error != 0)
      return failure(error);
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr->cq == nullptr) {
      if (verbs->recv_cq == nullptr && !create(*verbs, receive_of(*verbs), attr->attr.max_wr)) {
        return fail_create(*verbs, errno);
      }
      attr->cq = verbs->recv_cq;
      attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    }
  }
  ibv_srq* const srq = ibv_create_srq_ex(verbs->verbs, attr);
  if (srq == nullptr) return fail_create(*verbs, errno);
  if (verbs->pd == nullptr) verbs->pd = attr->pd;
  verbs->srq = srq;
  return 0;
}

TURNOUT_EXPORT int rdma_create_srq(rdma_cm_id* verbs, ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (attr == nullptr) return failure(EINVAL);
  ibv_srq_init_attr_ex ex{};
  ex.srq_context = attr->srq_context;
  ex.attr = attr->attr;
  ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  const bool xrc = verbs->qp_type == IBV_QPT_XRC_RECV || verbs->qp_type == IBV_QPT_XRC_SEND;
  ex.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  if (pd != nullptr) {
    ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    ex.pd = pd;
  }
  if (rdma_create_srq_ex(verbs, &ex) != 0) return -1;
  attr->attr = ex.attr;
  return 0;
}

TURNOUT_EXPORT void rdma_destroy_srq(rdma_cm_id* verbs) {
  if (verbs->srq != nullptr) ibv_destroy_srq(verbs->srq);
  verbs->srq = nullptr;
  destroy_queues(*verbs);
}

TURNOUT_EXPORT int rdma_init_qp_attr(rdma_cm_id* verbs, ibv_qp_attr* attr, int* mask) {
  if (attr == nullptr || mask == nullptr) return failure(EINVAL);
  const Lock lock(state_lock());
  return result(attributes(id_of(verbs), *attr, *mask));
}
