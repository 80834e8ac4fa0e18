// SPDX-License-Identifier: BSD-3-Clause
// UdQueue: an unreliable-datagram queue pair; it sends to any other one and receives into a shared
// receive queue (ibv_create_qp(3), IBV_QPT_UD).
//
// A datagram has at most one MTU and may be lost, duplicated or reordered;
// core/flow/ud_reliability.h makes a stream of them. A queue pair accepts only datagrams with its
// Q_Key, which is derived from the endpoint's id, so that datagrams for an earlier endpoint with
// the same number are dropped. One thread.
#pragma once

#include "core/transport/message_queue.h"
#include "core/transport/path.h"
#include "core/verbs/device.h"

namespace turnout {

// The key of the queue pairs of the endpoint with that id. The highest bit is the driver's: a
// request with it would take the sender's own key (IBTA 10.2.5).
[[nodiscard]] constexpr std::uint32_t datagram_key(std::uint64_t endpoint) noexcept {
  return static_cast<std::uint32_t>((endpoint ^ endpoint >> 32) * 0x9e3779b1u) & 0x7fffffffu;
}

class UdQueue final : public MessageQueue {
 public:
  using MessageQueue::MessageQueue;
  [[nodiscard]] Status create(const verbs::Device& device, ibv_cq* send_cq, ibv_cq* receive_cq,
                              ibv_srq* srq, std::uint32_t depth, std::uint64_t endpoint) {
    ibv_qp_init_attr attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = receive_cq;
    attr.srq = srq;
    attr.cap.max_send_wr = depth;
    attr.cap.max_send_sge = 1;
    attr.qp_type = IBV_QPT_UD;
    qp_.reset(ibv_create_qp(device.pd(), &attr));
    if (!qp_) return verbs::failure("ibv_create_qp", "UD queue pair", errno);
    ibv_qp_attr qp{};
    qp.port_num = device.port_number();
    qp.qkey = datagram_key(endpoint);
    return modify_qp(qp_.get(), qp, "UD queue pair",
                     {{IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
                      {IBV_QPS_RTR, 0},
                      {IBV_QPS_RTS, IBV_QP_SQ_PSN}});
  }
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_->qp_num; }
  // A record that comes signalled is; dc_key is the id of the endpoint it goes to.
  [[nodiscard]] Status post(const SendRecord& record) override {
    constexpr std::uint32_t kSignalEvery = 8;  // as in dc_queue.cpp
    const bool signalled =
        decide_signal(record.signalled, record.pool != SendRecord::Pool::none, kSignalEvery);
    ibv_sge sge{record.local, record.length, record.lkey};
    ibv_send_wr request{};
    request.wr_id = next_wr_id();
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
    request.wr.ud.ah = record.ah;
    request.wr.ud.remote_qpn = record.dct;
    request.wr.ud.remote_qkey = datagram_key(record.dc_key);
    if (const int error = submit(&request); error != 0) [[unlikely]]
      return verbs::failure("ibv_post_send", "UD queue pair", error);
    push(record, signalled);
    return {};
  }
  // A failed request stops the sending side only (IBTA 10.3.1: SQE).
  [[nodiscard]] Status recover() override {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.cur_qp_state = IBV_QPS_SQE;
    const int error = ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (error != 0) return verbs::failure("ibv_modify_qp from SQE", "UD queue pair", error);
    return {};
  }
};

}  // namespace turnout
