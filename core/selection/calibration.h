// SPDX-License-Identifier: BSD-3-Clause
// Calibration: computes the costs of a device from the rounds of the micro-benchmarks of `turnout
// calibrate`. The benchmarks run elsewhere: sim/calibration/calibration.h in virtual time, cli/ on
// a local adapter.
//
// The result of a list is its median, with a standard error from the quartiles. A difference is
// computed per round if both were measured in the same round; otherwise the errors add up. Pure;
// any thread. Times are nanoseconds.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/selection/device_costs.h"

namespace turnout::selection {

using Rounds = std::vector<double>;

struct Estimate {
  double value = 0;  // median
  double error = 0;  // its standard error
};
// Of no rounds: zeros.
[[nodiscard]] Estimate estimate(Rounds rounds);

// Time of one message over so many queue pairs in use, for the knees of the context cache.
using RatePoint = std::pair<double, Rounds>;

struct Knee {
  double entries = 0;  // the most queue pairs without the loss
  double error = 0;    // half the way to the next number tried
  double beyond = 0;   // what a message costs in addition; 0: no knee was seen
  double beyond_error = 0;
};
// One step up or two where the points, in order of queue pairs, show them: the steps that leave
// least of the squares of log time, if each is above 3 standard errors and 3 %.
struct Knees {
  Knee first, second;
};
[[nodiscard]] Knees find_knees(const std::vector<RatePoint>& points);

struct Measurements {
  // The device has no DC: nothing of DC was measured, and `more_rings` and `credit` are RC-RDMA's.
  bool datagrams = false;
  // Half a round trip, one message under way.
  Rounds dc_sendrecv, ud_sendrecv, dc_rdma, rc_rdma;
  // The same over DC-RDMA with `extra_rings` more at one of the two ends, each of which delays a
  // round trip by so many polls. Of rings that are silent only an end that waits looks at them, and
  // a message that arrives at a random time finds it in the middle.
  Rounds more_rings;
  double extra_rings = 0, polls_of_each = 0.5;
  Rounds credit;                        // one credit message
  Rounds setup_dc_lost, setup_rc_lost;  // both processes' loss together
  Rounds setup_rc_time;                 // from the request to its use
  // One message of a sender that never waits.
  Rounds post_rc, post_dc, post_dc_switch, post_ud;
  Rounds busy_dc_sendrecv, busy_dc_rdma, busy_rc_rdma, busy_ud;  // one message of a busy receiver
  Rounds one_dci;                    // one message of a DCI that switches for each
  Rounds same_target, other_target;  // half a round trip with a DCI that stays, that switches
  std::vector<RatePoint> contexts;
};

// What was not measured stays built in and says so.
[[nodiscard]] CostsFile costs_of(const Measurements& measured, const std::string& device,
                                 const std::string& note);

}  // namespace turnout::selection
