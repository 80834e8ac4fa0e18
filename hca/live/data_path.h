// SPDX-License-Identifier: BSD-3-Clause
// LiveDataPath: DataPath among the processes of one host. The initiator executes a work request
// completely inside the post: it checks the target's records, moves the data, completes the
// target's receive and then its own request.
//
// Any thread.
#pragma once

#include "hca/device/data_path.h"
#include "hca/live/send_queues.h"

namespace turnout::hca {

class LiveDataPath final : public DataPath, LiveParts {
 public:
  LiveDataPath(const LiveParts& parts, Executor& executor, LiveSendQueues& send_queues)
      : LiveParts(parts), executor_(executor), send_queues_(send_queues) {}

  int check(const Qp& qp, const SendWqe& wqe) override;
  int send(Qp& qp, SendWqe& wqe) override;
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post_own(qp, wr, bad);
  }
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post_shared(srq, wr, bad);
  }
  bool take(Cq& cq, Completion& out) override { return completions.take(cq, out); }
  int idle(Cq& cq) override;
  int request_notify(Cq& cq, bool solicited_only) override {
    return LiveCompletions::request_notify(cq, solicited_only);
  }
  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override {
    return events.take_completion(channel, cq, cq_context);
  }

 private:
  Executor& executor_;
  LiveSendQueues& send_queues_;
};

}  // namespace turnout::hca
