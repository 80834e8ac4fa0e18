// SPDX-License-Identifier: BSD-3-Clause
// A program to be recorded for tools/plan_page.py: heat on a square of points, cut among a grid of
// ranks, 40 steps of some sweeps each; every tenth step all ranks agree on the largest change.
//
//   heat [POINTS [SWEEPS]]    POINTS along an edge, 2048, and SWEEPS a step, 64: some 9 ms of
//                             computation a step with 128 ranks
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPoints = 2048, kMostPoints = 32768, kSweeps = 64, kSteps = 40, kEvery = 10 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks, dims[2] = {0, 0}, periods[2] = {0, 0}, up, down, left, right;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Dims_create(ranks, 2, dims);
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  MPI_Cart_shift(grid, 0, 1, &up, &down);
  MPI_Cart_shift(grid, 1, 1, &left, &right);
  const int points = argc > 1 ? atoi(argv[1]) : kPoints;
  const int sweeps = argc > 2 ? atoi(argv[2]) : kSweeps;
  if (points < ranks || points > kMostPoints || sweeps < 1) MPI_Abort(MPI_COMM_WORLD, 2);
  const int rows = points / dims[0], columns = points / dims[1], wide = columns + 2;
  const size_t all = (size_t)(rows + 2) * (size_t)wide;
  double* now = malloc(all * sizeof(double));
  if (now == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  // Each point takes as long as any other: there are no branches, and no denormal numbers, which
  // would be left of the heat far from the edge if the rest were zero.
  for (size_t i = 0; i < all; ++i) now[i] = 20;
  if (up == MPI_PROC_NULL) {
    for (int j = 0; j < wide; ++j) now[j] = 100;
  }
  MPI_Datatype column;
  MPI_Type_vector(rows, 1, wide, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  double largest = 0;
  for (int step = 0; step < kSteps; ++step) {
    MPI_Sendrecv(&now[wide + 1], columns, MPI_DOUBLE, up, 1, &now[(rows + 1) * wide + 1], columns,
                 MPI_DOUBLE, down, 1, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[rows * wide + 1], columns, MPI_DOUBLE, down, 2, &now[1], columns, MPI_DOUBLE,
                 up, 2, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[wide + 1], 1, column, left, 3, &now[wide + columns + 1], 1, column, right, 3,
                 grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[wide + columns], 1, column, right, 4, &now[wide], 1, column, left, 4, grid,
                 MPI_STATUS_IGNORE);
    double change = 0;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      change = 0;
      for (int i = 1; i <= rows; ++i) {
        for (int j = 1; j <= columns; ++j) {
          const int at = i * wide + j;
          const double mean = 0.25 * (now[at - 1] + now[at + 1] + now[at - wide] + now[at + wide]);
          const double by = fabs(mean - now[at]);
          change = by > change ? by : change;
          now[at] = mean;
        }
      }
    }
    if (step % kEvery == kEvery - 1) {
      MPI_Allreduce(&change, &largest, 1, MPI_DOUBLE, MPI_MAX, grid);
    }
  }
  int rank;
  MPI_Comm_rank(grid, &rank);
  if (rank == 0) printf("largest change %.6f\n", largest);
  MPI_Type_free(&column);
  free(now);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return 0;
}
