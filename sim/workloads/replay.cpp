// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace turnout::sim {
namespace {

// Requests under way by their number in the trace; those never waited for end in their order.
class Pending {
 public:
  void add(std::uint32_t number, Request request) { requests_[number] = {order_++, request}; }
  // Invalid when the number belongs to a message of the rank to itself.
  [[nodiscard]] Request take(std::uint32_t number) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) return {};
    const Request request = found->second.second;
    requests_.erase(found);
    return request;
  }
  [[nodiscard]] std::vector<Request> rest() const {
    std::vector<std::pair<std::uint64_t, Request>> all;
    for (const auto& [number, entry] : requests_) all.push_back(entry);
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Request> requests;
    for (const auto& [order, request] : all) requests.push_back(request);
    return requests;
  }

 private:
  std::unordered_map<std::uint32_t, std::pair<std::uint64_t, Request>> requests_;
  std::uint64_t order_ = 0;
};

using Kind = TraceEvent::Kind;

// A send, receive, put or get.
Rank::StartAwaiter begin(Rank rank, const TraceEvent& event) {
  if (event.kind == Kind::put) return rank.iput(event.peer, event.amount);
  if (event.kind == Kind::get) return rank.iget(event.peer, event.amount);
  if (event.kind == Kind::send) return rank.isend(event.peer, event.amount, event.tag);
  return rank.irecv(event.peer, event.amount, event.tag);
}

Task replay(Rank rank, std::shared_ptr<const Trace> trace, SharedPhases phases,
            std::uint64_t messages) {
  if (rank.id() == 0) phases->begin("replay", rank.now());
  Pending pending;
  for (const TraceEvent& event : trace->programs[rank.id()]) {
    switch (event.kind) {
      case Kind::send:
      case Kind::receive:
      case Kind::put:
      case Kind::get:
        if (event.peer == rank.id()) break;
        pending.add(event.request, co_await begin(rank, event));
        break;
      case Kind::wait:
        if (const Request request = pending.take(event.request); request.valid()) {
          co_await rank.wait(request);
        }
        break;
      case Kind::compute:
        co_await rank.compute(static_cast<Picoseconds>(event.amount) * hca::kNanosecond);
        break;
    }
  }
  const std::vector<Request> rest = pending.rest();
  co_await rank.wait_all(rest);
  if (rank.id() == 0) phases->end(rank.now(), messages);
}

}  // namespace

Result<std::shared_ptr<const Trace>> prepare_replay(Trace trace, std::uint32_t ranks) {
  if (Status s = check_trace(trace); !s.ok()) return s;
  if (ranks == 0 || ranks % trace.ranks() != 0) {
    return Status{Code::invalid, fmt::format("the trace has {} ranks; {} is not a multiple of that",
                                             trace.ranks(), ranks)};
  }
  Result<Trace> repeated = repeat_trace(trace, ranks / trace.ranks());
  if (!repeated) return repeated.status();
  compact_tags(&repeated.value());
  return std::make_shared<const Trace>(std::move(repeated).value());
}

Instance make_replay(std::shared_ptr<const Trace> trace) {
  const auto phases = std::make_shared<Phases>();
  std::uint64_t messages = 0;
  for (const auto& [pair, count] : message_counts(*trace)) {
    if (pair.first != pair.second) messages += count;
  }
  return {[trace, phases, messages](Rank rank) { return replay(rank, trace, phases, messages); },
          phases};
}

}  // namespace turnout::sim
