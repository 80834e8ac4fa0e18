// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues, and posting of receives.
#include <cerrno>

#include "hca/abi/verbs.h"

using namespace turnout::hca;

namespace turnout::hca {

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  // verbs.h sends basic ones to ibv_create_srq: what comes here is XRC or tag matching.
  const bool typed = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED ||
      (typed && attr->srq_type != IBV_SRQT_BASIC && attr->srq_type != IBV_SRQT_XRC)) {
    return failed(EOPNOTSUPP);
  }
  const bool xrc = typed && attr->srq_type == IBV_SRQT_XRC;
  const unsigned needed = xrc ? IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ
                              : unsigned{IBV_SRQ_INIT_ATTR_PD};
  if ((attr->comp_mask & needed) != needed || attr->pd == nullptr ||
      (xrc && (attr->xrcd == nullptr || attr->cq == nullptr))) {
    return failed(EINVAL);
  }
  // The struct of the basic ones is the beginning of this one.
  auto* basic = reinterpret_cast<ibv_srq_init_attr*>(attr);
  if (!xrc) return ibv_create_srq(attr->pd, basic);
  if (attr->pd->context != context || attr->xrcd->context != context ||
      attr->cq->context != context) {
    return failed(EINVAL);
  }
  return verbs_of(objects_of(context).create_srq(
      pd_of(attr->pd), *basic, reinterpret_cast<Xrcd*>(attr->xrcd), &cq_of(attr->cq)));
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  *number = srq_of(srq).number;
  return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return data_path_of(srq).post_srq_recv(srq_of(srq), wr, bad);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return data_path_of(qp).post_recv(qp_of(qp), wr, bad);
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (const int error = check_queue_memory("MLX_SRQ_ALLOC_TYPE"); error != 0) return failed(error);
  return verbs_of(objects_of(pd).create_srq(pd_of(pd), *attr, nullptr, nullptr));
}

TURNOUT_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return objects_of(srq).modify_srq(srq_of(srq), *attr, mask);
}

TURNOUT_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return objects_of(srq).query_srq(srq_of(srq), *attr);
}

TURNOUT_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return objects_of(srq).destroy_srq(srq_of(srq));
}
