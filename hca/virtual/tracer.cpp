// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/tracer.h"

namespace turnout::hca {

void Tracer::note(Trace::Kind kind, const VirtualQp& qp, std::uint32_t peer, std::uint64_t bytes) {
  if (!trace_) [[likely]]
    return;
  const VirtualQp* other = qps_.find(peer);
  trace_(Trace{kind, kernel_.now(), qp.process, other != nullptr ? other->process : qp.process,
               qp.number, static_cast<std::uint32_t>(bytes)});
}

void Tracer::note(Trace::Kind kind, const VirtualQp& qp, const Operation& operation,
                  std::uint64_t bytes) {
  if (!trace_) [[likely]]
    return;
  const VirtualQp* target = qps_.find(operation.target);
  trace_(Trace{kind, kernel_.now(), qp.process,
               target != nullptr ? srqs_.receiver_of(operation, *target) : qp.process, qp.number,
               static_cast<std::uint32_t>(bytes)});
}

void Tracer::note_arrival(const VirtualQp& target, const Operation& operation) {
  if (!trace_) [[likely]]
    return;
  const ProcessIndex process = srqs_.receiver_of(operation, target);
  const VirtualQp* sender = qps_.find(operation.source);
  trace_(Trace{Trace::Kind::arrive, kernel_.now(), process,
               sender != nullptr ? sender->process : process, target.number, operation.wqe.length});
}

}  // namespace turnout::hca
