// SPDX-License-Identifier: BSD-3-Clause
// JobTraffic: the processes of a job and the pairs of them that exchanged messages, put together
// from the reports of both ends.
//
// Points into the reports, which outlive it. Pure function of them, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/report/report.h"

namespace turnout {

// "rank 3", or "pid 4711" where no launcher told the rank.
[[nodiscard]] std::string process_name(const EndpointReport& report);

struct JobTraffic {
  struct Process {
    std::string name;
    std::string host;
    std::vector<const EndpointReport*> reports;  // of its endpoints; none: only others tell of it
  };
  struct Pair {                                // of endpoints, one direction
    std::size_t from = 0, to = 0;              // processes
    const EndpointReport* sender = nullptr;    // null: it left no report
    const EndpointReport* receiver = nullptr;  // null: it left no report
    const PeerReport* at_sender = nullptr;
    const PeerReport* at_receiver = nullptr;
    double messages = 0, bytes = 0;

    // As the receiver has it, who decides; as the sender does where the receiver tells nothing.
    [[nodiscard]] bool reported_by_receiver() const {
      return at_receiver != nullptr && !at_receiver->receive.spans.empty();
    }
    [[nodiscard]] const DirectionReport& direction() const {
      return reported_by_receiver() ? at_receiver->receive : at_sender->send;
    }
    // The clock of direction()'s times.
    [[nodiscard]] const EndpointReport& teller() const {
      return reported_by_receiver() ? *receiver : *sender;
    }
    [[nodiscard]] ChannelKind last_channel() const { return direction().spans.back().channel; }
  };
  std::vector<Process> processes;  // by rank, then host and pid; those without a report last
  std::vector<Pair> pairs;         // with at least one span; by sender, then receiver
};

// Endpoints that carried nothing are left out where their process has others that did.
[[nodiscard]] JobTraffic job_traffic(std::span<const EndpointReport> reports);

}  // namespace turnout
