// SPDX-License-Identifier: BSD-3-Clause
// DeferredWorkQueue: the operations of a domain that wait for a counter to reach a threshold:
// those with FI_TRIGGER, and struct fi_deferred_work (fi_trigger(3)).
//
// Part of its domain. Lists of buffers are copied, so only what FI_TRIGGER and fi_deferred_work ask
// for must stay valid. Counters are not told of their waiters: while something waits, every call
// that makes progress looks at the counters that are waited for, so counters cost what they always
// did (docs/decisions/041-triggered-operations.md). Operations on one counter start in the order of
// their thresholds, then of the calls; back-pressure keeps those behind it waiting, too. A
// threshold that was reached stays so when the counter is set back.
//
// Calls hold the domain's lock, except waiting(). What is named here cannot be closed, but an
// endpoint can: its operations are dropped, as its posted receives are. What waits takes at most a
// sixteenth of the memory budget, as the operations that an endpoint promises to accept do. Errors:
// -FI_E*; a start that fails is an error completion.
#pragma once

#include <rdma/fi_trigger.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/endpoint.h"
#include "provider/data_path.h"

namespace turnout::provider {

struct Cntr;
struct Domain;
struct Ep;

// What an operation waits for, and who asked.
struct Deferral {
  Cntr* trigger = nullptr;
  std::uint64_t threshold = 0;
  // Of fi_deferred_work: its failures count towards the threshold, too. Null: FI_TRIGGER.
  const fi_deferred_work* work = nullptr;
  Cntr* completion = nullptr;  // counts instead of the endpoint's counters; may be null

  // What is added to the flags of the operation: the endpoint's own, unless it is deferred work.
  [[nodiscard]] std::uint64_t flags(std::uint64_t own) const noexcept {
    return work != nullptr ? 0 : own;
  }
};

class DeferredWorkQueue {
 public:
  struct CounterChange {
    Cntr* counter;
    std::uint64_t value;
    bool sets;  // else adds
  };
  using Operation =
      std::variant<SendRequest, RecvRequest, RmaRequest, AtomicRequest, CounterChange>;

  explicit DeferredWorkQueue(Domain& domain) noexcept : domain_(domain) {}
  DeferredWorkQueue(const DeferredWorkQueue&) = delete;
  DeferredWorkQueue& operator=(const DeferredWorkQueue&) = delete;
  ~DeferredWorkQueue();

  // Any thread, without the lock.
  [[nodiscard]] bool waiting() const noexcept { return waiting_.load(); }

  // `ep` is null for a change of a counter. Starts it at once if it is due. Errors: -FI_EDOMAIN,
  // -FI_EINVAL (too much to inject), -FI_ENOMEM (what waits has all of its memory).
  [[nodiscard]] int add(Ep* ep, const Operation& operation, const Call& call,
                        const Deferral& deferral);
  // FI_CANCEL_WORK. -FI_ENOENT: it does not wait (any more).
  [[nodiscard]] int cancel(const fi_deferred_work& work);
  // FI_FLUSH_WORK: of all deferred work, or of what waits for this counter.
  void flush(const Cntr* only);
  // fi_cancel of an operation with FI_TRIGGER, the latest one with this context: it ends with an
  // error entry. False: there is none.
  [[nodiscard]] bool cancel(const Ep& ep, const void* context);
  // The endpoint ends.
  void forget(const Ep& ep);

  // Makes progress on all endpoints of the domain, as any of them may move the counters, and starts
  // what is due. True if anything moved. `asker`: the endpoint that was to move, if it was one; the
  // others need not do all of this when they are asked next.
  bool progress(const DataPath* asker = nullptr);
  // A counter has changed.
  bool start_due();
  // One of the two runs: what they call must not call them.
  [[nodiscard]] bool is_running() const noexcept { return running_; }

 private:
  struct LetGo {
    void operator()(Cntr* counter) const noexcept;
  };
  using CounterHold = std::unique_ptr<Cntr, LetGo>;  // it cannot be closed
  struct Return {
    std::size_t bytes;
    void operator()(std::size_t* total) const noexcept { *total -= bytes; }
  };
  using Charge = std::unique_ptr<std::size_t, Return>;

  struct Work {
    Work(Ep* ep, const Operation& operation, const Call& call, const Deferral& deferral);

    Ep* const ep;
    const Call call;
    const fi_deferred_work* const work;  // as in Deferral
    Operation operation;
    std::vector<std::vector<iovec>> lists;  // of buffers, to which `operation` refers
    std::vector<std::byte> injected;
    CounterHold trigger, completion, changed;  // the last two may be null
    Charge charge;

    [[nodiscard]] std::size_t bytes() const noexcept;
    void own_lists();
    // FI_INJECT with FI_TRIGGER: the program's buffers may change now. False: too many bytes.
    [[nodiscard]] bool copy_data();
    // -FI_EAGAIN: back-pressure. Other errors are reported.
    [[nodiscard]] int start();
    void fail(int error, const char* what);
    template <class Request>
    [[nodiscard]] Counter* counter_of(const Request& request) const noexcept;
  };
  using WorkMap = std::multimap<std::uint64_t, Work>;
  struct Waiters {
    Cntr* counter;
    WorkMap work;  // by threshold, then in the order of the calls
    WorkMap due;   // the threshold was reached; by when
    [[nodiscard]] bool empty() const noexcept { return work.empty() && due.empty(); }
  };
  class Running;

  bool start_what_is_due();
  void reach(Waiters& waiters) noexcept;
  // Removes what `is_it` says so of. True if anything was.
  template <class IsIt>
  bool remove(IsIt&& is_it);
  void tell_endpoints() noexcept;

  Domain& domain_;
  std::size_t bytes_ = 0;          // of what waits
  std::vector<Waiters> counters_;  // that are waited for
  std::uint64_t reached_ = 0;      // operations whose threshold was
  std::atomic<bool> waiting_{false};
  bool running_ = false;
};

// The answer to fi_sendmsg and its like with flags beyond their own: with FI_TRIGGER alone,
// `deferral` says what `context` does. Errors: -FI_EBADFLAGS, -FI_ENOSYS (FI_TRIGGER_XPU),
// -FI_EINVAL.
[[nodiscard]] int deferral_of(fid_ep* ep, std::uint64_t beyond, const void* context,
                              Deferral& deferral) noexcept;

// fi_control of a domain: FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK.
[[nodiscard]] int control_work(::fid* domain, int command, void* argument);

// Deferred work of each kind, in the files of the calls that it is like. Errors: theirs.
[[nodiscard]] ssize_t defer_send(const fi_op_msg& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_recv(const fi_op_msg& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_send(const fi_op_tagged& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_recv(const fi_op_tagged& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_read(const fi_op_rma& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_write(const fi_op_rma& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_atomic(const fi_op_atomic& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_atomic(const fi_op_fetch_atomic& op, const Deferral& deferral) noexcept;
[[nodiscard]] ssize_t defer_atomic(const fi_op_compare_atomic& op,
                                   const Deferral& deferral) noexcept;

}  // namespace turnout::provider
