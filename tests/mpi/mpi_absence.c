// SPDX-License-Identifier: BSD-3-Clause
/* What MPI owes to a process that is outside of it, every message verified. Two processes or more;
 * any MPI library whose sends are local while the receiver computes.
 *
 *   mpi_absence isend FOLDER MESSAGES BYTES
 *       rank 1 stays outside until every MPI_Isend of rank 0 has returned
 *   mpi_absence early FOLDER MESSAGES
 *       rank 0 goes on into MPI_Finalize; rank 1 stays outside until then, and 3 s longer
 *   mpi_absence late FOLDER WHEN
 *       the last rank enters MPI_Finalize when all others have left it (WHEN is `left`), or 300 ms
 *       after they entered it (`leaving`)
 *
 * Ranks that are outside of MPI tell each other of themselves by files in FOLDER. Who receives says
 * at its end that all was verified; the last rank of `late` says which process it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kAtOnce = 64, kTags = 7 };
static const useconds_t kPoll = 1000, kAbsent = 3000000, kLate = 300000; /* microseconds */

static int rank, size;

static _Noreturn void end_with(const char* format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "rank %d: ", rank);
  vfprintf(stderr, format, list);
  fprintf(stderr, "\n");
  va_end(list);
  fflush(NULL);
  _exit(1);
}

static void* allocate(size_t count, size_t each) {
  void* data = calloc(count, each);
  if (data == NULL) end_with("no memory");
  return data;
}

static void say(const char* folder, const char* what, int of) {
  char name[4096];
  snprintf(name, sizeof name, "%s/%s.%d", folder, what, of);
  const int file = open(name, O_CREAT | O_WRONLY, 0600);
  if (file < 0) end_with("cannot make %s", name);
  close(file);
}

static void wait_outside(const char* folder, const char* what, int of) {
  char name[4096];
  snprintf(name, sizeof name, "%s/%s.%d", folder, what, of);
  while (access(name, F_OK) != 0) usleep(kPoll);
}

static uint64_t word_of(int message, size_t index) {
  uint64_t x = ((uint64_t)message << 32) + index + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

static void receive_all(int messages, size_t words) {
  uint64_t* in = allocate(kAtOnce * words, sizeof *in);
  for (int first = 0; first < messages; first += kAtOnce) {
    MPI_Request requests[kAtOnce];
    MPI_Status statuses[kAtOnce];
    const int count = messages - first < kAtOnce ? messages - first : kAtOnce;
    for (int i = 0; i < count; ++i) {
      MPI_Irecv(in + (size_t)i * words, (int)words, MPI_UINT64_T, 0, (first + i) % kTags,
                MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(count, requests, statuses);
    for (int i = 0; i < count; ++i) {
      int length = -1;
      MPI_Get_count(&statuses[i], MPI_UINT64_T, &length);
      if (length != (int)words) end_with("message %d has %d words", first + i, length);
      for (size_t w = 0; w < words; ++w) {
        if (in[(size_t)i * words + w] == word_of(first + i, w)) continue;
        end_with("word %zu of message %d is wrong", w, first + i);
      }
    }
  }
  int more = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &more, MPI_STATUS_IGNORE);
  if (more) end_with("a message more than was sent");
  free(in);
  printf("%d messages received and verified\n", messages);
  fflush(stdout);
}

/* Its own buffer for each: MPI may read them until the request has ended. */
static void send_to_absent(const char* folder, int messages, size_t words) {
  uint64_t* out = allocate((size_t)messages * words, sizeof *out);
  MPI_Request* requests = allocate((size_t)messages, sizeof *requests);
  for (int i = 0; i < messages; ++i) {
    uint64_t* const data = out + (size_t)i * words;
    for (size_t w = 0; w < words; ++w) data[w] = word_of(i, w);
    MPI_Isend(data, (int)words, MPI_UINT64_T, 1, i % kTags, MPI_COMM_WORLD, &requests[i]);
  }
  say(folder, "posted", 0);
  MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
  say(folder, "complete", 0);
  free(requests);
  free(out);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char* const what = argc > 2 ? argv[1] : "";
  const char* const folder = argc > 2 ? argv[2] : "";
  const char* const third = argc > 3 ? argv[3] : "";
  const int messages = atoi(third);
  const size_t words = argc > 4 ? (size_t)atol(argv[4]) / 8 : 1;
  int one = 1, all = 0;
  MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (all != size) end_with("%d ranks of %d", all, size);
  if (strcmp(what, "isend") == 0) {
    if (rank == 0) send_to_absent(folder, messages, words);
    if (rank == 1) {
      wait_outside(folder, "posted", 0);
      receive_all(messages, words);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (strcmp(what, "early") == 0) {
    if (rank == 0) send_to_absent(folder, messages, words);
    if (rank == 1) {
      wait_outside(folder, "leaving", 0);
      usleep(kAbsent);
      receive_all(messages, words);
    }
  } else if (strcmp(what, "late") == 0) {
    if (rank == size - 1) {
      for (int other = 0; other < rank; ++other) wait_outside(folder, third, other);
      if (strcmp(third, "leaving") == 0) usleep(kLate);
      printf("the late one is process %d\n", (int)getpid());
      fflush(stdout);
    }
  } else {
    end_with("what is to be done?");
  }
  say(folder, "leaving", rank);
  MPI_Finalize();
  say(folder, "left", rank);
  return 0;
}
