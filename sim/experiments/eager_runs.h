// SPDX-License-Identifier: BSD-3-Clause
// One run of the experiment eager: a program under one design, and what its buffers took; the
// claims about them.
//
// Sizes are bytes, times picoseconds. Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/experiments/page.h"

namespace turnout::sim::eager {

// The programs do 10 to 400 iterations; queue pairs take milliseconds, and the paper's own
// threshold is not told. So few messages of a peer make it frequent that one of is's ten iterations
// does.
inline constexpr std::string_view kRounds = "10", kRingThreshold = "8";
inline constexpr std::uint32_t kOfRatios = 64;  // processes, as in the paper's table of ratios
inline constexpr double kMillion = 1e6;

// What the paper tells of MVAPICH 0.9.7's parameters, and what follows: 500 KB of an RDMA
// connection, two or three receives of a connection and 64 later, a shared queue that is full at
// the start and takes less than 5 MB. Our buffers are powers of two.
inline constexpr std::string_view kPaperEntry = "8KiB", kPaperEntries = "64",
                                  kPaperReceives = "512";
// So long that queue pairs, which MVAPICH makes at the start, are there for most of it.
inline constexpr std::string_view kPaperRounds = "30", kPaperCompute = "10ms";
// What a later version's source has [grondo/mvapich-cce 07401b8: mpid/ch_gen2/viaparam.c; when
// receives are added: viacheck.c, viadev_handle_flow_control_sr]: 12 receives for each of the other
// processes from the start, 64 + 8 from the first message over send/receive on, and 64 more for
// R3; a ring of 32 after 10 messages; a shared queue of 256 to 512; all buffers of 12 KB.
inline constexpr std::uint32_t kSourceFirst = 12, kSourceR3 = 64;
inline constexpr double kSourceBytes = 12 * 1024;
// What the paper says of ardma-sr at 64 and 81 processes, in multiples of srq.
inline constexpr std::array<std::pair<std::string_view, double>, 7> kPaperRatios = {
    {{"nas-is", 10},
     {"nas-ft", 10},
     {"nas-cg", 2},
     {"nas-mg", 2},
     {"nas-lu", 2},
     {"nas-sp", 10},
     {"nas-bt", 10}}};

// E5: bursts of as many messages in all, whatever the number of processes. Credits that know that
// the queue is shared, which the paper's design has not, would slow their senders down.
inline constexpr std::array<std::uint32_t, 3> kBurstSizes = {16, 32, 64};
struct Burst {
  std::string_view program;
  std::uint32_t messages;  // of all processes
  std::pair<std::string_view, std::string_view> option;
};
inline constexpr std::array<Burst, 2> kBursts = {
    {{"random", 48'000, {"neighbours", "15"}}, {"flood", 1'600, {"looks", "100"}}}};

struct Run {
  double time = 0;  // of the timed phases, picoseconds
  double messages = 0;
  Receiving receiving;
  // Of a rank.
  [[nodiscard]] double mean(std::uint64_t of_all) const {
    return static_cast<double>(of_all) / static_cast<double>(receiving.ranks);
  }
  [[nodiscard]] double mean_buffers() const { return mean(receiving.sum); }
  [[nodiscard]] double mean_rings() const { return mean(receiving.rings); }
};

// What a run has beside its program, design and size.
struct Setup {
  NamedValues options, settings;
};

// Ten rounds of so many take hours; no connection or buffer is new in the third.
inline constexpr std::uint32_t kMany = 512;
inline constexpr std::string_view kRoundsOfMany = "2";

[[nodiscard]] Setup usual_setup(std::uint32_t ranks);
[[nodiscard]] Setup paper_setup();   // with what the paper tells
[[nodiscard]] Setup source_setup();  // with what the source has
[[nodiscard]] Setup burst_setup(const Burst& burst, std::uint32_t ranks);

[[nodiscard]] StudyOptions study_of(const ExperimentOptions& options, std::string_view program,
                                    const std::string& design, std::uint32_t ranks,
                                    const Setup& setup);
[[nodiscard]] Run run_of(const PolicyResult& result);

using Key = std::pair<std::string, std::uint32_t>;       // program, ranks
using Runs = std::map<Key, std::map<std::string, Run>>;  // by design

using Ratios = std::map<std::string, double>;  // ardma-sr against srq, by program
// What the claims need beside the runs.
struct Measured {
  Ratios paper, source;
  std::vector<double> flood;  // low-watermark events of a process, by kBurstSizes
  double slower = 0;          // E6, picoseconds
};

// The claims E1 to E6 [SC'06] beside it. `runs` has the designs srq and ardma-srq at least; bytes
// of a ring.
[[nodiscard]] std::vector<Claim> claims_of(const Runs& runs, const Measured& measured,
                                           double ring_bytes);

}  // namespace turnout::sim::eager
