// SPDX-License-Identifier: BSD-3-Clause
// XRC domains, and further handles of the target queue pairs in them. Targets are created as other
// queue pairs are (qp.cpp), XRC shared receive queues as others (srq.cpp).
//
// Sources: ibv_open_xrcd(3), ibv_open_qp(3); which masks are refused, and how, is rdma-core's.
#include <cerrno>

#include "hca/abi/verbs.h"

namespace turnout::hca {
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return failed(EOPNOTSUPP);
  constexpr unsigned needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((attr->comp_mask & needed) != needed) return failed(EINVAL);
  return verbs_of(objects_of(context).open_xrcd(context_of(context), attr->fd, attr->oflags));
}

int close_xrcd(ibv_xrcd* xrcd) {
  return objects_of(xrcd).close_xrcd(*reinterpret_cast<Xrcd*>(xrcd));
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return failed(EOPNOTSUPP);
  constexpr unsigned needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if ((attr->comp_mask & needed) != needed || attr->xrcd == nullptr ||
      attr->xrcd->context != context || attr->qp_type != IBV_QPT_XRC_RECV) {
    return failed(EINVAL);
  }
  void* own = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attr->qp_context : nullptr;
  Qp* qp = objects_of(context).open_qp(*reinterpret_cast<Xrcd*>(attr->xrcd), attr->qp_num, own);
  return qp != nullptr ? &qp->verbs.qp_base : nullptr;
}

}  // namespace turnout::hca
