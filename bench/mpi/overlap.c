// SPDX-License-Identifier: BSD-3-Clause
/* overlap: how much of a large transfer hides behind computation.
 *
 *   mpiexec -n 2 overlap [--bytes 1048576] [--repeats 25] [--compute 200]
 *
 * One side starts the transfer (MPI_Isend, MPI_Irecv), computes without calling MPI, and waits; the
 * other one only waits. With T the time of the transfer alone, seen from that side, C that of the
 * computation and B of both, the ratio is 1 - (B - C) / T: 1, the transfer cost nothing; 0, all of
 * it came after the computation. C is `compute` percent of T,
 * more than 100, so that it is not shorter in any repeat. In each repeat the three are measured
 * after each other, and the ratio is that of the medians. Both sides are measured, in turn; a
 * receive always stands before its message is sent, as in programs whose neighbours exchange.
 *
 * Each process stays on a processor of its own, as launchers bind them, from MPI_Init on: threads
 * that a library has made by then may run anywhere.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "micro.h"

enum { kTag = 13, kGo = 14 };
enum { kFirst = 7 }; /* transfers for channels, caches, and how much to compute */

static volatile uint64_t sink_;
static void compute(long steps) {
  uint64_t x = sink_ + 1;
  for (long i = 0; i < steps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  sink_ = x;
}

/* Steps that take so many seconds, alone. */
static long steps_for(double seconds) {
  static double per_step;
  if (per_step == 0) {
    const long steps = 20000000;
    const double begun = MPI_Wtime();
    compute(steps);
    per_step = (MPI_Wtime() - begun) / (double)steps;
  }
  return (long)(seconds / per_step);
}

static unsigned char* buffer_;
static long bytes_, number_;

static void stay_on_one_processor(void) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int skip = rank_ % CPU_COUNT(&allowed);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &allowed) || skip-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/* Rank 0 sends, rank 1 receives; `mine` computes. Seconds that rank 0 or 1, whichever it is, took.
 */
static double transfer(int mine, long steps) {
  MPI_Request request;
  double took = 0;
  const int computes = rank_ == mine;
  ++number_;
  if (rank_ == 1) {
    memset(buffer_, 0, (size_t)bytes_);
  } else {
    fill(buffer_, (size_t)bytes_, 0, number_);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 1) {
    const double begun = MPI_Wtime();
    MPI_Irecv(buffer_, (int)bytes_, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
    MPI_Send(NULL, 0, MPI_BYTE, 0, kGo, MPI_COMM_WORLD);
    if (computes) compute(steps);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    took = MPI_Wtime() - begun;
    check_sampled(buffer_, (size_t)bytes_, 0, number_);
  } else {
    MPI_Recv(NULL, 0, MPI_BYTE, 1, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double begun = MPI_Wtime();
    MPI_Isend(buffer_, (int)bytes_, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
    if (computes) compute(steps);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    took = MPI_Wtime() - begun;
  }
  return took;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  bytes_ = option(argc, argv, "--bytes", 1 << 20);
  const long repeats = option(argc, argv, "--repeats", 25);
  const long percent = option(argc, argv, "--compute", 200);
  if (ranks_ != 2 || bytes_ < 8 || repeats < 1 || percent < 1) {
    fail("overlap: two processes, 8 bytes or more");
  }
  stay_on_one_processor();
  buffer_ = get((size_t)bytes_);
  double* const alone = get((size_t)repeats * sizeof(double));
  double* const computing = get((size_t)repeats * sizeof(double));
  double* const both = get((size_t)repeats * sizeof(double));
  double result[2][3];
  for (int mine = 0; mine < 2; ++mine) {
    long steps = 0;
    double first[kFirst];
    for (long i = 0; i < kFirst + repeats; ++i) {
      const double a = transfer(mine, 0);
      if (i < kFirst) {
        first[i] = a;
        if (i + 1 < kFirst) continue;
        steps = steps_for(median(first, kFirst) * (double)percent / 100);
        MPI_Bcast(&steps, 1, MPI_LONG, mine, MPI_COMM_WORLD);
        continue;
      }
      const double begun = MPI_Wtime();
      compute(steps);
      const double c = MPI_Wtime() - begun;
      MPI_Barrier(MPI_COMM_WORLD);
      alone[i - kFirst] = a;
      computing[i - kFirst] = c;
      both[i - kFirst] = transfer(mine, steps);
    }
    double own[3] = {median(alone, repeats), median(computing, repeats), median(both, repeats)};
    MPI_Bcast(own, 3, MPI_DOUBLE, mine, MPI_COMM_WORLD);
    memcpy(result[mine], own, sizeof own);
  }
  if (rank_ == 0) {
    static const char* const kSides[] = {"sender", "receiver"};
    printf("{\"benchmark\": \"overlap\", \"bytes\": %ld, \"messages\": %ld", bytes_, number_);
    for (int side = 0; side < 2; ++side) {
      const double* const r = result[side];
      printf(
          ", \"%s\": {\"alone_us\": %.2f, \"compute_us\": %.2f, \"both_us\": %.2f, \"ratio\": "
          "%.3f}",
          kSides[side], r[0] * 1e6, r[1] * 1e6, r[2] * 1e6, 1 - (r[2] - r[1]) / r[0]);
    }
    printf("}\n");
  }
  return finish();
}
