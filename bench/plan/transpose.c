// SPDX-License-Identifier: BSD-3-Clause
// A program to be recorded for tools/plan_page.py: a square matrix, cut into rows among the ranks,
// is smoothed along its rows and transposed, again and again; rank 0 hands out a factor before and
// adds up after.
//
//   transpose [ORDER [PASSES]]    ORDER 2048: messages of 2 KiB with 128 ranks, of 512 KiB with 8;
//                                 PASSES of smoothing, 64: some 7 ms with 128 ranks
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kOrder = 2048, kMostOrder = 16384, kPasses = 64, kTimes = 20 };

static void smooth(double* row, int order, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    for (int i = 1; i < order - 1; ++i) row[i] = 0.25 * (row[i - 1] + 2 * row[i] + row[i + 1]);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks, rank;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int order = argc > 1 ? atoi(argv[1]) : kOrder;
  const int passes = argc > 2 ? atoi(argv[2]) : kPasses;
  if (order < ranks || order > kMostOrder || passes < 0) MPI_Abort(MPI_COMM_WORLD, 2);
  const int rows = order / ranks, block = rows * rows;
  double* own = malloc(sizeof(double) * (size_t)rows * (size_t)order);
  double* out = malloc(sizeof(double) * (size_t)rows * (size_t)order);
  double* in = malloc(sizeof(double) * (size_t)rows * (size_t)order);
  if (own == NULL || out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < rows * order; ++i) own[i] = rank + i % 7;
  double total = 0;
  for (int time = 0; time < kTimes; ++time) {
    double factor = 1.0 / (time + 1);
    MPI_Bcast(&factor, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < rows; ++i) smooth(own + (size_t)i * (size_t)order, order, passes);
    for (int to = 0; to < ranks; ++to) {
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < rows; ++j) {
          out[to * block + j * rows + i] = factor * own[i * order + to * rows + j];
        }
      }
    }
    MPI_Alltoall(out, block, MPI_DOUBLE, in, block, MPI_DOUBLE, MPI_COMM_WORLD);
    double sum = 0;
    for (int from = 0; from < ranks; ++from) {
      for (int i = 0; i < block; ++i) {
        own[(i / rows) * order + from * rows + i % rows] = in[from * block + i];
        sum += in[from * block + i];
      }
    }
    MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  }
  if (rank == 0) printf("sum %.6g\n", total);
  free(own);
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
