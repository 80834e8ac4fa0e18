// SPDX-License-Identifier: BSD-3-Clause
// mpi_library(): how the MPI library of this process calls itself, for reports: "MPICH Version:
// 5.0.2". Empty where no MPI library is found among the program's libraries. MPI allows the
// question at any time and from any thread [MPI 4.0, 11.2.1]. Any thread.
#pragma once

#include <string>

namespace turnout {

// The first line, with single spaces.
[[nodiscard]] std::string mpi_library();

}  // namespace turnout
