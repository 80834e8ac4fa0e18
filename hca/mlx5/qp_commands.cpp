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
  QpRequest request;
  request.asked = asked;
  if (asked.qp_type == IBV_QPT_XRC_RECV) {
    const XrcDomain* const domain = xrc_domains_.find(asked.pd_handle);
    if (domain == nullptr) return EINVAL;
    request.xrcd = domain->xrcd;
  } else {
    const FileObjects::Domain* const domain = objects_.domains.find(asked.pd_handle);
    if (domain == nullptr) return EINVAL;
    request.pd = domain->pd;
    const CqObject* const send = objects_.cqs.find(asked.send_cq_handle);
    const CqObject* const receive = objects_.cqs.find(asked.recv_cq_handle);
    if (send != nullptr) request.send = send->cq;
    if (receive != nullptr) request.receive = receive->cq;
    if (asked.is_srq != 0) {
      const SrqObject* const shared = objects_.srqs.find(asked.srq_handle);
      if (shared == nullptr) return EINVAL;
      request.srq = shared->srq;
    }
  }
  std::unique_ptr<QpObject> made;
  if (const int error = queues_.make(request, mlx5, made); error != 0) return error;
  handle = objects_.qps.add(std::move(made));
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
  return command.answer(creation_answer(handle, *objects_.qps.find(handle)->qp, request),
                        mlx5_ib_create_qp_resp{});
}

int CommandFile::create_qp_extended(Mlx5Command& command) {
  const auto request = command.request<ib_uverbs_ex_create_qp>();
  std::uint32_t handle = 0;
  if (const int error = make_qp(request, command.driver_request<mlx5_ib_create_qp>(), handle);
      error != 0)
    return error;
  ib_uverbs_ex_create_qp_resp answer{};
  answer.base = creation_answer(handle, *objects_.qps.find(handle)->qp, request);
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
  const ib_uverbs_create_qp_resp made =
      creation_answer(handle, *objects_.qps.find(handle)->qp, request);
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
  auto pair = std::make_unique<QpObject>(asked.user_handle);
  Qp* const qp = verbs().open_qp(*domain->xrcd, asked.qpn, &pair->told);
  if (qp == nullptr) return errno;
  pair->qp = qp;
  pair->queue.emplace(*qp, Mlx5SendQueue::Place{});
  const std::uint32_t handle = objects_.qps.add(std::move(pair));
  return command.answer(creation_answer(handle, *qp, {}));
}

int CommandFile::modify_qp(Mlx5Command& command) {
  const auto asked = command.extended() ? command.request<ib_uverbs_ex_modify_qp>().base
                                        : command.request<ib_uverbs_modify_qp>();
  QpObject* const pair = objects_.qps.find(asked.qp_handle);
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
  if (const int error = queues_.modify(*pair, attr, mask); error != 0) return error;
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
  const QpObject* const pair = objects_.qps.find(asked.qp_handle);
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

int CommandFile::destroy_qp(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_destroy_qp>();
  QpObject* const pair = objects_.qps.find(asked.qp_handle);
  if (pair == nullptr) return EINVAL;
  if (const int error = queues_.end(*pair); error != 0) return error;
  const ib_uverbs_destroy_qp_resp answer{pair->told.events};
  objects_.qps.remove(asked.qp_handle);
  return command.answer(answer);
}

}  // namespace turnout::hca
