// SPDX-License-Identifier: BSD-3-Clause
// VirtualDataPath: DataPath under the virtual clock: posting makes operations, the events of the
// world carry them on.
//
// Each call takes the time that the profile says. One thread.
#pragma once

#include "hca/device/data_path.h"
#include "hca/virtual/channels.h"
#include "hca/virtual/regions.h"
#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class VirtualDataPath final : public DataPath {
 public:
  VirtualDataPath(Kernel& kernel, const Profile& profile, Processes& processes,
                  Operations& operations, const Regions& regions, Completions& completions,
                  Receives& receives, WorkQueues& work_queues, Tracer& trace)
      : kernel_(kernel),
        profile_(profile),
        processes_(processes),
        operations_(operations),
        regions_(regions),
        completions_(completions),
        receives_(receives),
        work_queues_(work_queues),
        trace_(trace) {}

  int check(const Qp& qp, const SendWqe& wqe) override;
  int send(Qp& qp, SendWqe& wqe) override;
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives_.post(qp, wr, bad);
  }
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives_.post_shared(srq, wr, bad);
  }
  bool take(Cq& cq, Completion& out) override { return completions_.take(cq, out); }
  int idle(Cq& cq) override { return completions_.idle(cq); }
  int request_notify(Cq& cq, bool solicited_only) override {
    return Completions::request_notify(cq, solicited_only);
  }
  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override {
    return Channels::get_event(channel, cq, cq_context);
  }

 private:
  Kernel& kernel_;
  const Profile& profile_;
  Processes& processes_;
  Operations& operations_;
  const Regions& regions_;
  Completions& completions_;
  Receives& receives_;
  WorkQueues& work_queues_;
  Tracer& trace_;
};

}  // namespace turnout::hca
