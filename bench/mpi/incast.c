// SPDX-License-Identifier: BSD-3-Clause
/* incast: all send to rank 0 as fast as they can.
 *
 *   mpiexec -n N incast [--messages 20000] [--bytes 1024] [--window 16] [--ahead 64] [--repeats 3]
 *
 * `messages` of each source, which rank 0 receives from anybody. Prints the rate of each source
 * (its messages over the time until its last one came) and, for the moment when the first source
 * was done, Jain's index of what had come from each: 1, all alike; 1/n, one had it all.
 */
#include "micro.h"

enum { kTag = 19 };

static long messages_, bytes_, window_, ahead_;

static void send_all(long first) {
  const size_t size = (size_t)bytes_;
  unsigned char* const out = get((size_t)window_ * size);
  MPI_Request* const requests = get((size_t)window_ * sizeof(MPI_Request));
  for (long i = 0; i < messages_; ++i) {
    const long slot = i % window_;
    if (i >= window_) MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
    fill(out + (size_t)slot * size, size, rank_, first + i);
    MPI_Isend(out + (size_t)slot * size, (int)bytes_, MPI_BYTE, 0, kTag, MPI_COMM_WORLD,
              &requests[slot]);
  }
  MPI_Waitall((int)(messages_ < window_ ? messages_ : window_), requests, MPI_STATUSES_IGNORE);
  free(out);
  free(requests);
}

/* Seconds until the last one of each source, and Jain's index. */
static double receive_all(long first, double* seconds) {
  const size_t size = (size_t)bytes_;
  const long all = messages_ * (ranks_ - 1);
  const long ahead = ahead_ < all ? ahead_ : all;
  unsigned char* const in = get((size_t)ahead * size);
  MPI_Request* const requests = get((size_t)ahead * sizeof(MPI_Request));
  long* const came = get((size_t)ranks_ * sizeof(long));
  memset(came, 0, (size_t)ranks_ * sizeof(long));
  double index = 0;
  const double begun = MPI_Wtime();
  for (long i = 0; i < ahead; ++i) {
    MPI_Irecv(in + (size_t)i * size, (int)bytes_, MPI_BYTE, MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD,
              &requests[i]);
  }
  for (long i = 0; i < all; ++i) {
    const long slot = i % ahead;
    MPI_Status status;
    MPI_Wait(&requests[slot], &status);
    const int from = status.MPI_SOURCE;
    check(in + (size_t)slot * size, size, from, first + came[from]);
    if (++came[from] == messages_) {
      seconds[from] = MPI_Wtime() - begun;
      if (index == 0) {
        double sum = 0, squares = 0;
        for (int r = 1; r < ranks_; ++r) {
          sum += (double)came[r];
          squares += (double)came[r] * (double)came[r];
        }
        index = sum * sum / ((ranks_ - 1) * squares);
      }
    }
    if (i + ahead < all) {
      MPI_Irecv(in + (size_t)slot * size, (int)bytes_, MPI_BYTE, MPI_ANY_SOURCE, kTag,
                MPI_COMM_WORLD, &requests[slot]);
    }
  }
  free(in);
  free(requests);
  free(came);
  return index;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  messages_ = option(argc, argv, "--messages", 20000);
  bytes_ = option(argc, argv, "--bytes", 1024);
  window_ = option(argc, argv, "--window", 16);
  ahead_ = option(argc, argv, "--ahead", 64);
  const long repeats = option(argc, argv, "--repeats", 3);
  if (ranks_ < 2 || messages_ < 1 || bytes_ < 8 || window_ < 1 || ahead_ < 1 || repeats < 1) {
    fail("incast: two processes or more, messages of 8 bytes or more");
  }
  double* const rates = get((size_t)ranks_ * (size_t)repeats * sizeof(double));
  double* const indices = get((size_t)repeats * sizeof(double));
  double* const seconds = get((size_t)ranks_ * sizeof(double));
  for (long repeat = -1; repeat < repeats; ++repeat) {
    const long first = (repeat + 1) * messages_;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ != 0) {
      send_all(first);
      continue;
    }
    const double index = receive_all(first, seconds);
    if (repeat < 0) continue;
    indices[repeat] = index;
    for (int r = 1; r < ranks_; ++r) {
      rates[r * repeats + repeat] = (double)messages_ / seconds[r];
    }
  }
  if (rank_ == 0) {
    double all = 0;
    printf(
        "{\"benchmark\": \"incast\", \"sources\": %d, \"bytes\": %ld, \"messages\": %ld, "
        "\"rates\": [",
        ranks_ - 1, bytes_, (repeats + 1) * messages_ * (ranks_ - 1));
    for (int r = 1; r < ranks_; ++r) {
      const double rate = median(rates + r * repeats, repeats);
      all += rate;
      printf("%s%.0f", r == 1 ? "" : ", ", rate);
    }
    printf("], \"messages_per_s\": %.0f, \"fairness\": %.4f}\n", all, median(indices, repeats));
  }
  return finish();
}
