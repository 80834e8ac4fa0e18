// SPDX-License-Identifier: BSD-3-Clause
// DecisionOutcomes: what became of each decision on a channel, and the share of set-ups that repaid
// their cost, the latest weighted most.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Times are nanoseconds.
#pragma once

#include "core/connection/eviction.h"
#include "core/protocol/operation.h"
#include "core/state/endpoint_context.h"
#include "core/state/endpoint_events.h"
#include "core/state/peer.h"
#include "core/transport/wire.h"

namespace turnout {

class DecisionOutcomes {
 public:
  DecisionOutcomes(EndpointContext& context, ConnectionEviction& eviction, EndpointEvents& events)
      : context_(context), eviction_(eviction), events_(events) {}

  void decided(Peer& peer, const std::string& outcome);
  void done(Peer& peer);  // the decision was carried out
  void count_repaid(Peer& peer);
  void note_set_up(bool repaid) noexcept;
  [[nodiscard]] double repaid() const noexcept { return repaid_; }

 private:
  EndpointContext& context_;
  ConnectionEviction& eviction_;
  EndpointEvents& events_;

  double repaid_ = 1;  // share of set-ups that repaid their cost, weighted to the latest
};

}  // namespace turnout
