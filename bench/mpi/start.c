// SPDX-License-Identifier: BSD-3-Clause
// MPI_Init, one allreduce, so that all have spoken with somebody, MPI_Finalize. An argument: how
// many milliseconds the last rank comes later to MPI_Finalize than the others. Prints the mean of
// the ranks' resident memory, pages that several share divided among them: Pss of proc(5).
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long resident_kib(void) {
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  long kib = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "Pss: %ld kB", &kib) == 1) break;
  }
  if (file != NULL) fclose(file);
  return kib;
}

int main(int argc, char** argv) {
  int rank, ranks, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != ranks * (ranks - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
  long of_all = 0;
  const long own = resident_kib();
  MPI_Reduce(&own, &of_all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"pss_kib\": %ld}\n", of_all / ranks);
  if (argc > 1 && rank == ranks - 1) usleep(1000 * (useconds_t)atoi(argv[1]));
  return MPI_Finalize();
}
