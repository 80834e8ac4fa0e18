// SPDX-License-Identifier: BSD-3-Clause
/* mpi_pingpong: latency and rate of messages between two ranks, one JSON line on rank 0.
 *
 *   mpiexec -n 2 mpi_pingpong WARM_UP_SECONDS SECONDS_PER_SIZE SIZE...
 *
 * Latency: MPI_Send/MPI_Recv ping-pong, half of a round trip. Rate: rank 0 sends kWindow messages
 * with MPI_Isend, from and to one buffer each as OSU's osu_bw does, and rank 1 answers when it has
 * all; the time of a message. Each is the median over batches. Each rank pins itself to the rank-th
 * core it may use. Rank 0 tells rank 1 with each batch whether another one follows, outside the
 * timing. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void pin(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || seen++ != rank) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) perror("sched_setaffinity");
    return;
  }
}

enum { kWindow = 64 };

typedef double Batch(int rank, char* out, char* in, int size, int times);

static int times_of(int size) {
  return size <= 4096 ? 500 : size <= 65536 ? 100 : 10;
}

static double trips(int rank, char* out, char* in, int size, int trips) {
  const double start = MPI_Wtime();
  for (int i = 0; i < trips; ++i) {
    if (rank == 0) {
      MPI_Send(out, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(in, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(in, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
  }
  return (MPI_Wtime() - start) / (2.0 * trips) * 1e9;
}

static double windows(int rank, char* out, char* in, int size, int messages) {
  MPI_Request requests[kWindow];
  const int windows = (messages + kWindow - 1) / kWindow;
  const double start = MPI_Wtime();
  for (int w = 0; w < windows; ++w) {
    for (int i = 0; i < kWindow; ++i) {
      if (rank == 0) {
        MPI_Isend(out, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
      } else {
        MPI_Irecv(in, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
      }
    }
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    char done = 0;
    if (rank == 0) {
      MPI_Recv(&done, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(&done, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
  }
  return (MPI_Wtime() - start) / (windows * (double)kWindow) * 1e9;
}

enum { kMaxBatches = 100000 };

/* Batches of `size` until `seconds` have passed; returns the median in ns. */
static double phase(Batch* batch, int rank, char* out, char* in, int size, double seconds,
                    double* times) {
  const double end = MPI_Wtime() + seconds;
  int count = 0;
  for (;;) {
    int more = rank == 0 && count < kMaxBatches && (count == 0 || MPI_Wtime() < end);
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!more) break;
    times[count++] = batch(rank, out, in, size, times_of(size));
  }
  qsort(times, (size_t)count, sizeof *times, compare);
  return times[count / 2];
}

int main(int argc, char** argv) {
  int rank = 0, ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2 || argc < 4) {
    if (rank == 0) fprintf(stderr, "usage: mpiexec -n 2 mpi_pingpong WARM_UP SECONDS SIZE...\n");
    MPI_Finalize();
    return 2;
  }
  pin(rank);
  const double warm_up = atof(argv[1]), seconds = atof(argv[2]);
  size_t largest = 8;
  for (int i = 3; i < argc; ++i) {
    const size_t size = (size_t)atoi(argv[i]);
    if (size > largest) largest = size;
  }
  char* out = malloc(largest);
  char* in = malloc(largest);
  double* times = malloc(kMaxBatches * sizeof *times);
  if (out == NULL || in == NULL || times == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(out, 0x5a, largest);
  memset(in, 0, largest);
  phase(trips, rank, out, in, 8, warm_up, times);
  static const struct {
    const char* name;
    Batch* batch;
  } kinds[] = {{"one_way_ns", trips}, {"message_ns", windows}};
  for (int k = 0; k < 2; ++k) {
    if (rank == 0) printf("%s\"%s\": {", k == 0 ? "{" : ", ", kinds[k].name);
    for (int i = 3; i < argc; ++i) {
      const int size = atoi(argv[i]);
      phase(kinds[k].batch, rank, out, in, size, seconds / 4, times);
      const double median = phase(kinds[k].batch, rank, out, in, size, seconds, times);
      if (rank == 0) printf("%s\"%d\": %.1f", i == 3 ? "" : ", ", size, median);
    }
    if (rank == 0) printf("}");
  }
  if (rank == 0) printf("}\n");
  free(times);
  free(in);
  free(out);
  MPI_Finalize();
  return 0;
}
