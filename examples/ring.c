// SPDX-License-Identifier: BSD-3-Clause
// A token goes round all ranks, LAPS times: mpicc ring.c -o ring; turnout run -- mpirun -n 4 ./ring
// [LAPS]
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long laps = argc > 1 ? atol(argv[1]) : 1000;
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  long token = 0;
  const double begun = MPI_Wtime();
  for (long lap = 0; lap < laps; ++lap) {
    if (rank == 0) {
      ++token;
      MPI_Send(&token, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
      MPI_Recv(&token, 1, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(&token, 1, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      ++token;
      MPI_Send(&token, 1, MPI_LONG, next, 0, MPI_COMM_WORLD);
    }
  }
  const int right = rank != 0 || token == laps * ranks;
  if (rank == 0) {
    printf("%d ranks, %ld laps, the token is %ld: %s (%.1f us a hop)\n", ranks, laps, token,
           right ? "right" : "WRONG", (MPI_Wtime() - begun) / ((double)laps * ranks) * 1e6);
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
