// SPDX-License-Identifier: BSD-3-Clause
// StuckJob: who waits for whom in a job, from the reports of its processes: waits with what the
// other side says of them, cycles, and who is waited for but waits for nothing.
//
// Pure functions of reports and of what is known of silent processes; one thread. Reports are
// untrusted: names in them become printable text in stuck_text.h. Points into the Observation,
// which outlives it. Ages are seconds, sizes bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/watch.h"
#include "core/report/report.h"

namespace turnout::cli {

// A process of this host that was found by itself, whether it reports or not.
struct LocalProcess {
  std::uint32_t pid = 0;
  int rank = -1, ranks = -1;
  std::string job;
  std::string doing;  // while it does not call the library, in words
  bool computes = false;
};

struct Observation {
  std::vector<Watched> reports;
  std::vector<LocalProcess> processes;
  bool live = true;  // false: saved reports, whose ages say nothing
  double least = 3;  // operations that have been pending for less are not looked at
};

struct StuckProcess {
  int rank = -1;
  std::uint32_t pid = 0;
  std::string host;
  std::vector<const Watched*> reports;  // of its endpoints; none: it has not reported
  double age = -1;                      // of the latest; below 0: there is none
  double quiet = 0;                     // since it sent or received a message
  std::string doing;                    // of one that does not call the library; empty: unknown
  bool answers = false;                 // it calls the library
  bool computes = false;                // it does something else meanwhile
  bool gone = false;                    // a rank that no process was found for
};

struct StuckWait {
  std::size_t process = 0;            // who waits
  std::optional<std::size_t> target;  // for whom; absent: any, or a process that nothing tells of
  const WaitReport* wait = nullptr;
  const EndpointReport* report = nullptr;
  double age = 0;
  std::size_t behind = 0;  // further messages to the same process that wait behind this one
  std::string detail;      // what the other side says of it; may be empty

  [[nodiscard]] bool any() const { return !wait->peer; }
};

struct StuckJob {
  std::string name;
  int ranks = -1;                                // of the whole job; -1: unknown
  std::vector<StuckProcess> processes;           // by rank, then host and pid
  std::vector<StuckWait> waits;                  // by process, the oldest first
  std::vector<std::vector<std::size_t>> cycles;  // of waits: each for the process of the next
  std::vector<std::size_t> knot;   // processes outside the cycles that only each other could serve
  std::vector<std::size_t> roots;  // waited for, or silent: those that most wait for first

  [[nodiscard]] bool hangs() const { return !waits.empty(); }
  [[nodiscard]] std::string process_text(std::size_t process) const;  // "rank 3"
  // Those that wait for it, a root, or for one that does; a receive of any source waits for all.
  [[nodiscard]] std::vector<std::size_t> waiting_for(std::size_t process) const;
};

// By name.
[[nodiscard]] std::vector<StuckJob> stuck_jobs(const Observation& observation);

}  // namespace turnout::cli
