// SPDX-License-Identifier: BSD-3-Clause
// The partners change in mid-run, for why_test.py: changing SECONDS DISTANCE... Every rank exchanges
// with the ranks at a distance, so many seconds, then with those at the next one. Rank 0 prints when
// each part began: "distance 3 from 1700000000123456789", the host's clock in ns since 1970.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return 1000000000LL * t.tv_sec + t.tv_nsec;
}

int main(int argc, char** argv) {
  int rank, ranks;
  char out[64] = {0}, in[64];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double seconds = atof(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const int distance = atoi(argv[i]) % ranks;
    const int up = (rank + distance) % ranks, down = (rank + ranks - distance) % ranks;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      printf("distance %d from %lld\n", distance, now());
      fflush(stdout);
    }
    const double end = MPI_Wtime() + seconds;
    int over = 0;
    while (!over) {
      for (int k = 0; k < 200; ++k) {
        MPI_Sendrecv(out, sizeof out, MPI_CHAR, up, 1, in, sizeof in, MPI_CHAR, down, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      over = MPI_Wtime() > end;
      MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
  }
  MPI_Finalize();
  return 0;
}
