// SPDX-License-Identifier: BSD-3-Clause
// LiveSendQueues: what of a queue pair's requests is not done at once: retries, completion in
// order, errors and what they flush.
//
// A stalled queue pair waits for a time: the RNR timer of its target, or its own transport timer.
// The first to come by after that time retries: a thread that polls an empty CQ, one that posts, or
// the firmware thread. Times are nanoseconds of CLOCK_MONOTONIC. With the queue pair's sq_lock,
// except retry_due(), which takes it.
//
// Locks of this process, in order: stalled_mutex_ is only try-locked with sq_lock taken inside it
// by try_lock; sq_lock -> locks of the shared state; poll_lock -> locks of the shared state.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "hca/live/executor.h"

namespace turnout::hca {

// Whose thread it is: the firmware thread looks at the times again by itself.
enum class Caller : std::uint8_t { program, firmware };

class LiveSendQueues : LiveParts {
 public:
  explicit LiveSendQueues(const LiveParts& parts) : LiveParts(parts) {}

  // The request at the head, or one that ran at once, is done.
  void complete(Qp& qp, const SendWqe& wqe, ibv_wc_status status) noexcept;
  // To `to` (sqe, err): everything not done ends with a flush entry.
  void fail(Qp& qp, QpPhase to) noexcept;
  void flush(Qp& qp) noexcept;

  // The head must wait.
  void stall(Qp& qp, Step why, Caller caller) noexcept;
  // Executes what may be executed.
  void progress(Qp& qp, Caller caller) noexcept;
  void retry_due(Caller caller) noexcept;
  // When the first retry is due; UINT64_MAX: there is none.
  [[nodiscard]] std::uint64_t next_retry() const noexcept {
    return next_retry_.load(std::memory_order_relaxed);
  }
  // The queue pair waits for nothing any more.
  void forget(Qp& qp) noexcept;

 private:
  std::mutex stalled_mutex_;
  std::vector<Qp*> stalled_;
  std::atomic<std::uint64_t> next_retry_{UINT64_MAX};
};

}  // namespace turnout::hca
