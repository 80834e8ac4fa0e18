// SPDX-License-Identifier: BSD-3-Clause
// Commands of queue pairs.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/live/mlx5_queues.h"
#include "hca/mlx5/command_file.h"

namespace turnout::hca {
namespace {

ibv_ah_attr address_of(const ib_uverbs_qp_dest& dest) noexcept {
  ibv_ah_attr out{};
  std::memcpy(out.grh.dgid.raw, dest.dgid, sizeof out.grh.dgid.raw);
  out.grh.flow_label = dest.flow_label;
  out.grh.sgid_index = dest.sgid_index;
  out.grh.hop_limit = dest.hop_limit;
  out.grh.traffic_class = dest.traffic_class;
  out.dlid = dest.dlid;
  out.sl = dest.sl;
  out.src_path_bits = dest.src_path_bits;
  out.static_rate = dest.static_rate;
  out.is_global = dest.is_global;
  out.port_num = dest.port_num;
  return out;
}

ib_uverbs_qp_dest answer_of(const ibv_ah_attr& from) noexcept {
  ib_uverbs_qp_dest out{};
  std::memcpy(out.dgid, from.grh.dgid.raw, sizeof out.dgid);
  out.flow_label = from.grh.flow_label;
  out.sgid_index = from.grh.sgid_index;
  out.hop_limit = from.grh.hop_limit;
  out.traffic_class = from.grh.traffic_class;
  out.dlid = from.dlid;
  out.sl = from.sl;
  out.src_path_bits = from.src_path_bits;
  out.static_rate = from.static_rate;
  out.is_global = from.is_global;
  out.port_num = from.port_num;
  return out;
}

}  // namespace

int CommandFile::make_qp(const ib_uverbs_ex_create_qp& asked, const mlx5_ib_create_qp& mlx5,
                         std::uint32_t& handle) {
  constexpr std::uint32_t kKnownFlags = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                        MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI |
                                        MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX |
                                        MLX5_QP_FLAG_DCI_STREAM;
  if ((mlx5.flags & ~kKnownFlags) != 0 || asked.comp_mask != 0) return EOPNOTSUPP;
  if ((asked.create_flags & ~std::uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) {
    return EOPNOTSUPP;
  }
  ibv_qp_init_attr_ex attr{};
  auto pair = std::unique_ptr<Pair>(new Pair{Told(asked.user_handle), nullptr, {}, {}});
  attr.qp_context = &pair->told;
  attr.qp_type = static_cast<ibv_qp_type>(asked.qp_type);
  mlx5dv_qp_init_attr dc{};
  const mlx5dv_qp_init_attr* driver = nullptr;
  if (attr.qp_type == IBV_QPT_DRIVER) {
    const bool target = (mlx5.flags & MLX5_QP_FLAG_TYPE_DCT) != 0;
    if (!target && (mlx5.flags & MLX5_QP_FLAG_TYPE_DCI) == 0) return EOPNOTSUPP;
    dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dc.dc_init_attr.dc_type = target ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI;
    if (target) dc.dc_init_attr.dct_access_key = mlx5.access_key;
    if ((mlx5.flags & MLX5_QP_FLAG_DCI_STREAM) != 0) {
      if (mlx5.dci_streams.log_num_concurent > kMaxLogStreams ||
          mlx5.dci_streams.log_num_errored > kMaxLogStreams) {
        return EINVAL;
      }
      dc.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
      dc.dc_init_attr.dci_streams.log_num_concurent = mlx5.dci_streams.log_num_concurent;
      dc.dc_init_attr.dci_streams.log_num_errored = mlx5.dci_streams.log_num_errored;
    }
    driver = &dc;
  }
  const bool xrc_target = attr.qp_type == IBV_QPT_XRC_RECV;
  if (xrc_target) {
    const XrcDomain* const domain = xrc_domains_.find(asked.pd_handle);
    if (domain == nullptr) return EINVAL;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = &domain->xrcd->verbs;
  } else {
    const FileObjects::Domain* const domain = objects_.domains.find(asked.pd_handle);
    if (domain == nullptr) return EINVAL;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = &domain->pd->verbs;
    const Queue* const send = cqs_.find(asked.send_cq_handle);
    const Queue* const receive = cqs_.find(asked.recv_cq_handle);
    const bool is_target = driver != nullptr && dc.dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
    if (send != nullptr && !is_target) attr.send_cq = ibv_cq_ex_to_cq(&send->cq->verbs);
    if (receive != nullptr) attr.recv_cq = ibv_cq_ex_to_cq(&receive->cq->verbs);
    if (asked.is_srq != 0) {
      const Shared* const shared = srqs_.find(asked.srq_handle);
      if (shared == nullptr) return EINVAL;
      attr.srq = &shared->srq->verbs;
    }
  }
  const QpKind kind = kind_of(attr, driver);
  if (kind == QpKind::none) return EOPNOTSUPP;
  const bool sends = kind != QpKind::dct && kind != QpKind::xrc_tgt;
  const bool receives = has_own_receives(kind, attr) && mlx5.rq_wqe_count != 0;
  constexpr std::uint32_t kMaxShift = 9;
  const std::uint32_t shift = mlx5.rq_wqe_shift;
  std::uint64_t receive_bytes = 0;
  if (asked.max_send_sge > kMaxSge || asked.max_recv_sge > kMaxSge) return EINVAL;
  if (receives) {
    if (!std::has_single_bit(mlx5.rq_wqe_count) || mlx5.rq_wqe_count > kMaxQpWr || shift < 4 ||
        shift > kMaxShift) {
      return EINVAL;
    }
    receive_bytes = std::uint64_t{mlx5.rq_wqe_count} << shift;
  }
  if (sends && (!std::has_single_bit(mlx5.sq_wqe_count) || mlx5.sq_wqe_count > kMaxQpWr)) {
    // An initiator that only receives has none.
    if (mlx5.sq_wqe_count != 0) return EINVAL;
  }
  const std::uint64_t send_bytes = sends ? std::uint64_t{mlx5.sq_wqe_count} * kMlx5BlockBytes : 0;
  if (receive_bytes + send_bytes != 0) {
    if ((mlx5.buf_addr & 63) != 0 || (mlx5.db_addr & 7) != 0) return EINVAL;
    if (!is_writable(mlx5.buf_addr, receive_bytes + send_bytes) || !is_writable(mlx5.db_addr, 8)) {
      return EFAULT;
    }
  }
  // The ring only holds what was fetched ahead.
  constexpr std::uint32_t kAhead = 64;
  attr.cap.max_send_wr = std::max(1U, mlx5.sq_wqe_count);
  attr.cap.max_send_sge = kMaxSge;
  attr.cap.max_inline_data = kMaxInline;
  if (receives) {
    attr.cap.max_recv_wr = std::min(mlx5.rq_wqe_count, kAhead);
    attr.cap.max_recv_sge = std::min(kMaxSge, (1U << shift) / kMlx5UnitBytes);
  }
  Qp* const qp = verbs().create_qp(*objects_.context, attr, driver);
  if (qp == nullptr) return errno;
  qp->hears_itself = asked.create_flags == 0;
  Mlx5ReceiveRecord where{};
  where.buffer = receives ? mlx5.buf_addr : 0;
  where.doorbell = mlx5.db_addr;
  where.entries = mlx5.rq_wqe_count;
  where.stride = receives ? 1U << shift : 0;
  where.user_index = mlx5.uidx & 0xff'ffff;
  objects_.engine->mlx5_queues().attach(*qp, where);
  Mlx5SendQueue::Place place;
  if (send_bytes != 0) {
    place = {mlx5.buf_addr + receive_bytes, mlx5.sq_wqe_count, mlx5.db_addr, mlx5.uidx & 0xff'ffff};
  }
  pair->qp = qp;
  pair->queue.emplace(*qp, place);
  // The library knows of its sends itself.
  if (receives) {
    pair->receives = {mlx5.rq_wqe_count, (1U << shift) / kMlx5UnitBytes};
  }
  if (send_bytes != 0) Doorbells::instance().add(*pair->queue);
  handle = qps_.add(std::move(pair));
  ++made_.queue_pairs;
  made_.bytes += receive_bytes + send_bytes;
  return 0;
}

namespace {

ib_uverbs_create_qp_resp creation_answer(std::uint32_t handle, const Qp& qp,
                                         const ib_uverbs_ex_create_qp& asked) noexcept {
  ib_uverbs_create_qp_resp out{};
  out.qp_handle = handle;
  out.qpn = qp.kind == QpKind::dct ? 0 : qp.number;  // a DCT gets its number with RTR
  out.max_send_wr = asked.max_send_wr;
  out.max_recv_wr = asked.max_recv_wr;
  out.max_send_sge = asked.max_send_sge;
  out.max_recv_sge = asked.max_recv_sge;
  out.max_inline_data = asked.max_inline_data;
  return out;
}

}  // namespace

int CommandFile::create_qp(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_qp>();
  ib_uverbs_ex_create_qp request{};
  // The extended request is this one without `response`, and more behind it.
  static_assert(sizeof asked - sizeof asked.response ==
                offsetof(ib_uverbs_ex_create_qp, comp_mask));
  std::memcpy(static_cast<void*>(&request), &asked.user_handle,
              offsetof(ib_uverbs_ex_create_qp, comp_mask));
  std::uint32_t handle = 0;
  if (const int error = make_qp(request, command.driver_request<mlx5_ib_create_qp>(), handle);
      error != 0)
    return error;
  return command.answer(creation_answer(handle, *qps_.find(handle)->qp, request),
                        mlx5_ib_create_qp_resp{});
}

int CommandFile::create_qp_extended(Mlx5Command& command) {
  const auto request = command.request<ib_uverbs_ex_create_qp>();
  std::uint32_t handle = 0;
  if (const int error = make_qp(request, command.driver_request<mlx5_ib_create_qp>(), handle);
      error != 0)
    return error;
  ib_uverbs_ex_create_qp_resp answer{};
  answer.base = creation_answer(handle, *qps_.find(handle)->qp, request);
  answer.response_length = sizeof answer;
  mlx5_ib_create_qp_resp driver{};
  return command.answer(answer, driver);
}

int CommandFile::create_qp(IoctlCommand& command) {
  mlx5_ib_create_qp mlx5;
  ib_uverbs_qp_cap cap;
  if (const int error = command.block(UVERBS_ATTR_UHW_IN, mlx5); error != 0) return error;
  if (const int error = command.block(UVERBS_ATTR_CREATE_QP_CAP, cap); error != 0) return error;
  constexpr std::uint32_t kSignalsAll = IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  const auto flags = command.value<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
  const auto type = command.value<std::uint64_t>(UVERBS_ATTR_CREATE_QP_TYPE);
  ib_uverbs_ex_create_qp request{};
  request.user_handle = command.value<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  const std::uint16_t domain = type == IB_UVERBS_QPT_XRC_TGT ? UVERBS_ATTR_CREATE_QP_XRCD_HANDLE
                                                             : UVERBS_ATTR_CREATE_QP_PD_HANDLE;
  // Numbers that nothing has: of what is not given.
  const auto handle_of = [&](std::uint16_t id) {
    return command.has(id) ? command.handle(id) : UINT32_MAX;
  };
  request.pd_handle = handle_of(domain);
  request.send_cq_handle = handle_of(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
  request.recv_cq_handle = handle_of(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
  request.srq_handle = handle_of(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
  request.is_srq = command.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) ? 1 : 0;
  request.max_send_wr = cap.max_send_wr;
  request.max_recv_wr = cap.max_recv_wr;
  request.max_send_sge = cap.max_send_sge;
  request.max_recv_sge = cap.max_recv_sge;
  request.max_inline_data = cap.max_inline_data;
  request.sq_sig_all = (flags & kSignalsAll) != 0 ? 1 : 0;
  request.qp_type = static_cast<std::uint8_t>(std::min<std::uint64_t>(type, UINT8_MAX));
  request.create_flags = flags & ~kSignalsAll;
  std::uint32_t handle = 0;
  if (const int error = make_qp(request, mlx5, handle); error != 0) return error;
  const ib_uverbs_create_qp_resp made = creation_answer(handle, *qps_.find(handle)->qp, request);
  command.answer_handle(UVERBS_ATTR_CREATE_QP_HANDLE, handle);
  command.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap);
  command.answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, std::uint32_t{made.qpn});
  command.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_qp_resp{});
  return 0;
}

int CommandFile::open_qp(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_open_qp>();
  const XrcDomain* const domain = xrc_domains_.find(asked.pd_handle);
  if (domain == nullptr || asked.qp_type != IBV_QPT_XRC_RECV) return EINVAL;
  auto pair = std::unique_ptr<Pair>(new Pair{Told(asked.user_handle), nullptr, {}, {}});
  Qp* const qp = verbs().open_qp(*domain->xrcd, asked.qpn, &pair->told);
  if (qp == nullptr) return errno;
  pair->qp = qp;
  pair->queue.emplace(*qp, Mlx5SendQueue::Place{});
  const std::uint32_t handle = qps_.add(std::move(pair));
  return command.answer(creation_answer(handle, *qp, {}));
}

int CommandFile::modify_qp(Mlx5Command& command) {
  const auto asked = command.extended() ? command.request<ib_uverbs_ex_modify_qp>().base
                                        : command.request<ib_uverbs_modify_qp>();
  Pair* const pair = qps_.find(asked.qp_handle);
  if (pair == nullptr) return EINVAL;
  // What the mask does not name may be anything, and what is no value of its enumeration is refused
  // before it becomes one.
  const auto given = [&](int bit, unsigned value) {
    return (asked.attr_mask & static_cast<unsigned>(bit)) != 0 ? value : 0U;
  };
  const unsigned state = given(IBV_QP_STATE, asked.qp_state);
  const unsigned current = given(IBV_QP_CUR_STATE, asked.cur_qp_state);
  const unsigned mtu = given(IBV_QP_PATH_MTU, asked.path_mtu);
  const unsigned migration = given(IBV_QP_PATH_MIG_STATE, asked.path_mig_state);
  if (state > IBV_QPS_UNKNOWN || current > IBV_QPS_UNKNOWN || mtu > IBV_MTU_4096 ||
      migration > IBV_MIG_ARMED) {
    return EINVAL;
  }
  ibv_qp_attr attr{};
  attr.qp_state = static_cast<ibv_qp_state>(state);
  attr.cur_qp_state = static_cast<ibv_qp_state>(current);
  attr.path_mtu = static_cast<ibv_mtu>(mtu);
  attr.path_mig_state = static_cast<ibv_mig_state>(migration);
  attr.qkey = asked.qkey;
  attr.rq_psn = asked.rq_psn;
  attr.sq_psn = asked.sq_psn;
  attr.dest_qp_num = asked.dest_qp_num;
  attr.qp_access_flags = asked.qp_access_flags;
  attr.ah_attr = address_of(asked.dest);
  attr.alt_ah_attr = address_of(asked.alt_dest);
  attr.pkey_index = asked.pkey_index;
  attr.alt_pkey_index = asked.alt_pkey_index;
  attr.en_sqd_async_notify = asked.en_sqd_async_notify;
  attr.max_rd_atomic = asked.max_rd_atomic;
  attr.max_dest_rd_atomic = asked.max_dest_rd_atomic;
  attr.min_rnr_timer = asked.min_rnr_timer;
  attr.port_num = asked.port_num;
  attr.timeout = asked.timeout;
  attr.retry_cnt = asked.retry_cnt;
  attr.rnr_retry = asked.rnr_retry;
  attr.alt_port_num = asked.alt_port_num;
  attr.alt_timeout = asked.alt_timeout;
  Qp& qp = *pair->qp;
  const int mask = used_mask(qp.kind, static_cast<int>(asked.attr_mask));
  if (const int error = verbs().modify_qp(qp, attr, mask); error != 0) return error;
  if ((mask & IBV_QP_STATE) != 0) {
    if (attr.qp_state == IBV_QPS_RESET) pair->queue->restart();
    if (attr.qp_state == IBV_QPS_RTS || attr.qp_state == IBV_QPS_ERR) pair->queue->run();
  }
  if (!command.extended()) return 0;
  ib_uverbs_ex_modify_qp_resp answer{};
  answer.response_length = sizeof answer;
  mlx5_ib_modify_qp_resp driver{};
  driver.response_length = sizeof driver;
  if (qp.kind == QpKind::dct && attr.qp_state == IBV_QPS_RTR) driver.dctn = qp.number;
  return command.answer(answer, driver);
}

int CommandFile::query_qp(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_query_qp>();
  const Pair* const pair = qps_.find(asked.qp_handle);
  if (pair == nullptr) return EINVAL;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int error = verbs().query_qp(*pair->qp, attr, init); error != 0) return error;
  ib_uverbs_query_qp_resp out{};
  out.dest = answer_of(attr.ah_attr);
  out.max_send_wr = attr.cap.max_send_wr;
  out.max_recv_wr = pair->receives.entries;
  out.max_send_sge = attr.cap.max_send_sge;
  out.max_recv_sge = pair->receives.max_sge;
  out.max_inline_data = attr.cap.max_inline_data;
  out.qkey = attr.qkey;
  out.rq_psn = attr.rq_psn;
  out.sq_psn = attr.sq_psn;
  out.dest_qp_num = attr.dest_qp_num;
  out.qp_access_flags = attr.qp_access_flags;
  out.pkey_index = attr.pkey_index;
  out.qp_state = static_cast<std::uint8_t>(attr.qp_state);
  out.cur_qp_state = static_cast<std::uint8_t>(attr.cur_qp_state);
  out.path_mtu = static_cast<std::uint8_t>(attr.path_mtu);
  out.path_mig_state = static_cast<std::uint8_t>(attr.path_mig_state);
  out.sq_draining = attr.sq_draining;
  out.max_rd_atomic = attr.max_rd_atomic;
  out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  out.min_rnr_timer = attr.min_rnr_timer;
  out.port_num = attr.port_num;
  out.timeout = attr.timeout;
  out.retry_cnt = attr.retry_cnt;
  out.rnr_retry = attr.rnr_retry;
  out.sq_sig_all = static_cast<std::uint8_t>(init.sq_sig_all);
  return command.answer(out);
}

int CommandFile::end(Pair& pair) {
  if (pair.qp->attached.load() != 0) return EBUSY;
  Doorbells::instance().remove(*pair.queue);
  return verbs().destroy_qp(*pair.qp);
}

int CommandFile::destroy_qp(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_destroy_qp>();
  Pair* const pair = qps_.find(asked.qp_handle);
  if (pair == nullptr) return EINVAL;
  if (const int error = end(*pair); error != 0) return error;
  const ib_uverbs_destroy_qp_resp answer{pair->told.events};
  qps_.remove(asked.qp_handle);
  return command.answer(answer);
}

}  // namespace turnout::hca
