// SPDX-License-Identifier: BSD-3-Clause
// RingPool: memory of rings that no peer has. Under the policy `turnout` a ring is registered in
// the background, which takes a program's processor 16 us otherwise (decision 010), and is kept for
// the next peer when its channel was switched back.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Sizes are bytes.
#pragma once

#include <deque>

#include "core/channels/rc_pool.h"

namespace turnout {

class RingPool : Component {
 public:
  RingPool(EndpointState& state, RcPool& jobs) : Component(state), jobs_(jobs) {}

  // The peer gets a ring: now, or when end_job() says so. Errors: over_budget; the adapter's.
  [[nodiscard]] Status want_ring(Peer& peer);
  // The peer that has its ring now, or with the job's status gets none; null: nobody waits.
  [[nodiscard]] Peer* end_job(RingJob& job);
  // Its peer writes to it no more.
  void put_away(std::unique_ptr<RingReceiver> ring);

 private:
  [[nodiscard]] Reservation reserve(RingShape shape);
  void make_ring(Reservation&& reserved, RingShape shape);
  void fill();

  RcPool& jobs_;
  std::size_t making_ = 0;
  std::deque<PeerId> waiting_;  // for the rings that are made, in their order
};

}  // namespace turnout
