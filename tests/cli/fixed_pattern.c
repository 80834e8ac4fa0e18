// SPDX-License-Identifier: BSD-3-Clause
// A fixed pattern of messages, for record_test.py: who sends what to whom depends on the number of
// ranks only. Sizes are from 1000 on, so that messages of the MPI library's own can be told apart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRounds = 20, kMost = 1 << 20 };

static int rank, ranks;
static unsigned long long sum;

static void add(const char* buffer, int bytes) {
  for (int i = 0; i < bytes; i += 61) sum = sum * 31 + (unsigned char)buffer[i];
}

// Everyone sends to everyone else; what comes is received as it comes.
static void any_source(char* out, char* in, int bytes) {
  MPI_Request* requests = malloc(sizeof(MPI_Request) * (size_t)ranks);
  int count = 0;
  for (int to = 0; to < ranks; ++to) {
    if (to == rank) continue;
    MPI_Isend(out, bytes + to, MPI_CHAR, to, 7, MPI_COMM_WORLD, &requests[count++]);
  }
  unsigned long long all = 0;
  for (int i = 1; i < ranks; ++i) {
    MPI_Status status;
    MPI_Recv(in, kMost, MPI_CHAR, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
    int got = 0;
    MPI_Get_count(&status, MPI_CHAR, &got);
    all += (unsigned long long)got * (unsigned)(status.MPI_SOURCE + 1);
  }
  sum = sum * 31 + all;
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  free(requests);
}

static void neighbours(char* out, char* in, int bytes, int distance) {
  const int up = (rank + distance) % ranks, down = (rank + ranks - distance) % ranks;
  MPI_Request request;
  MPI_Status status;
  MPI_Irecv(in, kMost, MPI_CHAR, down, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  MPI_Send(out, bytes, MPI_CHAR, up, bytes % 100, MPI_COMM_WORLD);
  MPI_Wait(&request, &status);
  add(in, bytes);
}

static void probed(char* out, char* in, int bytes) {
  const int up = (rank + 1) % ranks, down = (rank + ranks - 1) % ranks;
  MPI_Request request;
  MPI_Message message;
  MPI_Status status;
  MPI_Isend(out, bytes, MPI_CHAR, up, 9, MPI_COMM_WORLD, &request);
  MPI_Mprobe(down, 9, MPI_COMM_WORLD, &message, &status);
  MPI_Mrecv(in, kMost, MPI_CHAR, &message, &status);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  add(in, bytes);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* out = malloc(kMost);
  char* in = malloc(kMost);
  for (int i = 0; i < kMost; ++i) out[i] = (char)(i * 7 + rank);
  for (int i = 0; i < kRounds; ++i) {
    neighbours(out, in, 1000 + i, 1);
    neighbours(out, in, 20000 + 8 * i, 2);
  }
  neighbours(out, in, 900000, 1);
  any_source(out, in, 5000);
  probed(out, in, 3000);
  // A derived type: every other block.
  MPI_Datatype blocks;
  MPI_Type_vector(10, 150, 300, MPI_CHAR, &blocks);
  MPI_Type_commit(&blocks);
  MPI_Sendrecv(out, 1, blocks, (rank + 1) % ranks, 3, in, kMost, MPI_CHAR,
               (rank + ranks - 1) % ranks, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Type_free(&blocks);
  add(in, 1500);
  // Processes that it makes are not part of it.
  if (argc > 1 && rank == 0) {
    const pid_t child = fork();
    if (child == 0) execlp("sh", "sh", "-c", "exit 3", (char*)0);
    int status = 0;
    waitpid(child, &status, 0);
    sum += (unsigned long long)WEXITSTATUS(status);
    if (fork() == 0) exit(0);  // its handlers run
    wait(&status);
  }
  printf("rank %d of %d: %llx\n", rank, ranks, sum);
  MPI_Finalize();
  free(out);
  free(in);
  return 0;
}
