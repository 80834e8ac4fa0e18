// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/faults.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "hca/device/qp_state.h"
#include "hca/device/rules.h"
#include "hca/live/send_queues.h"

namespace turnout::hca {
namespace {

// Holds up the calling thread, as a process that has other work to do.
void pause_for(std::int64_t nanoseconds) noexcept {
  constexpr std::int64_t kSecond = 1'000'000'000, kSleep = 100'000;
  const std::uint64_t end = monotonic() + static_cast<std::uint64_t>(nanoseconds);
  if (nanoseconds >= kSleep) {
    timespec left{nanoseconds / kSecond, nanoseconds % kSecond};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
  while (monotonic() < end) {
  }
}

}  // namespace

Faults::Faults(const LiveParts& parts, FaultPlan plan)
    : LiveParts(parts),
      plan_(std::move(plan)),
      counts_(plan_.faults().size()),
      timers_(plan_.faults().size()) {}

void Faults::start() noexcept {
  if (!active()) return;
  const std::uint64_t now = monotonic();
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    const Fault& fault = plan_.faults()[i];
    TURNOUT_LOG(hca, info, "fault {}: seed {}", fault.text, plan_.seed());
    if (fault.kind != FaultKind::link_down && fault.kind != FaultKind::device_fatal) continue;
    timers_[i].at = now + static_cast<std::uint64_t>(fault.at);
    next_due_ = std::min(next_due_, timers_[i].at);
  }
  fabric.header().faults.store(1, std::memory_order_seq_cst);
  run_due();
}

void Faults::summarize() noexcept {
  if (summarized_.exchange(true)) return;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const std::uint64_t hits = counts_[i].hits.load();
    if (hits == 0) continue;
    TURNOUT_LOG(hca, warn, "fault {}: hit {} of {}; unset TURNOUT_FAULT to run without it",
                plan_.faults()[i].text, hits, counts_[i].seen.load());
  }
}

void Faults::add(Context& context) {
  const std::lock_guard lock(mutex_);
  contexts_.push_back(&context);
  const bool down = ports_down_.load() != 0;
  context.port_down.store(down);
  if (down) raise(context, IBV_EVENT_PORT_ERR);
  if (device_failed_.load()) raise(context, IBV_EVENT_DEVICE_FATAL);
}

void Faults::remove(Context& context) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(contexts_, &context);
}

bool Faults::draw(std::size_t index, bool taken) noexcept {
  const std::uint64_t n = counts_[index].seen.fetch_add(1, std::memory_order_relaxed);
  if (taken || !plan_.hits(index, n)) return false;
  const std::uint64_t most = plan_.faults()[index].count;
  std::uint64_t hits = counts_[index].hits.load(std::memory_order_relaxed);
  do {
    if (most != 0 && hits >= most) return false;
  } while (!counts_[index].hits.compare_exchange_weak(hits, hits + 1, std::memory_order_relaxed));
  return true;
}

void Faults::posted(const Qp& qp, const SendWqe& wqe) {
  // Every fault that may hit counts the request, the first that does has it.
  std::optional<Fate> fate;
  for (std::size_t i = 0; i < plan_.faults().size(); ++i) {
    const Fault& fault = plan_.faults()[i];
    if (!fault.is_for(qp.kind, wqe.opcode) || !draw(i, fate.has_value())) continue;
    const std::uint64_t attempts = fault.times == 0 ? UINT64_MAX : fault.times;
    const std::uint64_t until =
        fault.kind == FaultKind::delay ? monotonic() + static_cast<std::uint64_t>(fault.time) : 0;
    fate = Fate{wqe.position, static_cast<std::uint32_t>(i), attempts, until};
  }
  if (!fate) return;
  const std::lock_guard lock(mutex_);
  fates_[qp.number].push_back(*fate);
}

std::optional<Faults::Fate> Faults::take_fate(const Qp& qp, std::uint32_t position) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = fates_.find(qp.number);
  if (found == fates_.end()) return std::nullopt;
  std::deque<Fate>& queue = found->second;
  // Requests that were flushed have passed.
  while (!queue.empty() && static_cast<std::int32_t>(queue.front().position - position) < 0)
    queue.pop_front();
  if (queue.empty() || queue.front().position != position) return std::nullopt;
  const Fate fate = queue.front();
  queue.pop_front();
  return fate;
}

