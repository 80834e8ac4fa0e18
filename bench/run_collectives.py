#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations and pairs of ranks, with more ranks than cores too: Turnout against its peers.

    bench/run_collectives.py BUILD_DIR [--ranks 4 --ranks 8] [--rounds 3] [--peer shm ...]

Runs bench/mpi/collectives.c on PyPI's MPICH, with its launcher as it is. In every round each contender (see
contenders.py) runs once, in an order that changes from round to round.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import contenders

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ["shm", "ucx_shm", "native"]


def run(args, program, peer, ranks, number):
    env = contenders.environment(args.build, peer, f"collectives-{os.getpid()}-{number}")
    command = contenders.command(args.build, peer, args.python.parent / "mpiexec", "-launcher", "fork", "-n", str(ranks),
                                 program, "--milliseconds", str(args.milliseconds), "--repeats", "3")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        sys.exit(f"{peer}, {ranks} ranks: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(next(l for l in done.stdout.splitlines() if l.startswith("{")))["ns"]


def measure(args, peers, ranks):
    """A table for each number of ranks."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        program = pathlib.Path(folder) / "collectives"
        subprocess.run([args.python.parent / "mpicc", "-O2", "-o", program,
                        ROOT / "bench" / "mpi" / "collectives.c"], check=True)
        number = 0
        for count in ranks:
            rounds = []
            for r in range(args.rounds):
                rounds.append({})
                for peer in contenders.in_turn(["turnout", *peers], r):
                    number += 1
                    rounds[-1][peer] = run(args, program, peer, count, number)
            yield (f"{count} ranks on {len(os.sched_getaffinity(0))} cores:\n\n"
                   f"{contenders.table(rounds, head='operation', mean=True)}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", choices=[p for p in contenders.MPI if p != "turnout"])
    parser.add_argument("--milliseconds", type=int, default=40, help="at least, for one repeat")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python")
    args = parser.parse_args()
    for text in measure(args, args.peer or PEERS, args.ranks or [2, 4, 8]):
        print(text, flush=True)


if __name__ == "__main__":
    main()
