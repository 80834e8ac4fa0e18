// SPDX-License-Identifier: BSD-3-Clause
// The memory of AQPS Table 4 and figure 8, as the paper states it: claims A4 to A8.
//
// KB = 1024 B, MB = 1000 KB, GB = 10^6 KB, the only rule under which the paper's numbers agree
// with each other (claim A7). Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turnout::sim::paper {

inline constexpr std::uint64_t kKB = 1024;
// Table 4, KB.
inline constexpr std::uint64_t kCreditQps = 296, kEstablishmentQps = 512;
inline constexpr std::uint64_t kDataQps28 = 3464, kDataQps4 = 1340, kRcQp = 1424;
inline constexpr std::uint64_t kRing = 64;                            // of 16 entries
inline constexpr std::uint64_t kDataRead = 4096, kControlRead = 256;  // bytes
inline constexpr std::uint64_t kRcPool = 128;                         // pi

// KB of queue pairs and statistics of one process.
[[nodiscard]] double dc_rdma_od();
[[nodiscard]] double rc_rdma_od(std::uint64_t rc_qps);
[[nodiscard]] double aqps(std::uint64_t processes, std::uint64_t rc_qps);
// Entries of the table: 2048 / max(1, 2 (log2 n - 10)), whole.
[[nodiscard]] std::uint64_t sigma(std::uint64_t processes);
// 8 n sigma(n), KB.
[[nodiscard]] double statistics(std::uint64_t processes);

// "4.27 MB", by the rule above, three figures.
[[nodiscard]] std::string print(double kilobytes);

struct Check {
  std::string claim, what, paper, ours;
  bool agrees = false;
};
// A4 to A8, from Table 4.
[[nodiscard]] std::vector<Check> checks();

}  // namespace turnout::sim::paper
