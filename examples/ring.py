# SPDX-License-Identifier: BSD-3-Clause
"""Heat on a ring of rods, one rod per rank: neighbours exchange a cell per step, checked in the end.

    MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=turnout mpiexec -n 2 python examples/ring.py [SECONDS]
"""
import sys
import time
from array import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
left, right = (rank - 1) % size, (rank + 1) % size
cells = 64
rod = array("d", [1.0 if rank == 0 and i < cells // 2 else 0.0 for i in range(cells)])
from_left, from_right = array("d", [0.0]), array("d", [0.0])
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0  # some decisions of Turnout's selection

begin, steps = time.monotonic(), 0
while comm.bcast(time.monotonic() - begin < seconds):
    for _ in range(200):  # every step: one cell to each neighbour, then the rod alone
        comm.Sendrecv(rod[-1:], right, 1, from_left, left, 1)
        comm.Sendrecv(rod[:1], left, 2, from_right, right, 2)
        wide = from_left + rod + from_right
        rod = array("d", [w + 0.25 * (wide[i] - 2 * w + wide[i + 2])
                          for i, w in enumerate(wide[1:-1])])
        steps += 1

heat = comm.allreduce(sum(rod))
blocks = comm.gather(bytes(1 << 20) if rank else b"", root=0)  # large messages: rendezvous
if rank == 0:
    assert abs(heat - cells // 2) < 1e-6 * cells, f"heat got lost or was made: {heat}"
    assert all(len(b) == 1 << 20 for b in blocks[1:])
    took = time.monotonic() - begin
    print(f"{steps} steps on {size} ranks, {took / steps * 1e6:.1f} us a step; heat {heat:.6f}: ok")
