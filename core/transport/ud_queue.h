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
                              ibv_srq* srq, std::uint32_t depth, std::uint64_t endpoint);
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_->qp_num; }
  // A record that comes signalled is; dc_key is the id of the endpoint it goes to.
  [[nodiscard]] Status post(SendRecord record) override;
  [[nodiscard]] Status recover() override;
};

}  // namespace turnout
