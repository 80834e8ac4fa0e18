// SPDX-License-Identifier: BSD-3-Clause
/* collectives: nine operations of MPI among all ranks, as many as the machine has cores or more.
 *
 *   mpiexec -n N collectives [--milliseconds 40] [--repeats 5]
 *
 * barrier; allreduce, alltoall and bcast of 8 bytes and of 16 KiB; and the message rate of pairs
 * (rank i sends windows of 64 to rank i + N/2), of 8 bytes and of 16 KiB. N is even. Prints
 * nanoseconds of one operation, or of one message of a pair: the median of the repeats, each by
 * the slowest rank. Contents are checked once for each operation.
 */
#include "micro.h"

enum { kWindow = 64, kMostBytes = 16384 };

static char *in_, *out_; /* kMostBytes for each rank, or for each message of a window */

static void barrier(long bytes) {
  (void)bytes;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(long bytes) {
  MPI_Allreduce(out_, in_, (int)(bytes / 8), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(long bytes) {
  MPI_Alltoall(out_, (int)bytes, MPI_BYTE, in_, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void bcast(long bytes) {
  MPI_Bcast(rank_ == 0 ? out_ : in_, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* One window. */
static void pairs(long bytes) {
  MPI_Request requests[kWindow];
  const int half = ranks_ / 2;
  const int sends = rank_ < half;
  const int peer = sends ? rank_ + half : rank_ - half;
  for (int i = 0; i < kWindow; ++i) {
    if (sends) {
      MPI_Isend(out_ + i * bytes, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
    } else {
      MPI_Irecv(in_ + i * bytes, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
    }
  }
  MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
  if (sends) {
    MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Send(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
  }
}

/* out_ holds word(rank, 0, ...) all through. */
static void verify_nothing(long bytes) {
  (void)bytes;
}

static void verify_allreduce(long bytes) {
  for (long at = 0; at < bytes; at += 8) {
    uint64_t sum = 0, got;
    for (int r = 0; r < ranks_; ++r) sum += word(r, 0, (size_t)at);
    memcpy(&got, in_ + at, 8);
    wrong_ += got != sum;
  }
}

/* The block that goes to rank i starts at i * bytes of the sender's buffer. */
static void verify_alltoall(long bytes) {
  for (int r = 0; r < ranks_; ++r) {
    for (long at = 0; at < bytes; at += 8) {
      const uint64_t sent = word(r, 0, (size_t)(rank_ * bytes + at));
      wrong_ += memcmp(in_ + r * bytes + at, &sent, 8) != 0;
    }
  }
}

static void verify_bcast(long bytes) {
  if (rank_ != 0) check(in_, (size_t)bytes, 0, 0);
}

static void verify_pairs(long bytes) {
  const int half = ranks_ / 2;
  if (rank_ >= half) check(in_, (size_t)(kWindow * bytes), rank_ - half, 0);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long milliseconds = option(argc, argv, "--milliseconds", 40);
  const long repeats = option(argc, argv, "--repeats", 5);
  if (milliseconds < 1 || repeats < 1)
    fail("collectives: --milliseconds and --repeats: at least 1");
  if (ranks_ < 2 || ranks_ % 2 != 0) fail("collectives: an even number of ranks is needed");
  const size_t room = (size_t)kMostBytes * (size_t)(ranks_ > kWindow ? ranks_ : kWindow);
  in_ = get(room);
  out_ = get(room);
  fill(out_, room, rank_, 0);
  double* times = get((size_t)repeats * sizeof *times);
  const struct {
    const char* name;
    void (*run)(long bytes);
    void (*verify)(long bytes);
    long bytes, messages;
  } operations[] = {
      {"barrier", barrier, verify_nothing, 0, 1},
      {"allreduce 8", allreduce, verify_allreduce, 8, 1},
      {"allreduce 16384", allreduce, verify_allreduce, 16384, 1},
      {"alltoall 8", alltoall, verify_alltoall, 8, 1},
      {"alltoall 16384", alltoall, verify_alltoall, 16384, 1},
      {"bcast 8", bcast, verify_bcast, 8, 1},
      {"bcast 16384", bcast, verify_bcast, 16384, 1},
      {"pairs 8", pairs, verify_pairs, 8, kWindow},
      {"pairs 16384", pairs, verify_pairs, 16384, kWindow},
  };
  enum { kOperations = sizeof operations / sizeof *operations };
  if (rank_ == 0) printf("{\"ranks\": %d, \"ns\": {", ranks_);
  for (int k = 0; k < kOperations; ++k) {
    memset(in_, 0, room);
    operations[k].run(operations[k].bytes);
    operations[k].verify(operations[k].bytes);
    long count = 1, done = 0;
    while (done < repeats) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (long i = 0; i < count; ++i) operations[k].run(operations[k].bytes);
      const double mine = MPI_Wtime() - begin;
      double slowest = 0; /* the same for all, so that they do the same next */
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (slowest * 1e3 < (double)milliseconds) {
        count *= slowest * 1e3 * 8 < (double)milliseconds ? 8 : 2;
        continue;
      }
      times[done++] = slowest * 1e9 / (double)(count * operations[k].messages);
    }
    if (rank_ == 0)
      printf("%s\"%s\": %.0f", k > 0 ? ", " : "", operations[k].name, median(times, repeats));
  }
  if (rank_ == 0) printf("}}\n");
  free(times);
  free(in_);
  free(out_);
  return finish();
}
