// SPDX-License-Identifier: BSD-3-Clause
/* alltoall: MPI_Alltoall within groups of processes, all groups at once.
 *
 *   mpiexec -n N alltoall [--group 4] [--bytes 4096] [--rounds 200] [--repeats 3]
 *
 * `bytes` go from each process to each of its group. Prints the time of one, the median of the
 * repeats over the slowest group.
 */
#include "micro.h"

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long group = option(argc, argv, "--group", 4);
  const long bytes = option(argc, argv, "--bytes", 4096);
  const long rounds = option(argc, argv, "--rounds", 200);
  const long repeats = option(argc, argv, "--repeats", 3);
  if (group < 1 || ranks_ % group != 0 || bytes < 1 || rounds < 1 || repeats < 1) {
    fail("alltoall: a number of processes that the groups divide, and options above 0");
  }
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, rank_ / (int)group, rank_, &comm);
  const int first = rank_ / (int)group * (int)group;
  const size_t size = (size_t)bytes;
  unsigned char* const out = get((size_t)group * size);
  unsigned char* const in = get((size_t)group * size);
  double* const times = get((size_t)repeats * sizeof(double));
  long number = 0;
  for (long repeat = -1; repeat < repeats; ++repeat) {
    double took = 0; /* without the filling and checking */
    MPI_Barrier(MPI_COMM_WORLD);
    for (long round = 0; round < rounds; ++round, ++number) {
      for (long to = 0; to < group; ++to) {
        fill(out + (size_t)to * size, size, rank_, number * group + to);
      }
      const double begun = MPI_Wtime();
      MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, comm);
      took += MPI_Wtime() - begun;
      for (long from = 0; from < group; ++from) {
        check(in + (size_t)from * size, size, first + (int)from, number * group + rank_ - first);
      }
    }
    double slowest = 0;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (repeat >= 0) times[repeat] = slowest / (double)rounds;
  }
  if (rank_ == 0) {
    printf(
        "{\"benchmark\": \"alltoall\", \"ranks\": %d, \"group\": %ld, \"bytes\": %ld, "
        "\"rounds\": %ld, \"us\": %.3f}\n",
        ranks_, group, bytes, number, median(times, repeats) * 1e6);
  }
  MPI_Comm_free(&comm);
  return finish();
}
