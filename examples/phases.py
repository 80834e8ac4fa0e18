#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program whose communication changes: neighbours in a ring, then all send to rank 0, then pairs.

    turnout run --report=html -- mpirun -n 4 python3 examples/phases.py

Needs mpi4py. Each phase takes the seconds of the first argument (3). The page shows which pairs got a
faster channel in which phase, and lost it again.
"""
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
TOKEN, ANSWER = bytearray(256), bytearray(256)


def ring():
    comm.Sendrecv(TOKEN, (rank + 1) % size, recvbuf=ANSWER, source=(rank - 1) % size)


def all_to_one():
    if rank == 0:
        for _ in range(1, size):
            comm.Recv(ANSWER)
        for peer in range(1, size):
            comm.Send(TOKEN, peer)
    else:
        comm.Send(TOKEN, 0)
        comm.Recv(ANSWER, 0)


def pairs():
    peer = rank ^ 1
    if peer < size:
        comm.Sendrecv(TOKEN, peer, recvbuf=ANSWER, source=peer)


def run(step):
    """Rounds of a few hundred steps until rank 0's clock says that the phase is over."""
    end = time.monotonic() + SECONDS
    steps = 0
    while comm.bcast(time.monotonic() < end, 0):
        for _ in range(200):
            step()
        steps += 200
    return steps


for name, step in (("ring", ring), ("all to one", all_to_one), ("pairs", pairs)):
    steps = run(step)
    if rank == 0:
        print(f"{name}: {steps} steps", flush=True)
