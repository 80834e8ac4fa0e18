// SPDX-License-Identifier: BSD-3-Clause
// What /proc tells of processes of this user on this host that have the provider loaded: their rank
// and job, and what one does that does not call the library.
//
// Plain values and functions; one thread. What /proc does not show is left empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turnout::cli {

struct HostProcess {
  std::uint32_t pid = 0;
  int rank = -1, ranks = -1;
  std::string job;
  char state = '?';                  // of proc(5): R, S, D, T, t, Z
  std::uint64_t processor_time = 0;  // clock ticks
  std::string call;                  // the kernel function or system call that it sleeps in
};

[[nodiscard]] std::vector<HostProcess> processes_with_provider();
// Reads the state again. False: it has ended.
[[nodiscard]] bool look_again(HostProcess* process);
// Since `earlier`, which is the same process, `seconds` before.
[[nodiscard]] bool computes(const HostProcess& process, const HostProcess& earlier, double seconds);
// "it computes (98 % of a core)", "it is stopped by a signal; kill -CONT 4711 continues it".
[[nodiscard]] std::string doing_text(const HostProcess& process, const HostProcess& earlier,
                                     double seconds);

}  // namespace turnout::cli
