// SPDX-License-Identifier: BSD-3-Clause
// What a 64-bit tag of a message says of the MPI call that it belongs to, where the layout of the
// MPI library is known; otherwise the tag in hexadecimal.
//
// MPICH 4 and 5 (device ch4:ofi) and Open MPI 4 and 5 (mtl ofi) put the communicator's context,
// some protocol bits and MPI's tag into it. Sources: MPICH's ofi_types.h, ofi_capability_sets.h,
// mpir_tags.h and mpir_contextid.h; Open MPI's mtl_ofi_types.h and coll_tags.h. Pure functions of
// untrusted values, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/report/waits.h"

namespace turnout::cli {

// "MPI tag 5 (MPICH)" of MPI_COMM_WORLD, "MPI_Barrier on context 4 (MPICH)", "tag 0x7, ignoring
// 0xff". `mpi`: WaitsReport::mpi.
[[nodiscard]] std::string tag_text(const WaitReport& wait, std::string_view mpi);
// Of a receive for the answer to MPI_Ssend: the tag of that message, without the bits of the
// protocol. Absent: it is another operation, or not known.
[[nodiscard]] std::optional<std::uint64_t> answered_tag(const WaitReport& wait,
                                                        std::string_view mpi);
[[nodiscard]] std::uint64_t without_protocol(const WaitReport& wait, std::string_view mpi);

}  // namespace turnout::cli
