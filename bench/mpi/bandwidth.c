// SPDX-License-Identifier: BSD-3-Clause
/* bandwidth: one process sends windows of messages to another, as osu_bw does.
 *
 *   mpiexec -n 2 bandwidth [--bytes 1048576] [--window 64] [--buffers 64] [--windows 20]
 *                          [--repeats 3]
 *
 * The receiver posts a window of receives, the sender as many sends; when all have ended, the
 * receiver says so with an empty message, and the next window begins. All sends are from one
 * buffer; the receives go round `buffers`, the default of which is one for each receive of a
 * window, since MPI wants that of receives that stand together. 1: as osu_bw does, which keeps the
 * data in the caches; all messages have the same contents. The time is the sender's, from the first
 * send to the last such word; the result is the median of the repeats. Contents are checked after
 * each repeat, outside the time.
 */
#include "micro.h"

enum { kTag = 15, kDone = 16 };

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long bytes = option(argc, argv, "--bytes", 1 << 20);
  const long window = option(argc, argv, "--window", 64);
  const long buffers = option(argc, argv, "--buffers", window);
  const long windows = option(argc, argv, "--windows", 20);
  const long repeats = option(argc, argv, "--repeats", 3);
  if (ranks_ != 2 || bytes < 8 || window < 1 || buffers < 1 || windows < 1 || repeats < 1) {
    fail("bandwidth: two processes, 8 bytes or more, and options above 0");
  }
  const size_t size = (size_t)bytes;
  unsigned char* const buffer = get(rank_ == 0 ? size : (size_t)buffers * size);
  MPI_Request* const requests = get((size_t)window * sizeof(MPI_Request));
  double* const rates = get((size_t)repeats * sizeof(double));
  for (long repeat = -1; repeat < repeats; ++repeat) { /* the first one warms up */
    if (rank_ == 0) {
      fill(buffer, size, 0, repeat);
    } else {
      memset(buffer, 0, (size_t)buffers * size);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    for (long w = 0; w < windows; ++w) {
      for (long i = 0; i < window; ++i) {
        if (rank_ == 0) {
          MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &requests[i]);
        } else {
          MPI_Irecv(buffer + (size_t)(i % buffers) * size, (int)bytes, MPI_BYTE, 0, kTag,
                    MPI_COMM_WORLD, &requests[i]);
        }
      }
      MPI_Waitall((int)window, requests, MPI_STATUSES_IGNORE);
      if (rank_ == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, 1, kDone, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else {
        MPI_Send(NULL, 0, MPI_BYTE, 0, kDone, MPI_COMM_WORLD);
      }
    }
    const double seconds = MPI_Wtime() - begun;
    if (repeat >= 0) rates[repeat] = (double)(windows * window) / seconds;
    for (long i = 0; rank_ == 1 && i < window && i < buffers; ++i) {
      check_sampled(buffer + (size_t)i * size, size, 0, repeat);
    }
  }
  if (rank_ == 0) {
    const double rate = median(rates, repeats);
    printf(
        "{\"benchmark\": \"bandwidth\", \"bytes\": %ld, \"window\": %ld, \"buffers\": %ld, "
        "\"messages\": %ld, "
        "\"messages_per_s\": %.0f, \"bytes_per_s\": %.0f}\n",
        bytes, window, buffers, (repeats + 1) * windows * window, rate, rate * (double)bytes);
  }
  return finish();
}
