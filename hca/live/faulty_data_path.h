// SPDX-License-Identifier: BSD-3-Clause
// FaultyDataPath: LiveDataPath of a process that asked for faults.
//
// Every request goes through the queue pair's send queue, where Faults has its say. Any thread.
#pragma once

#include "hca/live/data_path.h"
#include "hca/live/faults.h"

namespace turnout::hca {

class FaultyDataPath final : public DataPath, LiveParts {
 public:
  FaultyDataPath(const LiveParts& parts, LiveDataPath& path) : LiveParts(parts), path_(path) {}

  int check(const Qp& qp, const SendWqe& wqe) override { return path_.check(qp, wqe); }
  int send(Qp& qp, SendWqe& wqe) override {
    if (const int error = path_.check(qp, wqe); error != 0) return error;
    wqe.position = ++qp.posted;
    faults.posted(qp, wqe);
    if (qp.queue.empty()) {
      qp.retry.rnr_left = qp.attr.rnr_retry;
      qp.retry.left = qp.attr.retry_cnt;
    }
    path_.enqueue(qp, wqe);
    return 0;
  }
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return path_.post_recv(qp, wr, bad);
  }
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return path_.post_srq_recv(srq, wr, bad);
  }
  bool take(Cq& cq, Completion& out) override {
    if (!path_.take(cq, out)) return false;
    faults.taken(cq);
    return true;
  }
  int idle(Cq& cq) override { return path_.idle(cq); }
  int request_notify(Cq& cq, bool solicited_only) override {
    return path_.request_notify(cq, solicited_only);
  }
  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override {
    return path_.get_cq_event(channel, cq, cq_context);
  }

 private:
  LiveDataPath& path_;
};

}  // namespace turnout::hca
