// SPDX-License-Identifier: BSD-3-Clause
// SharedReceiveQueue: the receive buffers of the shared receive queues: posted again when they are
// free, more of them when the low watermark is reached, fewer when most stay unused.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/messaging/credits.h"

namespace turnout {

// The shared data receive queue, as far as this process knows: completions not polled yet are
// still posted.
struct SharedReceives {
  std::uint32_t posted = 0;
  std::uint32_t watermark = 0;  // an event when fewer are left; 0: never
  std::uint32_t least = 0;      // minimum posted since the last check for shrinking
  bool armed = false;           // the adapter will raise an event
  bool may_grow = false;        // as far as is known
  Nanoseconds look_at = 0, arm_at = 0, shrink_at = 0;
  Nanoseconds idle_backoff = 0;  // interval between two checks for shrinking
  std::uint64_t limit_events = 0, growths = 0;
};

class SharedReceiveQueue : Component {
 public:
  SharedReceiveQueue(EndpointState& state, Credits& credits)
      : Component(state), credits_(credits) {}

  void post_receives();
  void look_after_receives(Nanoseconds now);
  // Chunks until the queue has `wanted` receives, as far as the budget allows. They are released
  // like those that are added later.
  void add_at_start(std::uint64_t wanted);
  void begin_receives() noexcept;
  void begin_flow_control() noexcept;
  [[nodiscard]] SharedReceives& shared() noexcept { return shared_; }

 private:
  void update_flow_control() noexcept {
    flow_.set_queue({resources_.receive_pool.count(), shared_.may_grow, shared_.armed});
  }
  [[nodiscard]] Status add_receives(std::uint64_t most);
  void arm_limit() noexcept;
  void more_receives(Nanoseconds now);
  void fewer_receives(Nanoseconds now);

  Credits& credits_;

  SharedReceives shared_;
};

}  // namespace turnout
