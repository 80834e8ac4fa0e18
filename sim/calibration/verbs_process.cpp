// SPDX-License-Identifier: BSD-3-Clause
#include "sim/calibration/verbs_process.h"

#include <fmt/format.h>

#include <cerrno>

namespace turnout::sim {

namespace {

constexpr unsigned kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint64_t kDcKey = 1;
constexpr std::uint32_t kQkey = 1;
constexpr std::uint32_t kInline = 256;  // as perftest's default on these adapters, about
constexpr std::uint32_t kDcDepth = 64;
constexpr int kCompletions = 1024;
constexpr std::uint8_t kReadsUnderWay = 16;
constexpr std::uint8_t kTimeout = 14, kRetries = 7, kRnrTimer = 1;  // IBTA codes

}  // namespace

Result<std::unique_ptr<VerbsProcess>> VerbsProcess::create(hca::World& world, std::uint32_t node,
                                                           const Settings& settings,
                                                           std::size_t bytes) {
  std::unique_ptr<VerbsProcess> p(new VerbsProcess(world));
  p->index_ = world.add_process(
      node, [](void* self, std::uint64_t) { static_cast<VerbsProcess*>(self)->woken = true; },
      p.get());
  p->enter();
  auto device = verbs::Device::open(settings);
  if (!device) return device.status();
  p->device_ = std::move(device).value();
  p->cq_.reset(ibv_create_cq(p->device_->context(), kCompletions, nullptr, nullptr, 0));
  if (p->cq_ == nullptr) return verbs::failure("ibv_create_cq", p->device_->name(), errno);
  p->buffer_.resize(bytes);
  p->region_.reset((ibv_reg_mr)(p->device_->pd(), p->buffer_.data(), bytes, kRights));
  if (p->region_ == nullptr) return verbs::failure("ibv_reg_mr", p->device_->name(), errno);
  ibv_ah_attr path{};
  path.port_num = 1;
  p->ah_.reset(ibv_create_ah(p->device_->pd(), &path));
  if (p->ah_ == nullptr) return verbs::failure("ibv_create_ah", p->device_->name(), errno);
  return p;
}

Status VerbsProcess::make(ibv_qp_type type, std::uint32_t depth, ibv_qp** out) {
  enter();
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.cap = {depth, depth, 1, 1, kInline};
  attr.qp_type = type;
  verbs::Qp qp(ibv_create_qp(device_->pd(), &attr));
  if (qp == nullptr) return verbs::failure("ibv_create_qp", device_->name(), errno);
  *out = qps_.emplace_back(std::move(qp)).get();
  return {};
}

Status VerbsProcess::connect(ibv_qp* qp, std::uint32_t peer) {
  enter();
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_INIT;
  change.port_num = 1;
  change.qp_access_flags = kRights;
  int error = ibv_modify_qp(qp, &change,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  change.qp_state = IBV_QPS_RTR;
  change.path_mtu = IBV_MTU_4096;
  change.dest_qp_num = peer;
  change.max_dest_rd_atomic = change.max_rd_atomic = kReadsUnderWay;
  change.min_rnr_timer = kRnrTimer;
  change.ah_attr.port_num = 1;
  if (error == 0) {
    error = ibv_modify_qp(qp, &change,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  change.qp_state = IBV_QPS_RTS;
  change.timeout = kTimeout;
  change.retry_cnt = change.rnr_retry = kRetries;
  if (error == 0) {
    error = ibv_modify_qp(qp, &change,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  return error == 0 ? Status() : verbs::failure("ibv_modify_qp", device_->name(), error);
}

Status VerbsProcess::make_ud(std::uint32_t depth, ibv_qp** out) {
  if (Status s = make(IBV_QPT_UD, depth, out); !s.ok()) return s;
  ibv_qp* const qp = *out;
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_INIT;
  change.port_num = 1;
  change.qkey = kQkey;
  int error =
      ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  change.qp_state = IBV_QPS_RTR;
  if (error == 0) error = ibv_modify_qp(qp, &change, IBV_QP_STATE);
  change.qp_state = IBV_QPS_RTS;
  if (error == 0) error = ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_SQ_PSN);
  return error == 0 ? Status() : verbs::failure("ibv_modify_qp", device_->name(), error);
}

Status VerbsProcess::make_dc_target() {
  enter();
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = attr.attr.max_sge = 1;
  srq_.reset(ibv_create_srq(device_->pd(), &attr));
  if (srq_ == nullptr) return verbs::failure("ibv_create_srq", device_->name(), errno);
  dc_target_ = std::make_unique<DcTarget>();
  return dc_target_->create(*device_, cq_.get(), srq_.get(), kDcKey);
}

Status VerbsProcess::make_dc_initiator() {
  enter();
  dc_initiator_ = std::make_unique<DcInitiator>(0, kDcDepth, buffers_);
  return dc_initiator_->create(*device_, cq_.get(), kDcDepth, QpTuning{});
}

Status VerbsProcess::post(ibv_qp* qp, const VerbsProcess& target, const Request& request) {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(buffer_.data()), request.bytes, region_->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = request.opcode;
  wr.send_flags =
      IBV_SEND_SIGNALED | (request.inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0U);
  if (request.datagram_to != 0) {
    wr.wr.ud = {ah_.get(), request.datagram_to, kQkey};
  } else {
    wr.wr.rdma = {reinterpret_cast<std::uint64_t>(target.buffer_.data()) + request.at,
                  target.region_->rkey};
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &wr, &bad);
  return error == 0 ? Status() : verbs::failure("ibv_post_send", device_->name(), error);
}

Status VerbsProcess::read_dc(const VerbsProcess& target, std::uint32_t bytes) {
  SendRecord record;
  record.kind = SendRecord::Kind::transfer;
  record.opcode = IBV_WR_RDMA_READ;
  record.local = reinterpret_cast<std::uint64_t>(buffer_.data());
  record.lkey = region_->lkey;
  record.length = bytes;
  record.remote = reinterpret_cast<std::uint64_t>(target.buffer_.data());
  record.rkey = target.region_->rkey;
  record.dct = target.dc_target_->number();
  record.ah = ah_.get();
  record.dc_key = kDcKey;
  return dc_initiator_->post(record);
}

Status VerbsProcess::post_receive(ibv_qp* qp) {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(buffer_.data()),
                static_cast<std::uint32_t>(buffer_.size()), region_->lkey};
  ibv_recv_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp, &wr, &bad);
  return error == 0 ? Status() : verbs::failure("ibv_post_recv", device_->name(), error);
}

Result<bool> VerbsProcess::take(ibv_wc* entry) {
  if (ibv_poll_cq(cq_.get(), 1, entry) != 1) return false;
  if (entry->status != IBV_WC_SUCCESS) {
    return Status{Code::internal, fmt::format("work request failed: {}: {}", device_->name(),
                                              ibv_wc_status_str(entry->status))};
  }
  if (dc_initiator_ != nullptr) {
    dc_initiator_->retire(entry->wr_id, true, [](const SendRecord&) {});
  }
  return true;
}

Status VerbsProcess::wait(ibv_wc_opcode opcode) {
  for (;;) {
    enter();
    woken = false;
    for (;;) {
      ibv_wc entry;
      const Result<bool> taken = take(&entry);
      if (!taken) return taken.status();
      if (!taken.value()) break;
      if (entry.opcode == opcode) return {};
    }
    while (!woken) {
      if (!world_.run_one()) {
        return {Code::internal, "benchmark failed: a completion did not come"};
      }
    }
  }
}

}  // namespace turnout::sim
