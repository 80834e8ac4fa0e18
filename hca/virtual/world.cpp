// SPDX-License-Identifier: BSD-3-Clause
// Processes and the kernel: the world's time, its events, its random numbers.
#include <cstring>

#include "hca/virtual/engine.h"

namespace turnout::hca {
namespace {
VirtualEngine* world = nullptr;
}

VirtualEngine* VirtualEngine::present() noexcept {
  return world;
}

VirtualEngine::VirtualEngine(const WorldOptions& options)
    : profile_(options.profile), random_(options.seed), nodes_(options.nodes) {
  for (Node& node : nodes_) {
    node.contexts.limit(profile_.cache_first_entries, profile_.cache_second_entries);
    node.fetches.resize(
        static_cast<std::size_t>(profile_.cache_fetches > 0 ? profile_.cache_fetches : 1));
  }
  regions_.resize(1);  // key 0 is none
  qps_.resize(kFirstQp);
  srqs_.resize(1);  // number 0 is none
  world = this;
}

VirtualEngine::~VirtualEngine() {
  world = nullptr;
}

ProcessIndex VirtualEngine::add_process(std::uint32_t node, Callback wake, void* context) {
  Process process;
  process.node = node;
  process.wake = wake;
  process.wake_context = context;
  processes_.push_back(process);
  return static_cast<ProcessIndex>(processes_.size() - 1);
}

void VirtualEngine::enter(ProcessIndex process) {
  current_ = process;
  Process& p = processes_[process];
  if (p.busy < now_) p.busy = now_;
}

bool VirtualEngine::stand_still() {
  if (profile_.fault_slow_most <= 0 || !chance(profile_.fault_slow)) return false;
  const auto most = static_cast<std::uint64_t>(profile_.fault_slow_most);
  processes_[current_].busy += 1 + static_cast<Picoseconds>(random() % most);
  return true;
}

void VirtualEngine::kill(ProcessIndex process) {
  processes_[process].alive = false;
  for (VirtualQp* qp : qps_) {
    if (qp == nullptr || qp->process != process || qp->kind == QpKind::xrc_tgt) continue;
    drop_operations(*qp);
    qp->phase = QpPhase::err;
  }
  close_xrc(process);
}

void VirtualEngine::at(Picoseconds time, Callback callback, void* context, std::uint64_t argument) {
  Event event;
  event.time = time < now_ ? now_ : time;
  event.kind = kCallback;
  event.callback = callback;
  event.object = context;
  event.argument = argument;
  events_.push(event);
}

void VirtualEngine::schedule(Picoseconds time, Kind kind, void* object, std::uint64_t argument) {
  Event event;
  event.time = time < now_ ? now_ : time;
  event.kind = kind;
  event.object = object;
  event.argument = argument;
  events_.push(event);
}

bool VirtualEngine::run_one() {
  if (events_.empty()) return false;
  const Event event = events_.pop();
  now_ = event.time;
  ++statistics_.events;
  mix(static_cast<std::uint64_t>(event.time), event.kind);
  switch (static_cast<Kind>(event.kind)) {
    case kCallback:
      event.callback(event.object, event.argument);
      return true;
    case kRestart:
      if (VirtualQp* qp = find_qp(static_cast<std::uint32_t>(event.argument)); qp != nullptr) {
        qp->waits = false;
        start(*qp);
      }
      return true;
    case kNotify:
      wake(static_cast<ProcessIndex>(event.argument));
      return true;
    default:
      break;
  }
  auto& operation = *static_cast<Operation*>(event.object);
  mix(std::uint64_t{operation.source} << 32 | operation.target, operation.wqe.length);
  --operation.events;
  if (operation.qp == nullptr && !operation.datagram) {  // its queue pair has let go of it
    if (operation.events == 0) {
      return_receive(operation);
      free_operation(&operation);
    }
    return true;
  }
  switch (static_cast<Kind>(event.kind)) {
    case kReady:
      start(*operation.qp);
      break;
    case kResend:
      send_again(operation);
      break;
    case kArrive:
      arrive(operation);
      break;
    case kLand:
      land(operation);
      break;
    case kReturn:
      give_back(operation);
      break;
    case kAnswer:
      answered(operation);
      break;
    case kComplete:
      complete(operation);
      break;
    default:
      break;
  }
  return true;
}

void VirtualEngine::mix(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t hash = statistics_.hash ^ a;
  hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15ULL + b;
  statistics_.hash = hash ^ (hash >> 29);
}

void VirtualEngine::wake(ProcessIndex process) {
  const Process& p = processes_[process];
  if (p.alive && p.wake != nullptr) p.wake(p.wake_context, process);
}

bool VirtualEngine::chance(std::int64_t ppm) noexcept {
  if (ppm <= 0) return false;
  const bool happens = random() % 1'000'000 < static_cast<std::uint64_t>(ppm);
  if (happens) ++statistics_.faults;
  return happens;
}

void VirtualEngine::note(Trace::Kind kind, const VirtualQp& qp, std::uint32_t peer,
                         std::uint64_t bytes) {
  if (!trace_) [[likely]]
    return;
  const VirtualQp* other = peer < qps_.size() ? qps_[peer] : nullptr;
  trace_(Trace{kind, now_, qp.process, other != nullptr ? other->process : qp.process, qp.number,
               static_cast<std::uint32_t>(bytes)});
}

void VirtualEngine::note(Trace::Kind kind, const VirtualQp& qp, const Operation& operation,
                         std::uint64_t bytes) {
  if (!trace_) [[likely]]
    return;
  const VirtualQp* target = find_qp(operation.target);
  trace_(Trace{kind, now_, qp.process,
               target != nullptr ? receiver_of(operation, *target) : qp.process, qp.number,
               static_cast<std::uint32_t>(bytes)});
}

void VirtualEngine::note_arrival(const VirtualQp& target, const Operation& operation) {
  if (!trace_) [[likely]]
    return;
  const ProcessIndex process = receiver_of(operation, target);
  const VirtualQp* sender = find_qp(operation.source);
  trace_(Trace{Trace::Kind::arrive, now_, process, sender != nullptr ? sender->process : process,
               target.number, operation.wqe.length});
}

Operation* VirtualEngine::new_operation() {
  constexpr std::size_t kBlock = 256;
  if (free_operations_ == nullptr) {
    operation_blocks_.push_back(std::make_unique<Operation[]>(kBlock));
    for (std::size_t i = 0; i < kBlock; ++i) {
      operation_blocks_.back()[i].next_free = free_operations_;
      free_operations_ = &operation_blocks_.back()[i];
    }
  }
  Operation* const operation = free_operations_;
  free_operations_ = operation->next_free;
  operation->qp = nullptr;
  operation->place = Operation::Place::queued;
  operation->status = IBV_WC_SUCCESS;
  operation->answer_at = 0;
  operation->events = operation->attempts = 0;
  operation->signalled = operation->datagram = operation->lost = false;
  operation->local = operation->received = false;
  operation->spread = 0;
  operation->at_responder = operation->xrc = operation->took_receive = false;
  operation->tail_first = operation->tail_placed = false;
  operation->copy.clear();
  return operation;
}

void VirtualEngine::free_operation(Operation* operation) noexcept {
  operation->qp = nullptr;
  operation->next_free = free_operations_;
  free_operations_ = operation;
}

}  // namespace turnout::hca
