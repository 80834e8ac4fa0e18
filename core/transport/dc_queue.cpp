// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/dc_queue.h"

#include "core/transport/path.h"

namespace turnout {
namespace {

// Of a queue pair that has no destination of its own.
ibv_ah_attr own_path(const verbs::Device& device) {
  return path_to(device, 0, {});
}

}  // namespace

Status DcInitiator::create(const verbs::Device& device, ibv_cq* cq, std::uint32_t depth,
                           const QpTuning& tuning) {
  device_ = &device;
  tuning_ = tuning;
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.cap.max_send_wr = depth;
  attr.cap.max_send_sge = 2;
  attr.cap.max_inline_data = tuning.max_inline;
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = device.pd();
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  qp_.reset(mlx5dv_create_qp(device.context(), &attr, &mlx5));
  if (!qp_) return verbs::failure("mlx5dv_create_qp", "DC initiator", errno);
  ex_ = ibv_qp_to_qp_ex(qp_.get());
  mlx5_ = ex_ != nullptr ? mlx5dv_qp_ex_from_ibv_qp_ex(ex_) : nullptr;
  if (mlx5_ == nullptr) {
    return {Code::unsupported, "the device's DC initiator has no extended work-request interface"};
  }
  return to_ready();
}

Status DcInitiator::to_ready() {
  ibv_qp_attr attr{};
  attr.port_num = device_->port_number();
  attr.path_mtu = device_->port().active_mtu;
  attr.ah_attr = own_path(*device_);
  attr.timeout = tuning_.ack_timeout;
  attr.retry_cnt = tuning_.retry_count;
  attr.rnr_retry = kRnrRetryForever;
  attr.max_rd_atomic = kMaxReads;
  return modify_qp(qp_.get(), attr, "DC initiator",
                   {{IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
                    {IBV_QPS_RTR, IBV_QP_PATH_MTU | IBV_QP_AV},
                    {IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC}});
}

Status DcInitiator::recover() {
  const Status status = modify_qp(qp_.get(), {}, "DC initiator", {{IBV_QPS_RESET, 0}});
  return status.ok() ? to_ready() : status;
}

Status DcInitiator::post(const SendRecord& record) {
  // Messages hold scarce buffers: retire them a few at a time.
  constexpr std::uint32_t kSignalEvery = 8;
  const bool signalled = decide_signal(record.signalled || record.kind != SendRecord::Kind::message,
                                       record.pool != SendRecord::Pool::none, kSignalEvery);
  ibv_wr_start(ex_);
  ex_->wr_id = next_wr_id();
  ex_->wr_flags = signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
  switch (record.opcode) {
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(ex_, record.rkey, record.remote);
      break;
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(ex_, record.rkey, record.remote);
      break;
    default:
      ibv_wr_send(ex_);
      break;
  }
  mlx5dv_wr_set_dc_addr(mlx5_, record.ah, record.dct, record.dc_key);
  if (record.length > 0) {
    ibv_wr_set_sge(ex_, record.lkey, record.local, record.length);
  } else {
    ibv_wr_set_sge_list(ex_, 0, nullptr);
  }
  const int error = ibv_wr_complete(ex_);
  if (error != 0) return verbs::failure("ibv_wr_complete", "DC initiator", error);
  push(record, signalled);
  return {};
}

Status DcTarget::create(const verbs::Device& device, ibv_cq* cq, ibv_srq* srq,
                        std::uint64_t access_key) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.srq = srq;
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = device.pd();
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  mlx5.dc_init_attr.dct_access_key = access_key;
  qp_.reset(mlx5dv_create_qp(device.context(), &attr, &mlx5));
  if (!qp_) return verbs::failure("mlx5dv_create_qp", "DC target", errno);
  ibv_qp_attr qp{};
  qp.port_num = device.port_number();
  qp.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  qp.path_mtu = device.port().active_mtu;
  qp.min_rnr_timer = kMinRnrTimer;
  qp.ah_attr = own_path(device);
  qp.ah_attr.grh.hop_limit = kHopLimit;  // of its answers, whoever asked
  return modify_qp(qp_.get(), qp, "DC target",
                   {{IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
                    {IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER}});
}

}  // namespace turnout
