// SPDX-License-Identifier: BSD-3-Clause
#include "provider/deferred_work_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <tuple>
#include <type_traits>

#include "provider/cntr.h"
#include "provider/domain.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/info.h"

namespace turnout::provider {
namespace {

using List = std::span<const iovec>;
using CounterChange = DeferredWorkQueue::CounterChange;

// The lists of buffers of a request: those that are read when it starts, then the others.
std::array<List*, 2> read_lists(SendRequest& r) noexcept {
  return {&r.data, nullptr};
}
std::array<List*, 2> read_lists(RecvRequest&) noexcept {
  return {};
}
std::array<List*, 2> read_lists(RmaRequest& r) noexcept {
  return {r.write ? &r.local : nullptr, nullptr};
}
std::array<List*, 2> read_lists(AtomicRequest& r) noexcept {
  return {&r.operands, &r.compare};
}
std::array<List*, 2> read_lists(CounterChange&) noexcept {
  return {};
}
List* written_list(SendRequest&) noexcept {
  return nullptr;
}
List* written_list(RecvRequest& r) noexcept {
  return &r.buffer;
}
List* written_list(RmaRequest& r) noexcept {
  return r.write ? nullptr : &r.local;
}
List* written_list(AtomicRequest& r) noexcept {
  return &r.result;
}
List* written_list(CounterChange&) noexcept {
  return nullptr;
}

// Of the entry of one that failed.
struct Entry {
  std::uint32_t flags;
  std::uint64_t tag;
};
template <class Message>
std::uint32_t kind_of(const Message& r) noexcept {
  return r.tagged ? kTagged : kMessage;
}
Entry entry_of(const SendRequest& r) noexcept {
  return {kSend | kind_of(r), r.tag};
}
Entry entry_of(const RecvRequest& r) noexcept {
  return {kRecv | kind_of(r), r.tag};
}
Entry entry_of(const RmaRequest& r) noexcept {
  return {r.write ? kRmaWrite : kRmaRead, 0};
}
Entry entry_of(const AtomicRequest& r) noexcept {
  return {kAtomic | (r.form == AtomicForm::update ? kRmaWrite : kRmaRead), 0};
}

template <class F>
auto with_request(DeferredWorkQueue::Operation& operation, F&& f) {
  return std::visit(f, operation);
}

// 0, or what is wrong with the endpoint of deferred work.
template <class Op>
int check_endpoint_of(const Domain& domain, const Op* op, std::uint64_t kind) noexcept {
  if (op == nullptr || op->ep == nullptr || op->ep->fid.fclass != FI_CLASS_EP) return -FI_EINVAL;
  const Ep& ep = Ep::of(op->ep);
  if (&ep.domain != &domain) return -FI_EDOMAIN;
  if ((ep.caps & FI_TRIGGER) == 0 || (ep.caps & kind) == 0) return -FI_ENOSYS;
  return ep.enabled ? 0 : -FI_EOPBADSTATE;
}

int queue_counter_change(Domain& domain, const fi_deferred_work& work, const Deferral& deferral) {
  const fi_op_cntr* const op = work.op.cntr;
  if (op == nullptr || op->cntr == nullptr || work.completion_cntr != nullptr) return -FI_EINVAL;
  const Guard guard(domain.lock);
  const CounterChange change{&Cntr::of(op->cntr), op->value, work.op_type == FI_OP_CNTR_SET};
  return domain.work.add(nullptr, change, {FI_ADDR_UNSPEC, 0}, deferral);
}

int queue_work(Domain& domain, const fi_deferred_work& work) {
  if (work.triggering_cntr == nullptr) return -FI_EINVAL;
  Deferral deferral{&Cntr::of(work.triggering_cntr), work.threshold, &work, nullptr};
  if (work.completion_cntr != nullptr) deferral.completion = &Cntr::of(work.completion_cntr);
  const auto queue = [&](const auto* op, std::uint64_t kind, auto call) -> int {
    if (const int error = check_endpoint_of(domain, op, kind); error != 0) return error;
    return static_cast<int>(call(*op, deferral));
  };
  const auto send = [](const auto& op, const Deferral& d) { return defer_send(op, d); };
  const auto recv = [](const auto& op, const Deferral& d) { return defer_recv(op, d); };
  const auto atomic = [](const auto& op, const Deferral& d) { return defer_atomic(op, d); };
  switch (work.op_type) {
    case FI_OP_SEND:
      return queue(work.op.msg, FI_MSG, send);
    case FI_OP_RECV:
      return queue(work.op.msg, FI_MSG, recv);
    case FI_OP_TSEND:
      return queue(work.op.tagged, FI_TAGGED, send);
    case FI_OP_TRECV:
      return queue(work.op.tagged, FI_TAGGED, recv);
    case FI_OP_READ:
      return queue(work.op.rma, FI_RMA, defer_read);
    case FI_OP_WRITE:
      return queue(work.op.rma, FI_RMA, defer_write);
    case FI_OP_ATOMIC:
      return queue(work.op.atomic, FI_ATOMIC, atomic);
    case FI_OP_FETCH_ATOMIC:
      return queue(work.op.fetch_atomic, FI_ATOMIC, atomic);
    case FI_OP_COMPARE_ATOMIC:
      return queue(work.op.compare_atomic, FI_ATOMIC, atomic);
    case FI_OP_CNTR_SET:
    case FI_OP_CNTR_ADD:
      return queue_counter_change(domain, work, deferral);
  }
  return -FI_ENOSYS;
}

}  // namespace

int deferral_of(fid_ep* ep, std::uint64_t beyond, const void* context,
                Deferral& deferral) noexcept {
  if (beyond != FI_TRIGGER || (Ep::of(ep).caps & FI_TRIGGER) == 0) return -FI_EBADFLAGS;
  if (context == nullptr) return -FI_EINVAL;
  const auto& triggered = *static_cast<const fi_triggered_context*>(context);
  if (triggered.event_type != FI_TRIGGER_THRESHOLD) return -FI_ENOSYS;
  if (triggered.trigger.threshold.cntr == nullptr) return -FI_EINVAL;
  deferral.trigger = &Cntr::of(triggered.trigger.threshold.cntr);
  deferral.threshold = triggered.trigger.threshold.threshold;
  return 0;
}

int control_work(::fid* f, int command, void* argument) {
  Domain& domain = Domain::of(f);
  return contain([&] {
    const auto* const work = static_cast<const fi_deferred_work*>(argument);
    switch (command) {
      case FI_QUEUE_WORK:
        return work != nullptr ? queue_work(domain, *work) : -FI_EINVAL;
      case FI_CANCEL_WORK: {
        if (work == nullptr) return -FI_EINVAL;
        const Guard guard(domain.lock);
        return domain.work.cancel(*work);
      }
      case FI_FLUSH_WORK: {
        // fi_trigger(3) lets a program flush what waits for one counter.
        auto* const counter = static_cast<::fid*>(argument);
        if (counter != nullptr && counter->fclass != FI_CLASS_CNTR) return -FI_EINVAL;
        const Guard guard(domain.lock);
        domain.work.flush(counter != nullptr ? &Cntr::of(counter) : nullptr);
        return 0;
      }
      default:
        return -FI_ENOSYS;
    }
  });
}

class DeferredWorkQueue::Running {
 public:
  explicit Running(bool& running) noexcept : running_(running) { running_ = true; }
  ~Running() { running_ = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  bool& running_;
};

void DeferredWorkQueue::LetGo::operator()(Cntr* counter) const noexcept {
  --counter->deferred;
}

DeferredWorkQueue::Work::Work(Ep* owner, const Operation& what, const Call& how,
                              const Deferral& deferral)
    : ep(owner),
      call(deferral.work == nullptr
               ? how
               : Call{how.peer, how.flags, const_cast<fi_context2*>(&deferral.work->context)}),
      work(deferral.work),
      operation(what) {
  const auto hold = [](Cntr* counter) {
    if (counter != nullptr) ++counter->deferred;
    return CounterHold(counter);
  };
  own_lists();
  trigger = hold(deferral.trigger);
  completion = hold(deferral.completion);
  if (const auto* const change = std::get_if<CounterChange>(&operation))
    changed = hold(change->counter);
}

void DeferredWorkQueue::Work::own_lists() {
  with_request(operation, [&](auto& request) {
    const auto [first, second] = read_lists(request);
    for (List* const list : {first, second, written_list(request)}) {
      if (list == nullptr) continue;
      lists.emplace_back(list->begin(), list->end());
      *list = lists.back();
    }
  });
}

std::size_t DeferredWorkQueue::Work::bytes() const noexcept {
  constexpr std::size_t kNode = 4 * sizeof(void*);  // of a map, beside the value
  std::size_t sum = kNode + sizeof(WorkMap::value_type) + injected.size();
  for (const std::vector<iovec>& list : lists) sum += sizeof list + list.size() * sizeof(iovec);
  return sum;
}

bool DeferredWorkQueue::Work::copy_data() {
  return with_request(operation, [&](auto& request) {
    std::size_t bytes = 0;
    for (const List* const list : read_lists(request)) {
      for (const iovec& one : list != nullptr ? *list : List{}) {
        if (one.iov_len > kInjectLimit - bytes) return false;
        bytes += one.iov_len;
      }
    }
    injected.resize(bytes);
    std::byte* to = injected.data();
    std::size_t at = 0;  // in `lists`, which has them in this order
    for (const List* const list : read_lists(request)) {
      if (list == nullptr) continue;
      for (iovec& one : lists[at++]) {
        if (one.iov_len == 0) continue;
        std::memcpy(to, one.iov_base, one.iov_len);
        one.iov_base = to;
        to += one.iov_len;
      }
    }
    return true;
  });
}

template <class Request>
Counter* DeferredWorkQueue::Work::counter_of(const Request& request) const noexcept {
  if (work == nullptr) return ep->path.counter_of(request);
  return completion != nullptr ? &completion->counter : nullptr;
}

int DeferredWorkQueue::Work::start() {
  return with_request(operation, [&](auto& request) -> int {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(request)>, CounterChange>) {
      auto& value = request.counter->counter.value;
      request.sets ? value.store(request.value) : static_cast<void>(value.fetch_add(request.value));
      return 0;
    } else {
      const auto error = static_cast<int>(ep->path.start(request, call, counter_of(request)));
      if (error != 0 && error != -FI_EAGAIN) fail(-error, "starting a triggered operation");
      return error;
    }
  });
}

void DeferredWorkQueue::Work::fail(int error, const char* what) {
  with_request(operation, [&](auto& request) {
    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(request)>, CounterChange>) {
      const Entry entry = entry_of(request);
      ep->path.fail(entry.flags, entry.tag, call, counter_of(request),
                    {Code::system, fmt::format("{}: {}", what, provider_error_text(error)), error});
    }
  });
}

