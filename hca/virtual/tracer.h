// SPDX-License-Identifier: BSD-3-Clause
// Tracer: what happens, told to whoever draws a timeline of it.
//
// Without a function it costs a test. One thread.
#pragma once

#include <functional>
#include <utility>

#include "hca/virtual/srqs.h"

namespace turnout::hca {

class Tracer : EngineParts {
 public:
  explicit Tracer(const EngineParts& parts) : EngineParts(parts) {}

  // Null: no trace.
  void set(std::function<void(const Trace&)> trace) { trace_ = std::move(trace); }
  // peer: number of a queue pair.
  void note(Trace::Kind kind, const VirtualQp& qp, std::uint32_t peer, std::uint64_t bytes) {
    if (!trace_) [[likely]]
      return;
    const VirtualQp* other = qps.find(peer);
    tell(kind, qp, qp.process, other != nullptr ? other->process : qp.process, bytes);
  }
  // The same of an operation, at its sender.
  void note(Trace::Kind kind, const VirtualQp& qp, const Operation& operation,
            std::uint64_t bytes) {
    if (!trace_) [[likely]]
      return;
    const VirtualQp* target = qps.find(operation.target);
    const ProcessIndex peer = target != nullptr ? srqs.receiver_of(operation, *target) : qp.process;
    tell(kind, qp, qp.process, peer, bytes);
  }
  void note_arrival(const VirtualQp& target, const Operation& operation) {
    if (!trace_) [[likely]]
      return;
    const ProcessIndex process = srqs.receiver_of(operation, target);
    const VirtualQp* sender = qps.find(operation.source);
    tell(Trace::Kind::arrive, target, process, sender != nullptr ? sender->process : process,
         operation.wqe.length);
  }

 private:
  void tell(Trace::Kind kind, const VirtualQp& qp, ProcessIndex process, ProcessIndex peer,
            std::uint64_t bytes) {
    trace_({kind, kernel.now(), process, peer, qp.number, static_cast<std::uint32_t>(bytes)});
  }

  std::function<void(const Trace&)> trace_;
};

}  // namespace turnout::hca
