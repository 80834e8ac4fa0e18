// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: creation in all styles, modification, and the classic ibv_post_send.
#include <cerrno>
#include <cstring>
#include <mutex>

#include "hca/abi/verbs.h"
#include "hca/device/identity.h"
#include "hca/device/qp_state.h"
#include "hca/device/rules.h"

using namespace turnout::hca;

namespace {

// Turns a classic work request into ours. 0 or errno.
int convert(const Qp& qp, const ibv_send_wr& wr, SendWqe& w) {
  begin_request(w, wr.wr_id, wr.opcode, wr.send_flags);
  w.imm = wr.imm_data;
  w.addressed = qp.kind == QpKind::rc || qp.kind == QpKind::uc;
  if (wr.num_sge < 0) return EINVAL;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      w.remote = wr.wr.rdma.remote_addr;
      w.rkey = wr.wr.rdma.rkey;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      w.remote = wr.wr.atomic.remote_addr;
      w.rkey = wr.wr.atomic.rkey;
      w.compare_add = wr.wr.atomic.compare_add;
      w.swap = wr.wr.atomic.swap;
      break;
    case IBV_WR_BIND_MW:
      if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->type != IBV_MW_TYPE_2 ||
          wr.bind_mw.rkey >> 8 != wr.bind_mw.mw->rkey >> 8) {
        return EINVAL;
      }
      set_binding(w, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
      [[fallthrough]];
    case IBV_WR_LOCAL_INV:
      w.addressed = true;
      return 0;
    default:
      break;
  }
  if (qp.kind == QpKind::xrc_ini) {
    w.addressed = true;
    w.srqn = wr.qp_type.xrc.remote_srqn;
  }
  if (qp.kind == QpKind::ud) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    set_datagram_address(qp, w, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  }
  if ((wr.send_flags & IBV_SEND_INLINE) != 0 && (is_send(static_cast<std::uint8_t>(wr.opcode)) ||
                                                 is_write(static_cast<std::uint8_t>(wr.opcode)))) {
    std::uint64_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
      const ibv_sge& sge = wr.sg_list[i];
      if (length + sge.length > qp.init.cap.max_inline_data) return ENOMEM;               // as mlx5
      std::memcpy(w.data + length, reinterpret_cast<const void*>(sge.addr), sge.length);  // NOLINT
      length += sge.length;
    }
    w.is_inline = true;
    w.length = static_cast<std::uint32_t>(length);
    return 0;
  }
  if (static_cast<std::uint32_t>(wr.num_sge) > qp.init.cap.max_send_sge) return EINVAL;
  w.num_sge = static_cast<std::uint8_t>(wr.num_sge);
  for (int i = 0; i < wr.num_sge; ++i) {
    w.sge[i].addr = wr.sg_list[i].addr;
    w.sge[i].length = wr.sg_list[i].length;
    w.sge[i].lkey = wr.sg_list[i].lkey;
  }
  return 0;
}

// Only that a datagram queue pair is not sent its own multicast.
bool may_have_flags(const ibv_qp_init_attr_ex& attr) {
  return attr.create_flags == 0 ||
         (attr.create_flags == IBV_QP_CREATE_BLOCK_SELF_MCAST_LB && attr.qp_type == IBV_QPT_UD);
}

