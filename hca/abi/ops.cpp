// SPDX-License-Identifier: BSD-3-Clause
// The op tables of a context, through which verbs.h's inline functions call.
#include "hca/abi/verbs.h"
#include "hca/device/identity.h"

namespace turnout::hca {

void fill_ops(Context& context) {
  verbs_context& v = context.verbs;
  v.query_port = query_port;
  v.query_device_ex = query_device_ex;
  v.query_rt_values = query_rt_values;
  v.create_cq_ex = create_cq_ex;
  v.modify_cq = modify_cq;
  v.create_qp_ex = create_qp_ex;
  v.create_srq_ex = create_srq_ex;
  v.get_srq_num = get_srq_num;
  if (identity().xrc) {
    v.open_xrcd = open_xrcd;
    v.close_xrcd = close_xrcd;
    v.open_qp = open_qp;
  }
  v.alloc_td = alloc_td;
  v.dealloc_td = dealloc_td;
  v.alloc_parent_domain = alloc_parent_domain;
  v.advise_mr = advise_mr;
  v.alloc_dm = alloc_dm;
  v.free_dm = free_dm;
  v.reg_dm_mr = reg_dm_mr;
  ibv_context_ops& o = v.context.ops;
  o.poll_cq = poll_cq;
  o.req_notify_cq = req_notify_cq;
  o.post_send = post_send;
  o.post_recv = post_recv;
  o.post_srq_recv = post_srq_recv;
  o.alloc_mw = alloc_mw;
  o.bind_mw = bind_mw;
  o.dealloc_mw = dealloc_mw;
  // Left null, which verbs.h answers with EOPNOTSUPP: flows, counters, work queues, tag matching.
}

}  // namespace turnout::hca
