// SPDX-License-Identifier: BSD-3-Clause
/* flood: a million messages that nobody has posted receives for.
 *
 *   mpiexec -n N flood [--messages 1000000] [--bytes 8] [--compute-ms 300]
 *
 * All others send to rank 0, which computes first, makes progress without receiving for a while
 * (MPI_Iprobe for a tag nobody uses), and then takes all, source by source in the order of sending,
 * and checks them. What it may not keep in its memory must wait at the senders.
 */
#include "micro.h"

#include <time.h>

enum { kTag = 17, kUnusedTag = 18, kWindow = 64 };

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void send_all(long messages, long bytes) {
  const size_t size = (size_t)bytes;
  unsigned char* const out = get(kWindow * size);
  MPI_Request requests[kWindow];
  for (long i = 0; i < messages; ++i) {
    const long slot = i % kWindow;
    if (i >= kWindow) MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
    fill(out + (size_t)slot * size, size, rank_, i);
    MPI_Isend(out + (size_t)slot * size, (int)bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD,
              &requests[slot]);
  }
  MPI_Waitall((int)(messages < kWindow ? messages : kWindow), requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long messages = option(argc, argv, "--messages", 1000000);
  const long bytes = option(argc, argv, "--bytes", 8);
  const long compute_ms = option(argc, argv, "--compute-ms", 300);
  if (ranks_ < 2 || bytes < 8 || messages < ranks_ - 1) {
    fail("flood: two processes or more, messages of 8 bytes or more");
  }
  const long each = messages / (ranks_ - 1);
  double waited = 0, took = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ != 0) {
    send_all(each, bytes);
  } else {
    const double end = processor_seconds() + (double)compute_ms / 1e3;
    volatile double x = 1;
    while (processor_seconds() < end) x = x * 1.0000001 + 1e-9;
    const double begun = MPI_Wtime();
    int found = 0;
    while (MPI_Wtime() - begun < (double)compute_ms / 1e3) {
      MPI_Iprobe(1, kUnusedTag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
    waited = MPI_Wtime() - begun;
    void* const in = get((size_t)bytes);
    for (long i = 0; i < each; ++i) {
      for (int from = 1; from < ranks_; ++from) {
        MPI_Status status;
        MPI_Recv(in, (int)bytes, MPI_BYTE, from, kTag, MPI_COMM_WORLD, &status);
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count != bytes) ++wrong_;
        check(in, (size_t)bytes, from, i);
      }
    }
    took = MPI_Wtime() - begun - waited;
  }
  if (rank_ == 0) {
    printf(
        "{\"benchmark\": \"flood\", \"ranks\": %d, \"messages\": %ld, \"bytes\": %ld, "
        "\"taken_per_s\": %.0f}\n",
        ranks_, each * (ranks_ - 1), bytes, (double)(each * (ranks_ - 1)) / took);
  }
  return finish();
}
