// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/written_trace.h"

#include <algorithm>
#include <utility>

namespace turnout::sim {

WrittenTrace::WrittenTrace(std::string name, std::uint32_t ranks) : open_(ranks) {
  trace_.name = std::move(name);
  trace_.source = "turnout sim --write-trace";
  trace_.programs.resize(ranks);
}

void WrittenTrace::add(std::uint32_t rank, const ProgramStep& step) {
  using Kind = ProgramStep::Kind;
  auto& list = trace_.programs[rank];
  TraceEvent event;
  event.request = step.request;
  switch (step.kind) {
    case Kind::add:
      atomics_ = true;
      return;
    case Kind::compute:
      event.request = 0;
      event.amount = step.amount / static_cast<std::uint64_t>(hca::kNanosecond);
      if (event.amount > 0) list.push_back(event);
      return;
    case Kind::wait: {
      if (const auto found = open_[rank].find(step.request); found != open_[rank].end()) {
        TraceEvent& receive = list[found->second];
        receive.peer = step.peer;
        receive.tag = step.tag;
        open_[rank].erase(found);
      }
      event.kind = TraceEvent::Kind::wait;
      list.push_back(event);
      return;
    }
    case Kind::send:
      event.kind = TraceEvent::Kind::send;
      break;
    case Kind::receive:
      event.kind = TraceEvent::Kind::receive;
      event.any_source = step.peer == kAnySource;
      event.any_tag = step.tag == kAnyTag;
      if (event.any_source || event.any_tag) open_[rank][step.request] = list.size();
      break;
    case Kind::put:
      event.kind = TraceEvent::Kind::put;
      break;
    case Kind::get:
      event.kind = TraceEvent::Kind::get;
      break;
  }
  event.peer = step.peer;
  event.amount = step.amount;
  if (event.is_message()) event.tag = step.tag;
  list.push_back(event);
}

Result<Trace> WrittenTrace::take() {
  if (atomics_) {
    return Status{Code::unsupported, "the program uses atomics, which a trace has no events for"};
  }
  if (std::any_of(open_.begin(), open_.end(), [](const auto& one) { return !one.empty(); })) {
    return Status{Code::unsupported,
                  "the program leaves a receive from any source that it never waits for"};
  }
  if (Status s = check_trace(trace_); !s.ok()) return s;
  return std::move(trace_);
}

}  // namespace turnout::sim
