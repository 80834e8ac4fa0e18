// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/rc_queue.h"

#include "core/transport/path.h"

namespace turnout {
namespace {
constexpr int kInitMask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

}  // namespace

Status RcQueue::create(const verbs::Device& device, ibv_cq* cq, ibv_cq* receive_cq, ibv_srq* srq,
                       std::uint32_t receives, std::uint32_t depth, const QpTuning& tuning) {
  ibv_qp_init_attr attr{};
  attr.recv_cq = receive_cq;
  attr.srq = srq;
  if (srq == nullptr) {
    attr.cap.max_recv_wr = receives;
    attr.cap.max_recv_sge = 1;
  }
  attr.qp_type = IBV_QPT_RC;
  return create(device, cq, depth, tuning, attr, kRcName);
}

Status RcQueue::create_initiator(const verbs::Device& device, ibv_cq* cq, std::uint32_t depth,
                                 const QpTuning& tuning) {
  initiator_ = true;
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_SEND;
  return create(device, cq, depth, tuning, attr, "XRC initiator");
}

// Adapters tell only by refusing how many bytes a request may hold, and some take less than 100:
// tuning_ says how many it became.
Status RcQueue::create(const verbs::Device& device, ibv_cq* cq, std::uint32_t depth,
                       const QpTuning& tuning, ibv_qp_init_attr attr, const char* object) {
  constexpr std::uint32_t kLeastInline = 32;
  device_ = &device;
  tuning_ = tuning;
  attr.send_cq = cq;
  attr.cap.max_send_wr = depth;
  attr.cap.max_send_sge = 2;
  for (;;) {
    attr.cap.max_inline_data = tuning_.max_inline;
    ibv_qp_init_attr tried = attr;
    qp_.reset(ibv_create_qp(device.pd(), &tried));
    if (qp_) return {};
    if (errno != EINVAL || tuning_.max_inline == 0) {
      return verbs::failure("ibv_create_qp", object, errno);
    }
    tuning_.max_inline = tuning_.max_inline > kLeastInline ? tuning_.max_inline / 2 : 0;
  }
}

Status RcQueue::disconnect() {
  remote_ = 0;
  prepared_ = false;
  return modify_qp(qp_.get(), {}, kRcName, {{IBV_QPS_RESET, 0}});
}

Status RcQueue::fail() {
  return modify_qp(qp_.get(), {}, kRcName, {{IBV_QPS_ERR, 0}});
}

ibv_qp_attr RcQueue::init_attributes() const noexcept {
  ibv_qp_attr attr{};
  attr.port_num = device_->port_number();
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return attr;
}

Status RcQueue::prepare() {
  Status status = modify_qp(qp_.get(), init_attributes(), kRcName, {{IBV_QPS_INIT, kInitMask}});
  prepared_ = status.ok();
  return status;
}

Status RcQueue::connect(std::uint32_t remote, std::uint16_t lid,
                        const std::array<std::uint8_t, 16>& gid) {
  if (remote_ != 0) {
    if (Status status = disconnect(); !status.ok()) return status;
  }
  if (!prepared_) {
    if (Status status = prepare(); !status.ok()) return status;
  }
  prepared_ = false;
  ibv_qp_attr attr = init_attributes();
  attr.path_mtu = device_->port().active_mtu;
  attr.dest_qp_num = qp_number_of(remote);
  attr.rq_psn = first_psn_of(remote);
  attr.max_dest_rd_atomic = kMaxReads;
  attr.min_rnr_timer = kMinRnrTimer;
  attr.ah_attr = path_to(*device_, lid, gid);
  attr.sq_psn = first_psn_of(qp_id());
  attr.timeout = tuning_.ack_timeout;
  attr.retry_cnt = tuning_.retry_count;
  attr.rnr_retry = kRnrRetryForever;
  attr.max_rd_atomic = kMaxReads;
  // An initiator answers nobody.
  const int responder = initiator_ ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  Status status = modify_qp(
      qp_.get(), attr, kRcName,
      {{IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | responder},
       {IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                         IBV_QP_MAX_QP_RD_ATOMIC}});
  if (status.ok()) remote_ = remote;
  return status;
}

std::vector<SendRecord> RcQueue::take_all(std::shared_ptr<const SentLog>* log) {
  std::vector<SendRecord> all = SendQueue::take_all();
  if (log != nullptr) *log = std::make_shared<const SentLog>(std::move(log_));
  log_.clear();
  return all;
}

Status RcQueue::post_receive(std::uint64_t wr_id, ibv_sge sge) {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_.get(), &request, &bad);
  if (error != 0) return verbs::failure("ibv_post_recv", kRcName, error);
  return {};
}

}  // namespace turnout
