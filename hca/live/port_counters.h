// SPDX-License-Identifier: BSD-3-Clause
// The counters of the adapter's port, as a kernel shows them in sysfs below ports/1: those of the
// port (counters/, IBTA 16.1.3.5) and those that Linux's rxe has (hw_counters/).
//
// Nothing is counted here: each queue pair counts what it sends in its record (QpCounters), and a
// reader adds the records up. What is sent arrives at the same port. Counts begin with the fabric
// and end with it. Values are those of one moment for each record, not for all. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace turnout::hca {

// The sum over all records of a fabric.
struct PortTraffic {
  std::uint64_t packets = 0, bytes = 0, sends = 0, multicasts = 0;
  std::uint64_t rnr_naks = 0, retries = 0, retries_exceeded = 0, rnr_retries_exceeded = 0;
  std::uint64_t links_downed = 0;
};

struct PortCounter {
  const char* name;  // of its file below ports/1
  std::uint64_t (*value)(const PortTraffic&);
};
[[nodiscard]] std::span<const PortCounter> port_counters() noexcept;

// Nothing was counted where no process has the fabric open, or its memory is no fabric's.
[[nodiscard]] PortTraffic read_traffic(const std::string& fabric);

}  // namespace turnout::hca
