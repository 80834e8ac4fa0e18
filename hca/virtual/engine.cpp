// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/engine.h"

#include <cassert>

namespace turnout::hca {

namespace {

VirtualEngine* world = nullptr;

// The object of such an event is an operation.
bool names_operation(EventKind kind) noexcept {
  return kind != EventKind::callback && kind != EventKind::restart && kind != EventKind::notify;
}

}  // namespace

VirtualEngine* VirtualEngine::present() noexcept {
  return world;
}

VirtualEngine::VirtualEngine(const WorldOptions& options)
    : profile_(options.profile),
      kernel_(options.seed),
      processes_(kernel_, profile_, options.nodes) {
  assert(world == nullptr);
  world = this;
}

VirtualEngine::~VirtualEngine() {
  world = nullptr;
}

void VirtualEngine::open(Context& context) {
  context.objects = &objects_;
  context.data_path = &data_path_;
  context.virtual_clock = true;
  context.process = processes_.current();
  context.node = processes_[context.process].node;
}

void VirtualEngine::kill(ProcessIndex process) {
  processes_[process].alive = false;
  for (VirtualQp* qp : qps_) {
    if (qp == nullptr || qp->process != process || qp->kind == QpKind::xrc_tgt) continue;
    work_queues_.drop(*qp);
    qp->phase = QpPhase::err;
  }
  xrc_.close_all(process);
}

// Thousands of ranks' state is larger than a processor's cache, and an event is short: the queue
// pairs of the next one are fetched while this one runs. The queue has fetched its operation.
void VirtualEngine::fetch_ahead() const noexcept {
  kernel_.look_ahead([this](const Event& next) {
    if (!names_operation(next.kind)) return;
    const auto& operation = *static_cast<const Operation*>(next.object);
    const auto fetch = [](const VirtualQp* qp) {
      if (qp == nullptr) return;
      __builtin_prefetch(&qp->kind);
      __builtin_prefetch(&qp->attr);
      __builtin_prefetch(&qp->phase);
      __builtin_prefetch(&qp->operations);
      __builtin_prefetch(&qp->connected);
    };
    if (next.kind == EventKind::arrive || next.kind == EventKind::land) {
      fetch(qps_.find(operation.target));
    }
    fetch(operation.qp);
  });
}

bool VirtualEngine::run_one() {
  Event event;
  if (!kernel_.next(event)) return false;
  fetch_ahead();
  switch (event.kind) {
    case EventKind::callback:
      event.callback(event.object, event.argument);
      break;
    case EventKind::restart:
      if (VirtualQp* qp = qps_.find(static_cast<std::uint32_t>(event.argument)); qp != nullptr) {
        qp->waits = false;
        requester_.start(*qp);
      }
      break;
    case EventKind::notify:
      processes_.wake(static_cast<ProcessIndex>(event.argument));
      break;
    default:
      run(event.kind, *static_cast<Operation*>(event.object));
      break;
  }
  return true;
}

void VirtualEngine::run(EventKind kind, Operation& operation) {
  kernel_.mix(std::uint64_t{operation.source} << 32 | operation.target, operation.wqe.length);
  assert(operation.events > 0);
  --operation.events;
  if (operation.qp == nullptr && !operation.datagram) {  // its queue pair has let go of it
    if (operation.events == 0) {
      receives_.put_back(operation);
      operations_.free(&operation);
    }
    return;
  }
  switch (kind) {
    case EventKind::ready:
      requester_.start(*operation.qp);
      break;
    case EventKind::resend:
      requester_.send_again(operation);
      break;
    case EventKind::arrive:
      responder_.arrive(operation);
      break;
    case EventKind::land:
      responder_.land(operation);
      break;
    case EventKind::send_back:
      responder_.give_back(operation);
      break;
    case EventKind::answer:
      work_queues_.answered(operation);
      break;
    case EventKind::complete:
      work_queues_.complete(operation);
      break;
    default:
      break;
  }
}

}  // namespace turnout::hca
