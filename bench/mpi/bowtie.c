// SPDX-License-Identifier: BSD-3-Clause
/* bowtie: n pairs of processes send both ways at once, all through one pair of adapters.
 *
 *   mpiexec -n 2N bowtie [--bytes 1024] [--messages 20000] [--window 16] [--repeats 3]
 *
 * Rank i of the lower half exchanges with rank i + N. Prints the rate over all pairs and both ways,
 * the median of the repeats. sim/workloads has the same pattern for two simulated adapters.
 */
#include "micro.h"

enum { kTag = 11 };

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long bytes = option(argc, argv, "--bytes", 1024);
  const long messages = option(argc, argv, "--messages", 20000);
  const long window = option(argc, argv, "--window", 16);
  const long repeats = option(argc, argv, "--repeats", 3);
  if (ranks_ % 2 != 0 || bytes < 1 || messages < 1 || window < 1 || repeats < 1) {
    fail("bowtie: an even number of processes, and options above 0");
  }
  const int peer = rank_ < ranks_ / 2 ? rank_ + ranks_ / 2 : rank_ - ranks_ / 2;
  const size_t size = (size_t)bytes;
  unsigned char* const out = get((size_t)window * size);
  unsigned char* const in = get((size_t)window * size);
  MPI_Request* const requests = get(2 * (size_t)window * sizeof(MPI_Request));
  double* const rates = get((size_t)repeats * sizeof(double));
  long number = 0;
  for (long repeat = -1; repeat < repeats; ++repeat) { /* the first one warms up */
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    for (long done = 0; done < messages;) {
      const long n = messages - done < window ? messages - done : window;
      for (long i = 0; i < n; ++i) {
        MPI_Irecv(in + (size_t)i * size, (int)bytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD,
                  &requests[i]);
      }
      for (long i = 0; i < n; ++i) {
        fill(out + (size_t)i * size, size, rank_, number + i);
        MPI_Isend(out + (size_t)i * size, (int)bytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD,
                  &requests[n + i]);
      }
      MPI_Waitall((int)(2 * n), requests, MPI_STATUSES_IGNORE);
      for (long i = 0; i < n; ++i) check(in + (size_t)i * size, size, peer, number + i);
      number += n;
      done += n;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (repeat >= 0) rates[repeat] = (double)(ranks_ * messages) / (MPI_Wtime() - begun);
  }
  if (rank_ == 0) {
    const double rate = median(rates, repeats);
    printf(
        "{\"benchmark\": \"bowtie\", \"pairs\": %d, \"bytes\": %ld, \"messages\": %ld, "
        "\"messages_per_s\": %.0f, \"bytes_per_s\": %.0f}\n",
        ranks_ / 2, bytes, number * ranks_, rate, rate * (double)bytes);
  }
  return finish();
}