void Faults::put_back(const Qp& qp, const Fate& fate) noexcept {
  const std::lock_guard lock(mutex_);
  fates_[qp.number].push_front(fate);
}

void Faults::forget(const Qp& qp) noexcept {
  const std::lock_guard lock(mutex_);
  fates_.erase(qp.number);
}

std::uint64_t Faults::delayed_until(const Qp& qp) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = fates_.find(qp.number);
  return found == fates_.end() || found->second.empty() ? 0 : found->second.front().until;
}

void Faults::note(std::size_t index, const std::string& what) noexcept {
  const std::string& text = plan_.faults()[index].text;
  if (!counts_[index].noted.exchange(true, std::memory_order_relaxed)) {
    TURNOUT_LOG(hca, warn, "fault {}: {}", text, what);
  } else {
    TURNOUT_LOG(hca, info, "fault {}: {}", text, what);
  }
}

void Faults::note(std::size_t index, const Qp& qp, const SendWqe& wqe, const char* what) noexcept {
  note(index, fmt::format("request {:#x} of queue pair {:#x}: {}", wqe.wr_id, qp.number, what));
}

Attempt Faults::attempt(Qp& qp, SendWqe& wqe) noexcept {
  if (ports_down_.load(std::memory_order_acquire) != 0 && !is_local(wqe.opcode)) {
    if (!is_unacknowledged(qp.kind)) return Step::no_answer;
    (void)take_fate(qp, wqe.position);
    return Step::done;
  }
  const std::optional<Fate> fate = take_fate(qp, wqe.position);
  return fate ? meet(qp, wqe, *fate) : executor.execute(qp, wqe);
}

Attempt Faults::meet(Qp& qp, SendWqe& wqe, Fate fate) noexcept {
  const Fault& fault = plan_.faults()[fate.fault];
  switch (fault.kind) {
    case FaultKind::loss:
      note(fate.fault, qp, wqe, "lost");
      return Step::done;
    case FaultKind::delay:
      if (monotonic() >= fate.until) return executor.execute(qp, wqe);
      if (fate.left != 0) note(fate.fault, qp, wqe, "delayed");
      fate.left = 0;
      put_back(qp, fate);
      return Step::delayed;
    case FaultKind::rnr:
    case FaultKind::timeout: {
      if (fate.left == 0) return executor.execute(qp, wqe);
      const bool rnr = fault.kind == FaultKind::rnr;
      note(fate.fault, qp, wqe, rnr ? "receiver not ready" : "not acknowledged");
      if (fate.left != UINT64_MAX) --fate.left;
      put_back(qp, fate);
      return rnr ? Step::receiver_not_ready : Step::no_answer;
    }
    case FaultKind::error:
      note(fate.fault, qp, wqe, "completed with an error");
      return executor.refuse(qp, wqe, fault.status);
    case FaultKind::qp_fatal:
      note(fate.fault, qp, wqe, "its queue pair fails");
      receives.fail_target(*qp.record, qp.number, IBV_EVENT_QP_FATAL);
      return IBV_WC_WR_FLUSH_ERR;
    default:
      return executor.execute(qp, wqe);
  }
}

void Faults::overrun(Cq& cq) noexcept {
  CqRecord& record = *cq.record;
  EventRecord event{};
  PipeRef pipe;
  {
    // As push() finds a queue that is full.
    const SharedGuard guard(fabric, record.lock);
    if (record.phase.load(std::memory_order_relaxed) != ObjectPhase::live) return;
    record.phase.store(ObjectPhase::error, std::memory_order_relaxed);
    record.overflowed.store(1, std::memory_order_release);
    event = {record.cookie, cq.index, record.generation, IBV_EVENT_CQ_ERR, kCqEvent};
    pipe = record.async;
  }
  events.raise(fabric.me(), pipe, event);
}

