// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/send_queues.h"

#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"
#include "hca/live/faults.h"
#include "hca/live/streams.h"

namespace turnout::hca {

void LiveSendQueues::complete(Qp& qp, const SendWqe& wqe, ibv_wc_status status) noexcept {
  const Completion entry = completion_of(wqe, qp.number, status);
  const bool pushed = completions.push(qp.record->send_cq, fabric.me(), entry, false, nullptr);
  if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) {
    // An unacknowledged one only stops sending (IBTA 10.3.1: SQE); the others go to error whole.
    TURNOUT_LOG(hca, debug, "work request failed: {:#x} of queue pair {:#x}: status {}", wqe.wr_id,
                qp.number, static_cast<int>(status));
    if (fails_alone(qp, wqe)) return;
    fail(qp, is_unacknowledged(qp.kind) ? QpPhase::sqe : QpPhase::err);
  } else if (!pushed && status == IBV_WC_SUCCESS) {
    events.raise_qp(*qp.record, qp.number, IBV_EVENT_QP_FATAL);
    fail(qp, is_unacknowledged(qp.kind) ? QpPhase::sqe : QpPhase::err);
  }
}

void LiveSendQueues::fail(Qp& qp, QpPhase to) noexcept {
  std::uint64_t identity = qp.record->identity.load(std::memory_order_acquire);
  const std::uint64_t failed = QpRecord::identity_of(qp.number, to);
  while (QpRecord::phase_of(identity) != QpPhase::err &&
         !qp.record->identity.compare_exchange_weak(identity, failed)) {
  }
  if (to == QpPhase::err) {
    if (qp.record->srq == kNone) {
      receives.flush(*qp.record, qp.number);
      if (qp.record->rq.mlx5 != 0) fabric.wake(fabric.me());  // of what is posted from now on
    } else if (qp.kind == QpKind::rc) {
      events.raise_qp(*qp.record, qp.number, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
  }
  flush(qp);
}

void LiveSendQueues::flush(Qp& qp) noexcept {
  qp.stalled.store(false, std::memory_order_release);
  qp.retry.at = 0;
  while (!qp.queue.empty()) {
    const SendWqe wqe = qp.queue.front();
    qp.queue.pop_front();
    complete(qp, wqe, IBV_WC_WR_FLUSH_ERR);
  }
}

void LiveSendQueues::stall(Qp& qp, Step why, Caller caller) noexcept {
  assert(why != Step::done && !qp.queue.empty());
  std::uint64_t wait = 0;
  ibv_wc_status exhausted = IBV_WC_SUCCESS;
  QpCounters& counters = qp.record->counters;
  if (why == Step::receiver_not_ready) {
    context_of(qp.verbs.qp_base.context).rnr_retries.fetch_add(1, std::memory_order_relaxed);
    ++counters.rnr_naks;
    constexpr std::uint32_t kForever = 7;  // IBTA 9.7.5.2.8
    if (qp.attr.rnr_retry != kForever && qp.retry.rnr_left == 0) {
      exhausted = IBV_WC_RNR_RETRY_EXC_ERR;
      ++counters.rnr_retries_exceeded;
    } else {
      if (qp.attr.rnr_retry != kForever) --qp.retry.rnr_left;
      const std::uint32_t number =
          sends_to_one(qp.kind) ? qp.attr.dest_qp_num : qp.queue.front().dest_qpn;
      wait = rnr_wait(fabric.qp(number & (kMaxQps - 1)).min_rnr_timer);
    }
    qp.retry.waiting_rnr = true;
  } else if (why == Step::delayed) {
    const std::uint64_t until = faults.delayed_until(qp), now = monotonic();
    wait = until > now ? until - now : 1;
    qp.retry.waiting_rnr = true;  // no attempt was made: none counts
  } else {
    // The first failed attempt and each retry take one timer; the last one to run out ends it.
    if (qp.stalled.load(std::memory_order_relaxed) && !qp.retry.waiting_rnr) {
      if (qp.retry.left == 0) {
        exhausted = IBV_WC_RETRY_EXC_ERR;
        ++counters.retries_exceeded;
      } else {
        --qp.retry.left;
        ++counters.retries;
      }
    }
    qp.retry.waiting_rnr = false;
    wait = ack_wait(qp.attr.timeout);
  }
  if (exhausted != IBV_WC_SUCCESS) {
    const SendWqe wqe = qp.queue.front();
    qp.queue.pop_front();
    qp.stalled.store(false, std::memory_order_release);
    forget(qp);
    complete(qp, wqe, exhausted);
    return;
  }
  // A transport timer of 0 means for ever, or until something else happens to the queue pair.
  const bool forever = wait == 0;
  qp.retry.at = forever ? UINT64_MAX - 1 : monotonic() + wait;
  qp.stalled.store(true, std::memory_order_release);
  bool sooner = false;
  {
    const std::lock_guard lock(stalled_mutex_);
    if (std::find(stalled_.begin(), stalled_.end(), &qp) == stalled_.end()) stalled_.push_back(&qp);
    sooner = qp.retry.at < next_retry_.load(std::memory_order_relaxed);
    if (sooner) next_retry_.store(qp.retry.at, std::memory_order_relaxed);
  }
  if (sooner && caller == Caller::program) fabric.wake(fabric.me());
}

void LiveSendQueues::forget(Qp& qp) noexcept {
  const std::lock_guard lock(stalled_mutex_);
  std::erase(stalled_, &qp);
}

void LiveSendQueues::progress(Qp& qp, Caller caller) noexcept {
  for (;;) {
    const auto phase = qp.record->phase();
    if (phase == QpPhase::err || phase == QpPhase::sqe) {
      flush(qp);
      return;
    }
    if (phase != QpPhase::rts || qp.queue.empty()) break;
    SendWqe& head = qp.queue.front();
    const auto [step, status] =
        faults.active() ? faults.attempt(qp, head) : executor.execute(qp, head);
    if (step != Step::done) {
      stall(qp, step, caller);
      return;
    }
    const SendWqe wqe = head;
    qp.queue.pop_front();
    qp.stalled.store(false, std::memory_order_release);
    qp.retry.rnr_left = qp.attr.rnr_retry;
    qp.retry.left = qp.attr.retry_cnt;
    if (status != IBV_WC_SUCCESS || is_signaled(qp, wqe)) {
      complete(qp, wqe, status);
    }
  }
  qp.stalled.store(false, std::memory_order_release);
}

void LiveSendQueues::retry_due(Caller caller) noexcept {
  const std::uint64_t now = monotonic();
  if (caller == Caller::program && now < next_retry_.load(std::memory_order_relaxed)) return;
  // Taken out of the list to run: stall() puts back what is not done. sq_lock is only tried, so a
  // thread that holds it and waits for stalled_mutex_ is no danger; it will find the queue pair due
  // itself.
  std::unique_lock lock(stalled_mutex_, std::defer_lock);
  if (caller == Caller::firmware) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  std::vector<Qp*> run;
  std::uint64_t next = UINT64_MAX;
  for (std::size_t i = 0; i < stalled_.size();) {
    Qp* qp = stalled_[i];
    if (!qp->sq_lock.try_lock()) {
      next = std::min(next, now + 100'000);
      ++i;
      continue;
    }
    const auto phase = qp->record->phase();
    const bool over = phase == QpPhase::err || phase == QpPhase::sqe;
    if (!qp->stalled.load(std::memory_order_relaxed) || over || qp->retry.at <= now) {
      run.push_back(qp);  // its sq_lock stays ours
      stalled_[i] = stalled_.back();
      stalled_.pop_back();
      continue;
    }
    next = std::min(next, qp->retry.at);
    qp->sq_lock.unlock();
    ++i;
  }
  next_retry_.store(next, std::memory_order_relaxed);
  lock.unlock();
  for (Qp* qp : run) {
    progress(*qp, caller);
    qp->sq_lock.unlock();
  }
}

}  // namespace turnout::hca
