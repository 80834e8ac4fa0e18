// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/queue_pair.h"

#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/log.h"
#include "hca/device/identity.h"
#include "hca/device/qp_state.h"
#include "hca/device/rules.h"

namespace turnout::hca {
namespace {

ibv_wc_opcode completion_opcode(std::uint8_t wr_opcode) noexcept {
  static constexpr ibv_wc_opcode kByRequest[] = {
      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,      IBV_WC_SEND,    IBV_WC_RDMA_READ,
      IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD,  IBV_WC_LOCAL_INV, IBV_WC_BIND_MW, IBV_WC_SEND};
  static_assert(std::size(kByRequest) == IBV_WR_SEND_WITH_INV + 1);
  return wr_opcode < std::size(kByRequest) ? kByRequest[wr_opcode] : IBV_WC_SEND;
}

}  // namespace

QpKind kind_of(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* dc) noexcept {
  if (attr.qp_type == IBV_QPT_RC && dc == nullptr) return QpKind::rc;
  if (attr.qp_type == IBV_QPT_UC && dc == nullptr) return QpKind::uc;
  if (attr.qp_type == IBV_QPT_UD && dc == nullptr) return QpKind::ud;
  if (attr.qp_type == IBV_QPT_XRC_SEND && dc == nullptr) return QpKind::xrc_ini;
  if (attr.qp_type == IBV_QPT_XRC_RECV && dc == nullptr) return QpKind::xrc_tgt;
  if (attr.qp_type == IBV_QPT_DRIVER && dc != nullptr) {
    if (dc->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCI) return QpKind::dci;
    if (dc->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT) return QpKind::dct;
  }
  return QpKind::none;
}

bool has_own_receives(QpKind kind, const ibv_qp_init_attr_ex& attr) noexcept {
  return (kind == QpKind::rc || kind == QpKind::uc || kind == QpKind::ud) && attr.srq == nullptr;
}

int check_creation(QpKind kind, const ibv_qp_init_attr_ex& attr) noexcept {
  // An XRC target has its domain and nothing else: who receives is told by each request.
  if (kind == QpKind::xrc_tgt) return attr.xrcd == nullptr || attr.srq != nullptr ? EINVAL : 0;
  // A DCT never sends, a DCI and an XRC initiator never receive: that queue may be missing.
  const bool receives = kind != QpKind::dci && kind != QpKind::xrc_ini;
  if (attr.pd == nullptr || (kind != QpKind::dct && attr.send_cq == nullptr) ||
      (receives && attr.recv_cq == nullptr) || (kind == QpKind::dct && attr.srq == nullptr) ||
      (kind == QpKind::xrc_ini && attr.srq != nullptr)) {
    return EINVAL;
  }
  // The receives of an XRC SRQ complete where it says, not where a queue pair does.
  if (receives && attr.srq != nullptr && reinterpret_cast<const Srq*>(attr.srq)->xrcd != nullptr) {
    return EINVAL;
  }
  const ibv_qp_cap& cap = attr.cap;
  const bool too_much =
      cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge ||
      cap.max_inline_data > kMaxInline ||
      (has_own_receives(kind, attr) && (cap.max_recv_wr > kMaxQpWr || cap.max_recv_sge > kMaxSge));
  return too_much ? EINVAL : 0;
}

ibv_qp_init_attr_ex used_attributes(QpKind kind, const ibv_qp_init_attr_ex& attr) noexcept {
  ibv_qp_init_attr_ex used = attr;
  if (kind == QpKind::xrc_ini || kind == QpKind::xrc_tgt) used.recv_cq = nullptr;
  if (kind == QpKind::xrc_tgt) {
    used.pd = nullptr;
    used.send_cq = nullptr;
    used.cap = {};
    used.sq_sig_all = 0;
  } else {
    used.xrcd = nullptr;
  }
  return used;
}

void begin_qp(Qp& qp, Context& context, const ibv_qp_init_attr_ex& attr, QpKind kind,
              std::uint32_t index, std::uint32_t number) noexcept {
  qp.magic = kObjectMagic;
  qp.kind = kind;
  qp.index = index;
  qp.number = number;
  qp.signal_all = attr.sq_sig_all != 0;
  // ibv_qp_init_attr is the beginning of the extended one.
  std::memcpy(&qp.init, &attr, offsetof(ibv_qp_init_attr_ex, comp_mask));
  ibv_qp& v = qp.verbs.qp_base;
  v.context = &context.verbs.context;
  v.qp_context = attr.qp_context;
  v.pd = attr.pd;
  v.send_cq = attr.send_cq;
  v.recv_cq = attr.recv_cq;
  v.srq = attr.srq;
  v.handle = index;
  v.qp_num = kind == QpKind::dct ? 0 : number;  // mlx5: a DCT gets its number with RTR
  v.state = IBV_QPS_RESET;
  v.qp_type = attr.qp_type;
  pthread_mutex_init(&v.mutex, nullptr);
  pthread_cond_init(&v.cond, nullptr);
  if (attr.pd != nullptr) ++pd_of(attr.pd).users;
  if (attr.send_cq != nullptr) ++cq_of(attr.send_cq).users;
  if (attr.recv_cq != nullptr) ++cq_of(attr.recv_cq).users;
  if (kind != QpKind::dci && attr.srq != nullptr) ++srq_of(attr.srq).users;
  if (kind == QpKind::xrc_tgt) {
    qp.xrcd = reinterpret_cast<Xrcd*>(attr.xrcd);
    ++qp.xrcd->users;
  }
}

void end_qp(Qp& qp) noexcept {
  const ibv_qp& v = qp.verbs.qp_base;
  if (v.pd != nullptr) --pd_of(v.pd).users;
  if (v.send_cq != nullptr) --cq_of(v.send_cq).users;
  if (v.recv_cq != nullptr) --cq_of(v.recv_cq).users;
  if (qp.kind != QpKind::dci && v.srq != nullptr) --srq_of(v.srq).users;
  if (qp.xrcd != nullptr) --qp.xrcd->users;
}

void remember_attributes(ibv_qp_attr& kept, const ibv_qp_attr& attr, int mask) noexcept {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) kept.qp_access_flags = attr.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) kept.pkey_index = attr.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) kept.port_num = attr.port_num;
  if ((mask & IBV_QP_QKEY) != 0) kept.qkey = attr.qkey;
  if ((mask & IBV_QP_AV) != 0) kept.ah_attr = attr.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) kept.path_mtu = attr.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) kept.timeout = attr.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) kept.retry_cnt = attr.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) kept.rnr_retry = attr.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) kept.rq_psn = attr.rq_psn & 0xffffff;
  if ((mask & IBV_QP_SQ_PSN) != 0) kept.sq_psn = attr.sq_psn & 0xffffff;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) kept.max_rd_atomic = attr.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) kept.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) kept.min_rnr_timer = attr.min_rnr_timer;
  if ((mask & IBV_QP_DEST_QPN) != 0) kept.dest_qp_num = attr.dest_qp_num;
}

