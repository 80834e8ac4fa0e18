// SPDX-License-Identifier: BSD-3-Clause
// threads: MPI_THREAD_MULTIPLE. Pairs of processes, the threads of each with the threads of the
// other: windows of messages there, and a short answer. Every message is verified.
//
//     threads [--threads 4] [--messages 20000] [--size 8] [--communicators 1] [--blocking 1]
//
// messages: that each thread sends; of every 16th window half is long enough for rendezvous unless
// --size is given. communicators: one for each thread, else all share one and differ by tags.
// blocking: sends with MPI_Send, else MPI_Isend and one MPI_Waitall a window.
// Prints messages a second, of all threads together.
#define _POSIX_C_SOURCE 200809L  // pthread_barrier_t
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWindow = 64, kMostThreads = 64, kLong = 40000 };

static struct {
  int threads, size, communicators, blocking;
  long messages;
  int rank, peer;
  MPI_Comm comm[kMostThreads];
} job = {.threads = 4, .size = 0, .communicators = 0, .blocking = 0, .messages = 20000};

static _Noreturn void fail(const char* what, int thread, long message) {
  printf("rank %d, thread %d, message %ld: %s\n", job.rank, thread, message, what);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}
static void check(int error, const char* call, int thread, long message) {
  if (error != MPI_SUCCESS) fail(call, thread, message);
}

static int length_of(long message) {
  if (job.size > 0) return job.size;
  return message / kWindow % 16 == 7 && message % 2 == 0 ? kLong : 8 + (int)(message % 500);
}
static unsigned char byte_of(int rank, int thread, long message) {
  return (unsigned char)(rank * 131 + thread * 31 + message * 7);
}

static void send_window(int thread, long first, int count, unsigned char* bytes,
                        MPI_Request* requests) {
  for (int i = 0; i < count; ++i) {
    unsigned char* const at = bytes + (size_t)i * kLong;
    const int length = length_of(first + i);
    memset(at, byte_of(job.rank, thread, first + i), (size_t)length);
    if (job.blocking != 0) {
      check(MPI_Send(at, length, MPI_BYTE, job.peer, thread, job.comm[thread]), "MPI_Send", thread,
            first + i);
    } else {
      check(MPI_Isend(at, length, MPI_BYTE, job.peer, thread, job.comm[thread], &requests[i]),
            "MPI_Isend", thread, first + i);
    }
  }
  if (job.blocking == 0) {
    check(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE), "MPI_Waitall", thread, first);
  }
}
static void receive_window(int thread, long first, int count, unsigned char* bytes,
                           MPI_Request* requests) {
  MPI_Status statuses[kWindow];
  for (int i = 0; i < count; ++i) {
    check(MPI_Irecv(bytes + (size_t)i * kLong, kLong, MPI_BYTE, job.peer, thread, job.comm[thread],
                    &requests[i]),
          "MPI_Irecv", thread, first + i);
  }
  check(MPI_Waitall(count, requests, statuses), "MPI_Waitall", thread, first);
  for (int i = 0; i < count; ++i) {
    int length = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &length);
    const unsigned char wanted = byte_of(job.peer, thread, first + i);
    const unsigned char* const at = bytes + (size_t)i * kLong;
    if (length != length_of(first + i)) fail("another length", thread, first + i);
    for (int b = 0; b < length; ++b) {
      if (at[b] != wanted) fail("other content", thread, first + i);
    }
  }
}

static void* run(void* argument) {
  const int thread = (int)(intptr_t)argument;
  unsigned char* const bytes = malloc((size_t)kWindow * kLong);
  MPI_Request requests[kWindow];
  if (bytes == NULL) fail("no memory", thread, 0);
  for (long first = 0; first < job.messages; first += kWindow) {
    const long left = job.messages - first;
    const int count = (int)(left < kWindow ? left : kWindow);
    // The two sides take turns.
    for (int turn = 0; turn < 2; ++turn) {
      if ((job.rank + turn) % 2 == 0) {
        send_window(thread, first, count, bytes, requests);
      } else {
        receive_window(thread, first, count, bytes, requests);
      }
    }
  }
  free(bytes);
  return NULL;
}

static long number_of(const char* text) {
  char* end = NULL;
  const long number = strtol(text, &end, 10);
  if (end == text || *end != '\0' || number < 0) {
    fprintf(stderr, "threads: not a number: %s\n", text);
    exit(2);
  }
  return number;
}

int main(int argc, char** argv) {
  int provided = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 1; i + 1 < argc; i += 2) {
    const long number = number_of(argv[i + 1]);
    if (strcmp(argv[i], "--threads") == 0) job.threads = (int)number;
    if (strcmp(argv[i], "--messages") == 0) job.messages = number;
    if (strcmp(argv[i], "--size") == 0) job.size = (int)number;
    if (strcmp(argv[i], "--communicators") == 0) job.communicators = (int)number;
    if (strcmp(argv[i], "--blocking") == 0) job.blocking = (int)number;
  }
  if (ranks % 2 != 0 || job.threads < 1 || job.threads > kMostThreads || job.size > kLong) {
    fprintf(stderr, "threads: an even number of ranks, 1 to 64 threads, at most 40000 bytes\n");
    return 2;
  }
  if (provided != MPI_THREAD_MULTIPLE) {
    printf("no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 3;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  job.peer = job.rank ^ 1;
  for (int t = 0; t < job.threads; ++t) {
    job.comm[t] = MPI_COMM_WORLD;
    if (job.communicators != 0) MPI_Comm_dup(MPI_COMM_WORLD, &job.comm[t]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun = MPI_Wtime();
  pthread_t threads[kMostThreads];
  for (int t = 1; t < job.threads; ++t) {
    if (pthread_create(&threads[t], NULL, run, (void*)(intptr_t)t) != 0) fail("no thread", t, 0);
  }
  run((void*)0);
  for (int t = 1; t < job.threads; ++t) pthread_join(threads[t], NULL);
  MPI_Barrier(MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - begun;
  if (job.rank == 0) {
    const double all = (double)job.messages * job.threads * ranks;
    printf("%d threads, %ld messages each, all right; %.0f messages/s\n", job.threads, job.messages,
           all / seconds);
  }
  for (int t = 0; t < job.threads; ++t) {
    if (job.communicators != 0) MPI_Comm_free(&job.comm[t]);
  }
  MPI_Finalize();
  return 0;
}