DeferredWorkQueue::~DeferredWorkQueue() = default;

int DeferredWorkQueue::add(Ep* ep, const Operation& operation, const Call& call,
                           const Deferral& deferral) {
  const auto* const change = std::get_if<CounterChange>(&operation);
  for (const Cntr* const counter :
       {deferral.trigger, deferral.completion, change != nullptr ? change->counter : nullptr}) {
    if (counter != nullptr && &counter->domain != &domain_) return -FI_EDOMAIN;
  }
  if (ep != nullptr && deferral.completion != nullptr) ep->count_deferred(*deferral.completion);
  WorkMap made;
  const auto one =
      made.emplace(std::piecewise_construct, std::tuple(deferral.threshold),
                   std::tuple(ep, std::cref(operation), std::cref(call), std::cref(deferral)));
  Work& work = one->second;
  if (deferral.work == nullptr && (call.flags & FI_INJECT) != 0 && !work.copy_data())
    return -FI_EINVAL;
  const std::size_t bytes = work.bytes();
  if (bytes_ + bytes > process_settings().value().memory_budget / 16) return -FI_ENOMEM;
  bytes_ += bytes;
  work.charge = Charge(&bytes_, Return{bytes});
  auto at = std::find_if(counters_.begin(), counters_.end(),
                         [&](const Waiters& w) { return w.counter == deferral.trigger; });
  if (at == counters_.end()) at = counters_.insert(at, Waiters{deferral.trigger, {}, {}});
  at->work.insert(made.extract(one));
  tell_endpoints();
  // It is accepted: what cannot be started for want of memory is tried again with the next
  // progress.
  static_cast<void>(contain([&] {
    static_cast<void>(start_due());
    return 0;
  }));
  return 0;
}

