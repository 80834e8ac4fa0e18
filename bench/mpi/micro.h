// SPDX-License-Identifier: BSD-3-Clause
/* What the micro-benchmarks share: options by name, contents that can be checked, the result line.
 *
 * Each program measures one pattern, checks every message it receives, and prints one line of JSON
 * on rank 0; exit status 1: a message was wrong. Included once by each program; one thread.
 */
#ifndef TURNOUT_BENCH_MICRO_H
#define TURNOUT_BENCH_MICRO_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank_, ranks_;
static long wrong_; /* messages whose contents are not what was sent */

static void start(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
}

static void fail(const char* what) {
  if (rank_ == 0) fprintf(stderr, "%s\n", what);
  MPI_Finalize();
  exit(2);
}

/* --name N among the arguments, else the default. */
static long option(int argc, char** argv, const char* name, long otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return strtol(argv[i + 1], NULL, 10);
  }
  return otherwise;
}

static void* get(size_t bytes) {
  void* memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return memory;
}

/* Every 8 bytes differ from their neighbours, from other senders' and from other messages'. */
static uint64_t word(int from, long number, size_t at) {
  return ((uint64_t)from << 48 | (uint64_t)number) * 0x9e3779b97f4a7c15u + at;
}

static void fill(void* buffer, size_t bytes, int from, long number) {
  unsigned char* out = buffer;
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t w = word(from, number, i);
    memcpy(out + i, &w, bytes - i < 8 ? bytes - i : 8);
  }
}

static void check(const void* buffer, size_t bytes, int from, long number) {
  const unsigned char* in = buffer;
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t w = word(from, number, i);
    if (memcmp(in + i, &w, bytes - i < 8 ? bytes - i : 8) != 0) {
      if (wrong_++ == 0) {
        fprintf(stderr, "rank %d: message %ld of rank %d differs at byte %zu of %zu\n", rank_,
                number, from, i, bytes);
      }
      return;
    }
  }
}

/* Of a message that may be large: its first and last bytes, and some between. */
static void check_sampled(const void* buffer, size_t bytes, int from, long number) {
  const unsigned char* in = buffer;
  const size_t step = bytes > 65536 ? bytes / 1024 / 8 * 8 : 8;
  for (size_t i = 0; i + 8 <= bytes; i += i + step + 8 <= bytes ? step : 8) {
    const uint64_t w = word(from, number, i);
    if (memcmp(in + i, &w, 8) != 0) {
      ++wrong_;
      return;
    }
  }
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* values, long count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Sums what is wrong over all ranks; the exit status of each. */
static int finish(void) {
  long all = 0;
  MPI_Allreduce(&wrong_, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank_ == 0 && all > 0) fprintf(stderr, "%ld messages were wrong\n", all);
  MPI_Finalize();
  return all > 0 ? 1 : 0;
}

#endif