int checked_phase(const Qp& qp, QpPhase from, const ibv_qp_attr& attr, int mask, QpPhase& to) {
  const char* why = "";
  const int error = check_modification(qp.kind, from, attr, mask, to, &why);
  if (error != 0) {
    TURNOUT_LOG(hca, info,
                "ibv_modify_qp failed: queue pair {:#x}: from state {} to {}, mask {:#x}: {}",
                qp.number, static_cast<int>(from), static_cast<int>(to), mask, why);
  }
  return error;
}

int check_request(const Qp& qp, QpPhase phase, const SendWqe& w) noexcept {
  if (qp.kind == QpKind::dct || qp.kind == QpKind::xrc_tgt || phase < QpPhase::rts) return EINVAL;
  if (!has_room(qp)) return ENOMEM;
  if (is_mlx5s_own(w.opcode)) return 0;
  if (!w.is_inline && w.num_sge > qp.init.cap.max_send_sge) return EINVAL;
  const bool of_window = is_local(w.opcode) || w.opcode == IBV_WR_SEND_WITH_INV;
  if (of_window && (qp.kind == QpKind::ud || !identity().windows)) return EINVAL;
  if (is_local(w.opcode)) return 0;
  if (is_write(w.opcode) && qp.kind == QpKind::ud) return EINVAL;
  if (is_fetch(w.opcode) && (is_unacknowledged(qp.kind) || w.is_inline)) return EINVAL;
  if (!is_send(w.opcode) && !is_write(w.opcode) && !is_fetch(w.opcode)) return EOPNOTSUPP;
  return qp.kind != QpKind::rc && qp.kind != QpKind::uc && !w.addressed ? EINVAL : 0;
}

Completion completion_of(const SendWqe& w, std::uint32_t number, ibv_wc_status status) noexcept {
  Completion entry{};
  entry.wr_id = w.wr_id;
  entry.qpn = number;
  entry.byte_len = is_fetch(w.opcode) ? w.length : 0;
  entry.opcode = static_cast<std::uint8_t>(completion_opcode(w.opcode));
  entry.status = static_cast<std::uint8_t>(status);
  entry.sq_position = w.position;
  entry.send = 1;
  return entry;
}

Completion flushed_receive(std::uint64_t id, std::uint32_t number, ibv_wc_opcode opcode) noexcept {
  Completion entry{};
  entry.wr_id = id;
  entry.qpn = number;
  entry.status = IBV_WC_WR_FLUSH_ERR;
  entry.opcode = static_cast<std::uint8_t>(opcode);
  return entry;
}

}  // namespace turnout::hca
