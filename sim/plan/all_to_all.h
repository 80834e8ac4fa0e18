// SPDX-License-Identifier: BSD-3-Clause
// All-to-all exchanges: the same amount between each rank and each other, by the algorithms that
// MPI libraries have for it.
//
// join_all_to_all() finds them in the programs of the ranks and makes each one operation, so that
// sizes at which the library took different algorithms are still one program. Pure; any thread; no
// errors.
//
// Source of the algorithms: MPICH, src/mpi/coll/alltoall/alltoall_intra_{scattered,pairwise,
// brucks}.c; of the choice: maint/tuning/coll/mpir/generic.json there ("collective=alltoall") and
// the defaults of its variables MPIR_CVAR_ALLTOALL_..., in MPICH 3.3 in alltoall/alltoall.c.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace turnout::sim::plan {

struct RankStarts;

enum class Exchange : std::uint8_t {
  none,
  scattered,  // receives from all, then sends to all, so many at a time
  pairwise,   // with one after the other
  bruck,      // log2 n messages, each with what others hand on
};
[[nodiscard]] std::string_view name_of(Exchange exchange) noexcept;

// MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE and MPIR_CVAR_ALLTOALL_MEDIUM_MSG_SIZE: bytes from one rank to
// one other up to which MPICH takes Bruck's algorithm and the scattered one.
inline constexpr double kMostOfBruck = 256, kMostOfScattered = 32'768;
inline constexpr std::uint32_t kLeastRanksOfBruck = 8;
// Partners to which messages are under way at one time: MPICH's MPIR_CVAR_ALLTOALL_THROTTLE.
inline constexpr std::uint32_t kAtOnce = 32;

// What MPICH takes.
[[nodiscard]] Exchange usual_exchange(std::uint32_t ranks, double bytes) noexcept;

// One of a trace, as its first operation has it.
struct AllToAll {
  Exchange exchange = Exchange::none;
  std::uint32_t at_once = 0;  // of scattered: partners at one time, oneself included; 0: all
  friend bool operator==(const AllToAll&, const AllToAll&) = default;
};

// By rank. Leaves all as it is unless all ranks have the same of them.
void join_all_to_all(std::vector<RankStarts>* ranks);

}  // namespace turnout::sim::plan
