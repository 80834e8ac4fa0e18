// SPDX-License-Identifier: BSD-3-Clause
// MPI_Init, one allreduce, so that all have spoken with somebody, MPI_Finalize. An argument: how
// many milliseconds the last rank comes later to MPI_Finalize than the others.
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, ranks, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != ranks * (ranks - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
  if (argc > 1 && rank == ranks - 1) usleep(1000 * (useconds_t)atoi(argv[1]));
  return MPI_Finalize();
}
