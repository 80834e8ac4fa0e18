// SPDX-License-Identifier: BSD-3-Clause
// DataPath: posts requests and receives, polls and arms completion queues. The fast half of an
// engine; the other half is object_verbs.h.
//
// Nothing here makes or ends an object. Functions return 0 or an errno value unless they say
// otherwise, like the verb of the same name (its man page is the source). Any thread may call; the
// locks that the caller holds are named.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

class DataPath {
 public:
  virtual ~DataPath() = default;

  // May this request be posted? 0 or errno.
  virtual int check(const Qp& qp, const SendWqe& wqe) = 0;
  // send: `wqe` is qp.scratch or stands in qp.build.batch, sq_lock is held.
  virtual int send(Qp& qp, SendWqe& wqe) = 0;
  virtual int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) = 0;
  virtual int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) = 0;
  // Takes the next entry; false: empty. The caller holds the CQ's poll_lock.
  virtual bool take(Cq& cq, Completion& out) = 0;
  // Called when a poll found nothing: -1 if the CQ is in error, else 0 after retries that are due.
  virtual int idle(Cq& cq) = 0;
  virtual int request_notify(Cq& cq, bool solicited_only) = 0;
  // Takes the next event of the channel; may wait for it. EAGAIN: there is none.
  virtual int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) = 0;
};

}  // namespace turnout::hca
