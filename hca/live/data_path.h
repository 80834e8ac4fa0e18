// SPDX-License-Identifier: BSD-3-Clause
// LiveDataPath: DataPath among the processes of one host. The initiator executes a work request
// completely inside the post: it checks the target's records, moves the data, completes the
// target's receive and then its own request.
//
// Any thread.
#pragma once

#include "hca/device/copy_in_order.h"
#include "hca/device/data_path.h"
#include "hca/device/queue_pair.h"
#include "hca/live/direct_writes.h"
#include "hca/live/idle_polls.h"
#include "hca/live/send_queues.h"
#include "hca/live/shared_copies.h"

namespace turnout::hca {

class LiveDataPath final : public DataPath, LiveParts {
 public:
  explicit LiveDataPath(const LiveParts& parts) : LiveParts(parts) {}

  int check(const Qp& qp, const SendWqe& wqe) override {
    return check_request(qp, qp.record->phase(), wqe);
  }
  int send(Qp& qp, SendWqe& wqe) override {
    const bool first = idle_polls.posts_first();
    const QpPhase phase = qp.record->phase();
    const bool at_once = phase == QpPhase::rts && !qp.stalled.load(std::memory_order_relaxed);
    const std::uint32_t length = wqe.length;
    if (at_once && wqe.is_inline && length > 0 && has_room(qp) &&
        direct_writes.write(qp, wqe, length,
                            [&](std::uint8_t* to) { copy_in_order(to, wqe.data, length); })) {
      if (first) direct_writes.hand_over(qp, length);
      static_assert(kMaxInline <= kMtu);
      ++qp.record->counters.packets;
      qp.record->counters.bytes += length;
      ++qp.posted;
      if (is_signaled(qp, wqe)) {
        wqe.position = qp.posted;
        send_queues.complete(qp, wqe, IBV_WC_SUCCESS);
      }
      return 0;
    }
    if (const int error = check_request(qp, phase, wqe); error != 0) return error;
    wqe.position = ++qp.posted;
    if (at_once) [[likely]] {
      const auto [step, status] = executor.execute(qp, wqe);
      if (step == Step::done) [[likely]] {
        if (first && wqe.opcode == IBV_WR_RDMA_WRITE) direct_writes.hand_over(qp, wqe.length);
        if (status != IBV_WC_SUCCESS || is_signaled(qp, wqe)) {
          send_queues.complete(qp, wqe, status);
        }
        return 0;
      }
      stall(qp, wqe, step);
      return 0;
    }
    enqueue(qp, wqe);
    return 0;
  }
  // Behind what is queued; executes what nothing holds up. Not part of the common way.
  [[gnu::noinline]] void enqueue(Qp& qp, const SendWqe& wqe) {
    const QpPhase phase = qp.record->phase();
    qp.queue.push_back(wqe);
    if (phase == QpPhase::err || phase == QpPhase::sqe) {
      send_queues.flush(qp);
    } else if (phase != QpPhase::sqd && qp.retry.at <= monotonic()) {
      send_queues.progress(qp, Caller::program);
    }
  }
  // The first of a queue, which has to wait. Not part of the common way either.
  [[gnu::noinline]] void stall(Qp& qp, const SendWqe& wqe, Step step) {
    qp.retry.rnr_left = qp.attr.rnr_retry;
    qp.retry.left = qp.attr.retry_cnt;
    qp.queue.push_back(wqe);
    send_queues.stall(qp, step, Caller::program);
  }
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post_own(qp, wr, bad);
  }
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post_shared(srq, wr, bad);
  }
  bool take(Cq& cq, Completion& out) override { return completions.take(cq, out); }
  int idle(Cq& cq) override {
    shared_copies.help();
    idle_polls.found_nothing();
    if (send_queues.next_retry() != UINT64_MAX) send_queues.retry_due(Caller::program);
    return cq.record->overflowed.load(std::memory_order_acquire) != 0 ? -1 : 0;
  }
  int request_notify(Cq& cq, bool solicited_only) override {
    return LiveCompletions::request_notify(cq, solicited_only);
  }
  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override {
    return events.take_completion(channel, cq, cq_context);
  }
};

}  // namespace turnout::hca
