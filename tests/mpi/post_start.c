// SPDX-License-Identifier: BSD-3-Clause
/* post_start: MPI_Win_post, start, complete and wait, with and without a barrier between epochs.
 *
 *   mpiexec -n 4 post_start [ROUNDS] [--overlap]
 *
 * Two patterns: all ranks put into the window of one, which is another one each round, with a
 * barrier between rounds; and each rank puts into the windows of both neighbours, without. What
 * came is compared. Prints "all right".
 *
 * --overlap leaves out the barriers of the first pattern. MPICH 5.0.2 then never ends with three
 * ranks or more, over whatever provider and over its own shared memory: MPI_Win_start waits until
 * it has as many MPI_Win_post as its group has ranks, but counts those of other epochs' targets
 * too, and waits for ever when there are more. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, *window;
static MPI_Win win;
static MPI_Group all;

static void expect(int from, int place, int value) {
  if (window[place] == value) return;
  fprintf(stderr, "rank %d: %d from rank %d, expected %d\n", rank, window[place], from, value);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* All others put into the window of `target`. */
static void to_one(int target, int round) {
  MPI_Group group;
  if (rank == target) {
    MPI_Group_excl(all, 1, &target, &group);
    MPI_Win_post(group, 0, win);
    MPI_Win_wait(win);
    for (int r = 0; r < ranks; ++r)
      if (r != rank) expect(r, r, r + round);
  } else {
    const int value = rank + round;
    MPI_Group_incl(all, 1, &target, &group);
    MPI_Win_start(group, 0, win);
    MPI_Put(&value, 1, MPI_INT, target, rank, 1, MPI_INT, win);
    MPI_Win_complete(win);
  }
  MPI_Group_free(&group);
}

static void to_neighbours(int round) {
  const int next[] = {(rank + 1) % ranks, (rank + ranks - 1) % ranks};
  const int count = next[0] == next[1] ? 1 : 2;
  const int value = rank + round;
  MPI_Group group;
  MPI_Group_incl(all, count, next, &group);
  MPI_Win_post(group, 0, win);
  MPI_Win_start(group, 0, win);
  for (int i = 0; i < count; ++i)
    MPI_Put(&value, 1, MPI_INT, next[i], ranks + rank, 1, MPI_INT, win);
  MPI_Win_complete(win);
  MPI_Win_wait(win);
  for (int i = 0; i < count; ++i) expect(next[i], ranks + next[i], next[i] + round);
  MPI_Group_free(&group);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int overlap = argc > 1 && strcmp(argv[argc - 1], "--overlap") == 0;
  const int rounds = argc > 1 + overlap ? atoi(argv[1]) : 1000;
  MPI_Win_allocate((MPI_Aint)sizeof(int) * 2 * ranks, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &window, &win);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  for (int round = 0; round < rounds; ++round) {
    if (!overlap) MPI_Barrier(MPI_COMM_WORLD);
    to_one(round % ranks, round);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < rounds; ++round) to_neighbours(round);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, %d rounds: all right\n", ranks, rounds);
  MPI_Group_free(&all);
  MPI_Win_free(&win);
  MPI_Finalize();
  return 0;
}