template <class IsIt>
bool DeferredWorkQueue::remove(IsIt&& is_it) {
  std::size_t removed = 0;
  for (Waiters& waiters : counters_) {
    for (WorkMap* const map : {&waiters.work, &waiters.due}) {
      removed +=
          std::erase_if(*map, [&](const auto& one) { return is_it(waiters.counter, one.second); });
    }
  }
  std::erase_if(counters_, [](const Waiters& w) { return w.empty(); });
  tell_endpoints();
  return removed != 0;
}

int DeferredWorkQueue::cancel(const fi_deferred_work& work) {
  return remove([&](const Cntr*, const Work& one) { return one.work == &work; }) ? 0 : -FI_ENOENT;
}

void DeferredWorkQueue::flush(const Cntr* only) {
  static_cast<void>(remove([&](const Cntr* counter, const Work& one) {
    return one.work != nullptr && (only == nullptr || counter == only);
  }));
}

bool DeferredWorkQueue::cancel(const Ep& ep, const void* context) {
  Work* found = nullptr;
  for (Waiters& waiters : counters_) {
    for (WorkMap* const map : {&waiters.due, &waiters.work}) {
      for (auto& [threshold, one] : *map) {
        if (one.work == nullptr && one.ep == &ep && one.call.context == context) found = &one;
      }
    }
  }
  if (found == nullptr) return false;
  found->fail(FI_ECANCELED, "a triggered operation");
  return remove([&](const Cntr*, const Work& one) { return &one == found; });
}

