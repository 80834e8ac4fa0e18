// SPDX-License-Identifier: BSD-3-Clause
// The firmware thread and the retries it shares with the threads that poll.
//
// A stalled queue pair waits for a time: the RNR timer of its target, or its own transport timer.
// The first to come by after that time retries: a thread that polls an empty CQ, one that posts, or
// this thread, which otherwise sleeps in ppoll until a peer dies, a wake byte arrives or a time is
// due.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "hca/device/rules.h"
#include "hca/live/engine.h"

namespace turnout::hca {

void LiveEngine::stall(Qp& qp, Step why) noexcept {
  std::uint64_t wait = 0;
  ibv_wc_status exhausted = IBV_WC_SUCCESS;
  if (why == Step::receiver_not_ready) {
    context_of(qp.verbs.qp_base.context).rnr_retries.fetch_add(1, std::memory_order_relaxed);
    constexpr std::uint32_t kForever = 7;  // IBTA 9.7.5.2.8
    if (qp.attr.rnr_retry != kForever && qp.rnr_left == 0) {
      exhausted = IBV_WC_RNR_RETRY_EXC_ERR;
    } else {
      if (qp.attr.rnr_retry != kForever) --qp.rnr_left;
      const std::uint32_t number =
          sends_to_one(qp.kind) ? qp.attr.dest_qp_num : qp.queue.front().dest_qpn;
      wait = rnr_wait(fabric_->qp(number & (kMaxQps - 1)).min_rnr_timer);
    }
    qp.waiting_rnr = true;
  } else {
    // The first failed attempt and each retry take one timer; the last one to run out ends it.
    if (qp.stalled.load(std::memory_order_relaxed) && !qp.waiting_rnr) {
      if (qp.retries_left == 0) {
        exhausted = IBV_WC_RETRY_EXC_ERR;
      } else {
        --qp.retries_left;
      }
    }
    qp.waiting_rnr = false;
    wait = ack_wait(qp.attr.timeout);
  }
  if (exhausted != IBV_WC_SUCCESS) {
    const SendWqe wqe = qp.queue.front();
    qp.queue.pop_front();
    qp.stalled.store(false, std::memory_order_release);
    forget_stalled(qp);
    complete(qp, wqe, exhausted);
    return;
  }
  // A transport timer of 0 means for ever; the queue pair is looked at again when something
  // happens.
  const bool forever = wait == 0;
  qp.retry_at = forever ? UINT64_MAX - 1 : monotonic() + wait;
  qp.stalled.store(true, std::memory_order_release);
  bool sooner = false;
  {
    const std::lock_guard lock(stalled_mutex_);
    if (std::find(stalled_.begin(), stalled_.end(), &qp) == stalled_.end()) stalled_.push_back(&qp);
    sooner = qp.retry_at < next_retry_.load(std::memory_order_relaxed);
    if (sooner) next_retry_.store(qp.retry_at, std::memory_order_relaxed);
  }
  if (sooner && std::this_thread::get_id() != firmware_.get_id()) fabric_->wake(fabric_->me());
}

void LiveEngine::forget_stalled(Qp& qp) noexcept {
  const std::lock_guard lock(stalled_mutex_);
  std::erase(stalled_, &qp);
}

void LiveEngine::progress(Qp& qp) noexcept {
  for (;;) {
    const auto phase =
        static_cast<QpPhase>(qp.record->identity.load(std::memory_order_acquire) & 0xff);
    if (phase == QpPhase::err || phase == QpPhase::sqe) {
      flush_send_queue(qp);
      return;
    }
    if (phase != QpPhase::rts || qp.queue.empty()) break;
    SendWqe& head = qp.queue.front();
    ibv_wc_status status = IBV_WC_SUCCESS;
    const Step step = execute(qp, head, status);
    if (step != Step::done) {
      stall(qp, step);
      return;
    }
    const SendWqe wqe = head;
    qp.queue.pop_front();
    qp.stalled.store(false, std::memory_order_release);
    qp.rnr_left = qp.attr.rnr_retry;
    qp.retries_left = qp.attr.retry_cnt;
    if (status != IBV_WC_SUCCESS || qp.signal_all || (wqe.flags & IBV_SEND_SIGNALED) != 0) {
      complete(qp, wqe, status);
    }
  }
  qp.stalled.store(false, std::memory_order_release);
}

void LiveEngine::retry_due(bool firmware) noexcept {
  const std::uint64_t now = monotonic();
  if (!firmware && now < next_retry_.load(std::memory_order_relaxed)) return;
  // Taken out of the list to run: stall() puts back what is not done. sq_lock is only tried, so a
  // thread that holds it and waits for stalled_mutex_ is no danger; it will find the queue pair due
  // itself.
  std::unique_lock lock(stalled_mutex_, std::defer_lock);
  if (firmware) {
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
    const auto phase =
        static_cast<QpPhase>(qp->record->identity.load(std::memory_order_acquire) & 0xff);
    const bool over = phase == QpPhase::err || phase == QpPhase::sqe;
    if (!qp->stalled.load(std::memory_order_relaxed) || over || qp->retry_at <= now) {
      run.push_back(qp);  // its sq_lock stays ours
      stalled_[i] = stalled_.back();
      stalled_.pop_back();
      continue;
    }
    next = std::min(next, qp->retry_at);
    qp->sq_lock.unlock();
    ++i;
  }
  next_retry_.store(next, std::memory_order_relaxed);
  lock.unlock();
  for (Qp* qp : run) {
    progress(*qp);
    qp->sq_lock.unlock();
  }
}

void LiveEngine::firmware_main() noexcept {
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // RNR timers begin at 10 us, the default slack is 50 us

  struct Watch {
    Token token;
    int pidfd;  // -1: it could not be had (seccomp, no descriptor is free)
  };
  // How often those without a pidfd are looked at: no person notices, and it takes less than a
  // thousandth of a processor.
  constexpr std::uint64_t kLook = 50'000'000;
  std::uint64_t look_at = 0;
  bool told = false;
  std::vector<Watch> watches;
  std::vector<pollfd> polls;
  const auto refresh = [&] {
    const std::uint32_t high = std::min(fabric_->header().process_high.load(), kMaxProcesses);
    std::erase_if(watches, [&](const Watch& w) {
      if (fabric_->process(slot_of(w.token)).token.load() == w.token) return false;
      if (w.pidfd >= 0) ::close(w.pidfd);
      fabric_->forget_pipes(w.token);  // another process reaped it
      return true;
    });
    for (std::uint32_t slot = 0; slot < high; ++slot) {
      const Token token = fabric_->process(slot).token.load(std::memory_order_acquire);
      if (token == 0 || token == fabric_->me() || slot_of(token) != slot) continue;
      if (std::any_of(watches.begin(), watches.end(),
                      [&](const Watch& w) { return w.token == token; })) {
        continue;
      }
      const int fd = static_cast<int>(
          syscall(SYS_pidfd_open, static_cast<pid_t>(fabric_->process(slot).pid), 0));
      if (fd < 0) {
        const int error = errno;
        fabric_->reap(token);  // does nothing when the process lives
        if (fabric_->process(slot).token.load() != token) continue;
        if (!told && error != ESRCH) {
          told = true;
          TURNOUT_LOG(hca, warn,
                      "pidfd_open failed: process {}: {}; polling for its exit every {} ms",
                      fabric_->process(slot).pid, std::strerror(error), kLook / 1'000'000);
        }
      }
      watches.push_back({token, fd});
    }
  };
  refresh();
  while (!stop_.load(std::memory_order_acquire)) {
    polls.clear();
    polls.push_back({fabric_->wake_read(), POLLIN, 0});
    for (const Watch& w : watches) polls.push_back({w.pidfd, POLLIN, 0});
    std::uint64_t next = next_retry_.load(std::memory_order_relaxed);
    const bool looks =
        std::any_of(watches.begin(), watches.end(), [](const Watch& w) { return w.pidfd < 0; });
    timespec wait{};
    timespec* limit = nullptr;
    if (looks || next < UINT64_MAX - 1) {
      const std::uint64_t now = monotonic();
      if (looks) next = std::min(next, look_at);
      const std::uint64_t left = next > now ? next - now : 0;
      wait = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
      limit = &wait;
    }
    if (ppoll(polls.data(), polls.size(), limit, nullptr) < 0 && errno != EINTR) {
      TURNOUT_LOG(hca, error, "ppoll failed: firmware thread: {}; retrying", std::strerror(errno));
      usleep(10'000);
    }
    bool changed = false;
    if ((polls[0].revents & POLLIN) != 0) {
      char bytes[256];
      while (read(fabric_->wake_read(), bytes, sizeof bytes) > 0) {
      }
      changed = true;
    }
    for (std::size_t i = 0; i < watches.size(); ++i) {
      if (polls[i + 1].revents == 0) continue;
      fabric_->reap(watches[i].token);
      // Where a damaged record named another process it lives on: refresh() watches the right one.
      ::close(watches[i].pidfd);
      watches[i].pidfd = -1;
      changed = true;
    }
    const bool look = looks && monotonic() >= look_at;
    if (changed || look) {
      look_at = monotonic() + kLook;
      // refresh() tries again for those that have no pidfd, and reaps those that have ended.
      std::erase_if(watches, [](const Watch& w) { return w.pidfd < 0; });
      refresh();
      memory_.sweep(
          [](void* self, std::uint32_t key) {
            auto& engine = *static_cast<LiveEngine*>(self);
            const std::uint32_t high = std::min(engine.fabric_->header().qp_high.load(), kMaxQps);
            for (std::uint32_t i = 0; i < high; ++i) {
              if (static_cast<std::uint32_t>(engine.fabric_->hazard(i).load()) == key) return true;
            }
            return false;
          },
          this);
    }
    retry_due(true);
  }
  for (const Watch& w : watches) {
    if (w.pidfd >= 0) ::close(w.pidfd);
  }
}

}  // namespace turnout::hca
