// SPDX-License-Identifier: BSD-3-Clause
// Faults: makes the faults of a FaultPlan happen to this process's requests, completions, objects
// and port.
//
// Which fault a request meets is settled when it is posted, so the order of the posts decides and
// nothing else. What happens is what a real adapter would show: statuses of the IBTA, the events of
// ibv_get_async_event(3), retries by the queue pair's own timers. Each fault is logged: its first
// hit as a warning, the others as information, and how often it hit when the process ends.
//
// Without a plan nothing calls this: the data path of such a process is FaultyDataPath. Any thread;
// the locks that the caller holds are named.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hca/device/fault_plan.h"
#include "hca/live/executor.h"

namespace turnout::hca {

class Faults : LiveParts {
 public:
  Faults(const LiveParts& parts, FaultPlan plan);

  [[nodiscard]] bool active() const noexcept { return !plan_.empty(); }
  // From now on times count. A port that is to be down at once is.
  void start() noexcept;
  // Logs how often each fault hit. Once.
  void summarize() noexcept;

  // Contexts that learn of what happens to the port, and of what has happened already.
  void add(Context& context);
  void remove(Context& context) noexcept;

  // Settles the fate of a request. sq_lock held.
  void posted(const Qp& qp, const SendWqe& wqe);
  // Executes the request at the head of its queue, or does what happens to it instead. sq_lock
  // held.
  [[nodiscard]] Attempt attempt(Qp& qp, SendWqe& wqe) noexcept;
  // CLOCK_MONOTONIC, ns: until when the latest attempt's request waits.
  [[nodiscard]] std::uint64_t delayed_until(const Qp& qp) const noexcept;
  // What was posted to the queue pair will not be executed.
  void forget(const Qp& qp) noexcept;

  // A completion was taken from the queue, whose poll_lock is held.
  void taken(Cq& cq) noexcept;
  // 0, or the errno of an object that cannot be created.
  [[nodiscard]] int refuse(FaultObject object) noexcept;
  // One that is_counted() was created, or destroyed.
  void count(FaultObject object, bool created) noexcept {
    auto& number = objects_[static_cast<std::size_t>(object)];
    created ? number.fetch_add(1) : number.fetch_sub(1);
  }

  // When something happens to the port; UINT64_MAX: nothing more.
  [[nodiscard]] std::uint64_t next_due() const noexcept { return next_due_; }
  // What is due. The firmware thread.
  void run_due() noexcept;

 private:
  // What a request will meet.
  struct Fate {
    std::uint32_t position;  // SendWqe's
    std::uint32_t fault;     // index
    std::uint64_t left;      // attempts
    std::uint64_t until;     // delay
  };
  struct Counts {
    std::atomic<std::uint64_t> seen{0}, hits{0};
    std::atomic<bool> noted{false};  // in the log
  };
  struct Timer {
    std::uint64_t at = UINT64_MAX;  // CLOCK_MONOTONIC, ns
    bool up = false;                // what happens then
  };

  // Counts one that fault `index` may hit; true: it does. taken: another fault has hit it.
  [[nodiscard]] bool draw(std::size_t index, bool taken = false) noexcept;
  [[nodiscard]] std::optional<Fate> take_fate(const Qp& qp, std::uint32_t position) noexcept;
  [[nodiscard]] Attempt meet(Qp& qp, SendWqe& wqe, Fate fate) noexcept;
  void put_back(const Qp& qp, const Fate& fate) noexcept;
  // Logs a hit: the first of a fault as a warning.
  void note(std::size_t index, const std::string& what) noexcept;
  void note(std::size_t index, const Qp& qp, const SendWqe& wqe, const char* what) noexcept;
  void overrun(Cq& cq) noexcept;
  void set_port(bool down) noexcept;
  void fail_device() noexcept;
  void raise(ibv_event_type type) noexcept;
  void raise(const Context& context, ibv_event_type type) noexcept;

  FaultPlan plan_;
  std::vector<Counts> counts_;
  // Of each kind, that this process has.
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(FaultObject::xrcd) + 1>
      objects_{};
  std::vector<Timer> timers_;            // of each fault
  std::uint64_t next_due_ = UINT64_MAX;  // written by the firmware thread, and before it starts
  std::atomic<std::uint32_t> ports_down_{0};  // faults that hold the port down
  std::atomic<bool> device_failed_{false};
  std::atomic<bool> summarized_{false};
  mutable std::mutex mutex_;                                   // guards the next two
  std::unordered_map<std::uint32_t, std::deque<Fate>> fates_;  // by number of the queue pair
  std::vector<Context*> contexts_;
};

}  // namespace turnout::hca
