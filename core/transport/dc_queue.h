// SPDX-License-Identifier: BSD-3-Clause
// DC queue pairs: DcInitiator sends to any DcTarget (mlx5dv_create_qp(3), mlx5dv_wr_set_dc_addr).
//
// A target accepts only initiators that know its 64-bit access key; ours is the endpoint's id.
// Every message goes from a registered buffer that is kept until its completion, so that work
// flushed by one dead destination can be posted again for the others. One thread.
#pragma once

#include "core/transport/message_queue.h"
#include "core/verbs/device.h"

namespace turnout {

class DcInitiator final : public MessageQueue {
 public:
  using MessageQueue::MessageQueue;
  [[nodiscard]] Status create(const verbs::Device& device, ibv_cq* cq, std::uint32_t depth,
                              const QpTuning& tuning);
  [[nodiscard]] Status post(const SendRecord& record) override;
  [[nodiscard]] Status recover() override;

 private:
  [[nodiscard]] Status to_ready();
  const verbs::Device* device_ = nullptr;
  QpTuning tuning_;
  ibv_qp_ex* ex_ = nullptr;
  mlx5dv_qp_ex* mlx5_ = nullptr;
};

class DcTarget {
 public:
  [[nodiscard]] Status create(const verbs::Device& device, ibv_cq* cq, ibv_srq* srq,
                              std::uint64_t access_key);
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_->qp_num; }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_.get(); }

 private:
  verbs::Qp qp_;
};

}  // namespace turnout
