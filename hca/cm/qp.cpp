// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/qp.h"

#include <cerrno>

#include "base/log.h"
#include "hca/cm/multicast.h"

namespace turnout::cm {
namespace {

// The CM grants writes to every peer, reads and atomics to one that has resources for them.
unsigned access_of(const Id& id) {
  unsigned access = IBV_ACCESS_REMOTE_WRITE;
  if (id.responder_resources != 0) access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return access;
}

bool knows_peer(const Id& id) {
  return id.state == State::responded ||
         (id.state >= State::requested && id.state <= State::disconnected);
}

int datagram_attributes(const Id& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE;
  if (attr.qp_state == IBV_QPS_INIT) {
    attr.pkey_index = 0;
    attr.port_num = kPort;
    attr.qkey = qkey_of(id.verbs.ps);
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  } else if (attr.qp_state == IBV_QPS_RTS) {
    attr.sq_psn = 0;
    mask |= IBV_QP_SQ_PSN;
  } else if (attr.qp_state != IBV_QPS_RTR) {
    return EINVAL;
  }
  return 0;
}

int to_state(const Id& id, ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  int error = attributes(id, attr, mask);
  if (error == 0) error = ibv_modify_qp(qp, &attr, mask);
  if (error != 0) {
    TURNOUT_LOG(hca, info, "ibv_modify_qp failed: queue pair {:#x}: to state {}: {}", qp->qp_num,
                static_cast<int>(state), std::strerror(error));
  }
  return error;
}

}  // namespace

int attributes(const Id& id, ibv_qp_attr& attr, int& mask) {
  if (id.adapter == nullptr) return EINVAL;
  if (id.datagram()) return datagram_attributes(id, attr, mask);
  const ibv_qp_type type = id.verbs.qp_type;
  mask = IBV_QP_STATE;
  switch (attr.qp_state) {
    case IBV_QPS_INIT:
      attr.pkey_index = 0;
      attr.port_num = kPort;
      // Before the peer is known nothing is granted to it.
      attr.qp_access_flags = knows_peer(id) ? access_of(id) : 0;
      mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
      return 0;
    case IBV_QPS_RTR:
      if (!knows_peer(id)) return EINVAL;
      attr.ah_attr = {};
      attr.ah_attr.dlid = id.remote_lid;
      attr.ah_attr.port_num = kPort;
      attr.path_mtu = id.adapter->mtu;
      attr.dest_qp_num = id.remote_qpn;
      attr.rq_psn = id.remote_psn;
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      if (type != IBV_QPT_XRC_SEND) {
        attr.max_dest_rd_atomic = id.responder_resources;
        attr.min_rnr_timer = 0;  // rdma_connect(3)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      }
      return 0;
    case IBV_QPS_RTS:
      if (!knows_peer(id)) return EINVAL;
      attr.sq_psn = id.local_psn;
      attr.timeout = id.options.ack_timeout.value_or(kAckTimeout);
      mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
      if (type != IBV_QPT_XRC_RECV) {
        attr.retry_cnt = id.retry_count;
        attr.rnr_retry = id.rnr_retry_count;
        attr.max_rd_atomic = id.initiator_depth;
        mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      }
      return 0;
    default:
      return EINVAL;
  }
}

int prepare_qp(Id& id, ibv_qp* qp) {
  if (const int error = to_state(id, qp, IBV_QPS_INIT); error != 0 || !id.datagram()) return error;
  if (const int error = to_state(id, qp, IBV_QPS_RTR); error != 0) return error;
  return to_state(id, qp, IBV_QPS_RTS);
}

int connect_qp(Id& id) {
  ibv_qp* const qp = id.verbs.qp;
  if (qp == nullptr || id.datagram()) return 0;
  // INIT once more: now what the peer may do is known.
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (const int error = to_state(id, qp, state); error != 0) return error;
  }
  return 0;
}

int fail_qp(Id& id) {
  if (id.verbs.qp == nullptr || id.datagram()) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(id.verbs.qp, &attr, IBV_QP_STATE);
}

}  // namespace turnout::cm