void DeferredWorkQueue::forget(const Ep& ep) {
  static_cast<void>(remove([&](const Cntr*, const Work& one) { return one.ep == &ep; }));
}

bool DeferredWorkQueue::progress(const DataPath* asker) {
  if (running_) return false;
  const Running running(running_);
  bool moved = false;
  for (Ep* const ep : domain_.endpoints) {
    if (!ep->path.is_closing()) moved |= ep->path.move_for(asker);
  }
  moved |= start_what_is_due();
  return moved;
}

bool DeferredWorkQueue::start_due() {
  if (running_) return false;
  const Running running(running_);
  return start_what_is_due();
}

// Those whose threshold is reached now start, whatever the counter is by then.
void DeferredWorkQueue::reach(Waiters& waiters) noexcept {
  const std::uint64_t value = waiters.counter->counter.value.load();
  const std::uint64_t with_errors = value + waiters.counter->counter.errors.load();
  for (auto at = waiters.work.begin(); at != waiters.work.end() && at->first <= with_errors;) {
    const auto next = std::next(at);
    // Failures are not what FI_TRIGGER waits for.
    if (at->second.work != nullptr || at->first <= value) {
      auto one = waiters.work.extract(at);
      one.key() = reached_++;
      waiters.due.insert(std::move(one));
    }
    at = next;
  }
}

// What starts may end at once, and move a counter that others wait for.
bool DeferredWorkQueue::start_what_is_due() {
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (Waiters& waiters : counters_) reach(waiters);
    for (Waiters& waiters : counters_) {
      while (!waiters.due.empty()) {
        const auto first = waiters.due.begin();
        if (const auto* const change = std::get_if<CounterChange>(&first->second.operation);
            change != nullptr && change->sets) {
          for (Waiters& others : counters_) {
            if (others.counter == change->counter) reach(others);
          }
        }
        if (first->second.start() == -FI_EAGAIN) break;
        waiters.due.erase(first);
        again = moved = true;
      }
    }
  }
  if (moved) {
    std::erase_if(counters_, [](const Waiters& w) { return w.empty(); });
    tell_endpoints();
  }
  return moved;
}

void DeferredWorkQueue::tell_endpoints() noexcept {
  const bool now = !counters_.empty();
  if (now == waiting_.load()) return;
  waiting_.store(now);
  for (Ep* const ep : domain_.endpoints) ep->path.watch(now ? this : nullptr);
}

}  // namespace turnout::provider
