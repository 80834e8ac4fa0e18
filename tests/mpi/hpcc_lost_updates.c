// SPDX-License-Identifier: BSD-3-Clause
// Before MPI, in HPCC (LD_PRELOAD): how many updates its MPI RandomAccess loses by itself.
//
// Each rank has several receives from anybody under way and takes what MPI_Testany gives, the
// lowest index first, which is not the order in which they were matched. So it may take the last
// rank's message "finished" before an update that came earlier into a receive with a higher index.
// Then it stops and cancels its receives, and that update, which MPI has delivered, is dropped: the
// word of the table that it was for is wrong. Here the words of such messages are counted;
// MPI_Finalize adds them up and rank 0 prints the sum, to compare with the errors that HPCC finds.
#include <mpi.h>
#include <stdio.h>

enum { kUpdate = 2 };  // UPDATE_TAG of HPCC 1.5

static MPI_Request cancelled = MPI_REQUEST_NULL;
static long lost;

int MPI_Cancel(MPI_Request* request) {
  cancelled = *request;
  return PMPI_Cancel(request);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  const int looked_at = cancelled != MPI_REQUEST_NULL && *request == cancelled;
  MPI_Status own;
  if (status == MPI_STATUS_IGNORE) status = &own;
  const int result = PMPI_Wait(request, status);
  if (looked_at && result == MPI_SUCCESS) {
    int gone = 0, words = 0;
    cancelled = MPI_REQUEST_NULL;
    PMPI_Test_cancelled(status, &gone);
    PMPI_Get_count(status, MPI_INT64_T, &words);
    if (!gone && status->MPI_TAG == kUpdate && words > 0) lost += words;
  }
  return result;
}

int MPI_Finalize(void) {
  long all = 0;
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Reduce(&lost, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("updates that were delivered and dropped: %ld\n", all);
  return PMPI_Finalize();
}
