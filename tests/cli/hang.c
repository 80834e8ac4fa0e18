// SPDX-License-Identifier: BSD-3-Clause
// Ways to hang an MPI job, for stuck_test.py: hang NAME. Each rank prints its process id first.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;
static char buffer[4 << 20];

static void receive(int from, int tag) {
  MPI_Recv(buffer, 4, MPI_CHAR, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void post(int to, int tag, int bytes) {
  MPI_Send(buffer, bytes, MPI_CHAR, to, tag, MPI_COMM_WORLD);
}

// Both receive first.
static void cycle(void) {
  receive(1 - rank, 5);
}

static void wrong_tag(void) {
  if (rank == 0) receive(1, 5);
  if (rank == 1) post(0, 6, 8);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Large messages: each waits for its receiver.
static void ring(void) {
  post((rank + 1) % ranks, 7, 1 << 20);
  receive((rank + ranks - 1) % ranks, 7);
}

static volatile int forever = 1;
static void computes(void) {
  if (rank == 1) {
    while (forever) {
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void sleeps(void) {
  if (rank == 1) pause();
  MPI_Barrier(MPI_COMM_WORLD);
}

// The test stops rank 1 by a signal.
static void stopped(void) {
  if (rank == 0) receive(1, 3);
  if (rank == 1) {
    int flag = 0;
    while (!flag) MPI_Iprobe(0, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }
}

// Rank 0 keeps the lock; its target's rank makes progress.
static void lock(void) {
  MPI_Win window;
  int* memory;
  MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
    MPI_Win_flush(1, window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) receive(2, 4);
  if (rank == 1) MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 2) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
    MPI_Win_unlock(1, window);
    post(0, 4, 4);
  }
}

// Rank 1, whose processor has to carry them out, computes. It may still carry out some before it
// leaves the barrier.
static void atomic(void) {
  MPI_Win window;
  long* memory;
  long one = 1, before = 0;
  MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    while (forever) {
    }
  }
  for (;;) {
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 1, 0, MPI_SUM, window);
    MPI_Win_flush(1, window);
  }
}

// Rank 1 sends without end to rank 0, which waits for rank 2.
static void flood(void) {
  if (rank == 0) receive(2, 99);
  if (rank == 1) {
    for (;;) post(0, 1, 1024);
  }
  if (rank == 2) receive(1, 98);
}

static void collectives(void) {
  double in = 1, out = 0;
  if (rank == 0) {
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Nobody sends.
static void any_source(void) {
  receive(MPI_ANY_SOURCE, 2);
}

// Never ends, but nobody waits for long.
static void busy(void) {
  for (;;) {
    MPI_Sendrecv_replace(buffer, 8, MPI_CHAR, 1 - rank, 1, 1 - rank, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
  }
}

static void synchronous(void) {
  if (rank == 0) MPI_Ssend(buffer, 4, MPI_CHAR, 1, 8, MPI_COMM_WORLD);
  if (rank == 1) receive(0, 9);
}

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*run)(void);
  } ways[] = {{"any_source", any_source},
              {"atomic", atomic},
              {"busy", busy},
              {"collectives", collectives},
              {"computes", computes},
              {"cycle", cycle},
              {"flood", flood},
              {"lock", lock},
              {"ring", ring},
              {"sleeps", sleeps},
              {"stopped", stopped},
              {"synchronous", synchronous},
              {"wrong_tag", wrong_tag}};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d is process %d\n", rank, (int)getpid());
  fflush(stdout);
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
    if (argc > 1 && strcmp(argv[1], ways[i].name) == 0) ways[i].run();
  }
  MPI_Finalize();
  return 0;
}
