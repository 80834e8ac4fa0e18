// SPDX-License-Identifier: BSD-3-Clause
/* Shows a fault of MPICH 5.0.2 that has nothing to do with the provider: MPI_Probe(MPI_ANY_SOURCE)
 * and the MPI_Recv(MPI_ANY_SOURCE) after it may see different messages when one of them comes from
 * the rank itself. MPICH keeps messages to oneself outside the network module; its probe asks the
 * network module first, its receive asks its own queue first. MPI_Dist_graph_create relies on the
 * two being one message (mpi4py's test_comm_topo.*.testDistgraphcomm).
 *
 *   mpicc mpich_probe_self.c && MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 FI_PROVIDER=tcp
 * mpiexec -n 2 ./a.out
 *
 * Prints how often they differed; 0 is what MPI asks for. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank = 0, ranks = 0, differed = 0, all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int round = 0; round < 20; ++round) {
    MPI_Request request[64];
    for (int i = 0; i < ranks; ++i) {
      MPI_Isend(&rank, 1, MPI_INT, i, 7, MPI_COMM_WORLD, &request[i]);
    }
    usleep(20000); /* the remote message arrives */
    for (int i = 0; i < ranks; ++i) {
      MPI_Status probed, received;
      int value = 0;
      MPI_Probe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &probed);
      MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &received);
      differed += probed.MPI_SOURCE != received.MPI_SOURCE;
    }
    MPI_Waitall(ranks, request, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Reduce(&differed, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("probe and receive differed %d times\n", all);
  MPI_Finalize();
  return 0;
}
