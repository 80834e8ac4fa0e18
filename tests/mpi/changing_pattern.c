// SPDX-License-Identifier: BSD-3-Clause
// Every rank sends windows of messages to the one at a distance, then, from one window to the next,
// to the one at another distance: changing_pattern SECONDS DISTANCE...
// Prints when each pattern began, in nanoseconds since 1970, as rank 0 saw it.
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kWindow = 64, kBytes = 8, kBetweenLooks = 64 };

static long long unix_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char** argv) {
  static char out[kWindow][kBytes], in[kWindow][kBytes];
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double seconds = argc > 2 ? atof(argv[1]) : 0;
  if (seconds <= 0) {
    if (rank == 0) fprintf(stderr, "usage: changing_pattern SECONDS DISTANCE...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  long long windows = 0, wrong = 0;
  for (int i = 2; i < argc; ++i) {
    const int distance = atoi(argv[i]) % ranks;
    const int to = (rank + distance) % ranks, from = (rank - distance + ranks) % ranks;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("distance %d begins at %lld\n", distance, unix_ns());
    const double begin = MPI_Wtime();
    for (int over = 0; !over;) {
      for (int look = 0; look < kBetweenLooks; ++look, ++windows) {
        MPI_Request requests[2 * kWindow];
        for (int m = 0; m < kWindow; ++m) {
          MPI_Irecv(in[m], kBytes, MPI_CHAR, from, i, MPI_COMM_WORLD, &requests[m]);
        }
        for (int m = 0; m < kWindow; ++m) {
          out[m][0] = (char)(rank + m + windows);
          MPI_Isend(out[m], kBytes, MPI_CHAR, to, i, MPI_COMM_WORLD, &requests[kWindow + m]);
        }
        MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
        for (int m = 0; m < kWindow; ++m) wrong += in[m][0] != (char)(from + m + windows);
      }
      const int late = MPI_Wtime() - begin > seconds;
      MPI_Allreduce(&late, &over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
  }
  long long all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%d ranks, %lld windows: %s\n", ranks, windows, all == 0 ? "all right" : "WRONG");
  MPI_Finalize();
  return all != 0;
}