void Faults::taken(Cq& cq) noexcept {
  for (std::size_t i = 0; i < plan_.faults().size(); ++i) {
    const Fault& fault = plan_.faults()[i];
    const bool slow = fault.kind == FaultKind::slow;
    if ((!slow && fault.kind != FaultKind::cq_overrun) || !draw(i)) continue;
    note(i, fmt::format("completion queue {}: {}", cq.index,
                        slow ? "its completions are handled slowly" : "overrun"));
    if (slow) {
      pause_for(fault.time);
    } else {
      overrun(cq);
    }
  }
}

int Faults::refuse(FaultObject object) noexcept {
  if (device_failed_.load(std::memory_order_relaxed)) return EIO;
  for (std::size_t i = 0; i < plan_.faults().size(); ++i) {
    const Fault& fault = plan_.faults()[i];
    const bool meant = fault.object == FaultObject::any || fault.object == object;
    if (fault.kind != FaultKind::create || !meant) continue;
    if (fault.limit > objects_[static_cast<std::size_t>(object)].load() || !draw(i)) continue;
    note(i, fmt::format("call {} fails: {}", counts_[i].seen.load(std::memory_order_relaxed),
                        std::generic_category().message(fault.error)));
    return fault.error;
  }
  return 0;
}

void Faults::raise(ibv_event_type type) noexcept {
  const std::lock_guard lock(mutex_);
  for (Context* const context : contexts_) raise(*context, type);
}

void Faults::raise(const Context& context, ibv_event_type type) noexcept {
  events.raise(fabric.me(), context.async, {0, 0, 0, static_cast<std::uint32_t>(type), kPortEvent});
}

void Faults::set_port(bool down) noexcept {
  const std::uint32_t before = down ? ports_down_.fetch_add(1) : ports_down_.fetch_sub(1);
  if (before != (down ? 0U : 1U)) return;
  ProcessRecord& own = fabric.process(slot_of(fabric.me()));
  own.port_down.store(down ? 1 : 0, std::memory_order_release);
  if (down) own.links_downed.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    for (Context* const context : contexts_) context->port_down.store(down);
  }
  raise(down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

void Faults::fail_device() noexcept {
  device_failed_.store(true);
  set_port(true);
  raise(IBV_EVENT_DEVICE_FATAL);
  // Its owner may end a queue pair at any time: the table's lock keeps it, and is not held while
  // one waits for sq_lock.
  const std::uint32_t high = std::min(fabric.header().qp_high.load(), kMaxQps);
  for (std::uint32_t i = kFirstQp; i < high;) {
    bool busy = false;
    {
      const std::lock_guard lock(objects.mutex);
      Qp* const qp = objects.qps[i].load(std::memory_order_acquire);
      if (qp != nullptr && qp->kind != QpKind::xrc_tgt) {
        busy = !qp->sq_lock.try_lock();
        if (!busy) {
          if (can_receive(qp->record->phase())) send_queues.fail(*qp, QpPhase::err);
          qp->sq_lock.unlock();
        }
      }
    }
    if (busy) {
      pause_for(1'000);
    } else {
      ++i;
    }
  }
}

void Faults::run_due() noexcept {
  const std::uint64_t now = monotonic();
  if (now < next_due_) return;
  next_due_ = UINT64_MAX;
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    Timer& timer = timers_[i];
    const Fault& fault = plan_.faults()[i];
    if (timer.at <= now) {
      counts_[i].seen.fetch_add(1);
      if (fault.kind == FaultKind::device_fatal) {
        counts_[i].hits.fetch_add(1);
        TURNOUT_LOG(hca, warn, "fault {}: the adapter fails", fault.text);
        timer.at = UINT64_MAX;
        fail_device();
      } else if (timer.up) {
        TURNOUT_LOG(hca, warn, "fault {}: the port is up", fault.text);
        timer.up = false;
        timer.at = fault.every == 0
                       ? UINT64_MAX
                       : timer.at + static_cast<std::uint64_t>(fault.every - fault.time);
        set_port(false);
      } else {
        counts_[i].hits.fetch_add(1);
        TURNOUT_LOG(hca, warn, "fault {}: the port is down", fault.text);
        timer.up = true;
        timer.at = fault.time == 0 ? UINT64_MAX : timer.at + static_cast<std::uint64_t>(fault.time);
        set_port(true);
      }
    }
    next_due_ = std::min(next_due_, timer.at);
  }
}

}  // namespace turnout::hca
