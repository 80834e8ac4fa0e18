// SPDX-License-Identifier: BSD-3-Clause
// Tracer: what happens, told to whoever draws a timeline of it.
//
// Without a function it costs a test. One thread.
#pragma once

#include <functional>
#include <utility>

#include "hca/virtual/kernel.h"
#include "hca/virtual/srqs.h"

namespace turnout::hca {

class Tracer {
 public:
  Tracer(const Kernel& kernel, const NumberTable<VirtualQp*>& qps, const SharedReceiveQueues& srqs)
      : kernel_(kernel), qps_(qps), srqs_(srqs) {}

  // Null: no trace.
  void set(std::function<void(const Trace&)> trace) { trace_ = std::move(trace); }
  // peer: number of a queue pair.
  void note(Trace::Kind kind, const VirtualQp& qp, std::uint32_t peer, std::uint64_t bytes);
  // The same of an operation, at its sender.
  void note(Trace::Kind kind, const VirtualQp& qp, const Operation& operation, std::uint64_t bytes);
  void note_arrival(const VirtualQp& target, const Operation& operation);

 private:
  const Kernel& kernel_;
  const NumberTable<VirtualQp*>& qps_;
  const SharedReceiveQueues& srqs_;
  std::function<void(const Trace&)> trace_;
};

}  // namespace turnout::hca
