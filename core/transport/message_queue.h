// SPDX-License-Identifier: BSD-3-Clause
// MessageQueue: a queue pair of the default transport that can send to any peer: a DC initiator, or
// a UD queue pair on devices without DC. Owner: the endpoint; one thread.
#pragma once

#include "core/transport/send_queue.h"

namespace turnout {

// What every connected queue pair of Turnout is given. IBTA: 7 retries for want of a receive mean
// "for ever": a slow receiver loses nothing.
inline constexpr std::uint8_t kRnrRetryForever = 7;
// READs in flight per queue pair; what mlx5 adapters offer (max_qp_rd_atom).
inline constexpr std::uint8_t kMaxReads = 16;

struct QpTuning {
  std::uint8_t ack_timeout = 14;  // IBTA code: 4.096 us * 2^code
  std::uint8_t retry_count = 6;
  std::uint32_t max_inline = 0;  // bytes
};

class MessageQueue : public SendQueue {
 public:
  using SendQueue::SendQueue;
  virtual ~MessageQueue() = default;
  // Undefined when full(). The record names operation, memory and destination.
  [[nodiscard]] virtual Status post(const SendRecord& record) = 0;
  // Back to ready-to-send after an error; records must have been taken out.
  [[nodiscard]] virtual Status recover() = 0;
};

}  // namespace turnout