ibv_qp* create(ibv_context* context, ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dc) {
  const bool builders = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  constexpr std::uint64_t known = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                                  IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
  constexpr std::uint32_t known_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                       IBV_QP_INIT_ATTR_CREATE_FLAGS;
  if ((attr.comp_mask & ~known_mask) != 0 || (builders && (attr.send_ops_flags & ~known) != 0) ||
      ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && !may_have_flags(attr)) ||
      (!identity().xrc && (attr.qp_type == IBV_QPT_XRC_SEND || attr.qp_type == IBV_QPT_XRC_RECV))) {
    return failed(EOPNOTSUPP);
  }
  if (const int error = check_queue_memory("MLX_QP_ALLOC_TYPE"); error != 0) return failed(error);
  // An XRC target belongs to a domain and never sends; all others belong to a PD.
  const bool target = attr.qp_type == IBV_QPT_XRC_RECV;
  const std::uint32_t needed = target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
  if ((attr.comp_mask & needed) == 0 || (target && builders)) return failed(EINVAL);
  Qp* qp = objects_of(context).create_qp(context_of(context), attr, dc);
  if (qp == nullptr) return nullptr;
  qp->extended = builders;
  qp->hears_itself =
      (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) == 0 || attr.create_flags == 0;
  if (builders) fill_builders(*qp, attr.send_ops_flags);
  return &qp->verbs.qp_base;
}

}  // namespace

namespace turnout::hca {

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return create(context, *attr, nullptr);
}

ibv_qp* create_qp_dc(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dc) {
  if (!identity().dynamically_connected) return failed(EOPNOTSUPP);
  if (dc == nullptr || dc->comp_mask == 0) return create(context, *attr, nullptr);
  constexpr std::uint64_t known = MLX5DV_QP_INIT_ATTR_MASK_DC |
                                  MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
                                  MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
  // Scatter to CQE is an optimisation that may be asked for or forbidden: there is none here.
  constexpr std::uint32_t known_flags =
      MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
  if ((dc->comp_mask & ~known) != 0 ||
      ((dc->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) != 0 &&
       (dc->create_flags & ~known_flags) != 0)) {
    return failed(EOPNOTSUPP);
  }
  if ((dc->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0) {
    const mlx5dv_dci_streams& streams = dc->dc_init_attr.dci_streams;
    if (context_of(context).virtual_clock) return failed(EOPNOTSUPP);
    if (dc->dc_init_attr.dc_type != MLX5DV_DCTYPE_DCI ||
        streams.log_num_concurent > kMaxLogStreams || streams.log_num_errored > kMaxLogStreams) {
      return failed(EINVAL);
    }
  }
  return create(context, *attr, (dc->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) != 0 ? dc : nullptr);
}

// A further handle of an XRC target, ibv_open_qp(3); refused as by rdma-core.
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

int post_send(ibv_qp* verbs, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp& qp = qp_of(verbs);
  DataPath& data_path = data_path_of(verbs);
  const std::lock_guard lock(qp.sq_lock);
  for (; wr != nullptr; wr = wr->next) {
    // A DCI's address is not in a classic request.
    int error = qp.kind == QpKind::dci ? EINVAL : convert(qp, *wr, qp.scratch);
    if (error == 0) error = data_path.send(qp, qp.scratch);
    if (error != 0) {
      *bad = wr;
      return error;
    }
  }
  return 0;
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex ex{};
  // The struct is the beginning of the extended one.
  std::memcpy(&ex, attr, offsetof(ibv_qp_init_attr_ex, comp_mask));
  ex.comp_mask = IBV_QP_INIT_ATTR_PD;
  ex.pd = pd;
  ibv_qp* qp = create(pd->context, ex, nullptr);
  if (qp != nullptr) attr->cap = ex.cap;
  return qp;
}

TURNOUT_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return qp_of(qp).extended ? &qp_of(qp).verbs : nullptr;
}

TURNOUT_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return objects_of(qp).modify_qp(qp_of(qp), *attr, used_mask(qp_of(qp).kind, mask));
}

TURNOUT_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  return objects_of(qp).query_qp(qp_of(qp), *attr, *init);
}

TURNOUT_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return objects_of(qp).destroy_qp(qp_of(qp));
}

TURNOUT_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode,
                                              std::uint32_t flags) {
  return flags == 0 && objects_of(qp).data_in_order(opcode) ? 1 : 0;
}

TURNOUT_EXPORT int ibv_set_ece(ibv_qp*, ibv_ece* ece) {
  return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}

TURNOUT_EXPORT int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  *ece = {};  // no options to agree on
  return 0;
}
