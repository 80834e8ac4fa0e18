// SPDX-License-Identifier: BSD-3-Clause
// LastRun: what the process of the same rank counted in the last run of the job, as far as it may
// be worth a channel: read from reports (core/report/last_run_reader.h), judged by
// selection::Prediction. Plain values, no owner, any thread. Times are nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

namespace turnout {

struct LastRun {
  struct Source {
    std::uint32_t rank = 0;
    std::uint64_t messages = 0;    // received from it, over all of the run
    float busy = 0, switched = 0;  // its latest feedback: shares, 0 to 1
    // Since the first message from anybody: of the first and the last intervals in which it sent,
    // the begin and the end; the length of all such intervals; and what came in them from anybody.
    std::int64_t first = 0, last = 0, active = 0;
    std::uint64_t beside = 0;
  };
  std::int64_t start = 0;       // age of the endpoint when its first message came, about
  std::vector<Source> sources;  // in the order in which they began to send, then busiest first
};

}  // namespace turnout
