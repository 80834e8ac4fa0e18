// SPDX-License-Identifier: BSD-3-Clause
// VirtualDataPath: DataPath under the virtual clock: posting makes operations, the events of the
// world carry them on.
//
// Each call takes the time that the profile says. One thread.
#pragma once

#include "hca/device/data_path.h"
#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class VirtualDataPath final : public DataPath, EngineParts {
 public:
  VirtualDataPath(const EngineParts& parts, WorkQueues& work_queues)
      : EngineParts(parts), work_queues_(work_queues) {}

  int check(const Qp& qp, const SendWqe& wqe) override;
  int send(Qp& qp, SendWqe& wqe) override;
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post(qp, wr, bad);
  }
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post_shared(srq, wr, bad);
  }
  bool take(Cq& cq, Completion& out) override { return completions.take(cq, out); }
  int idle(Cq& cq) override { return completions.idle(cq); }
  int request_notify(Cq& cq, bool solicited_only) override {
    return Completions::request_notify(cq, solicited_only);
  }
  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override {
    return Completions::get_event(channel, cq, cq_context);
  }

 private:
  WorkQueues& work_queues_;
};

}  // namespace turnout::hca
