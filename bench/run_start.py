#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How long a job takes that does nothing but start and end, and the memory of its ranks.

    bench/run_start.py BUILD_DIR [--ranks 2 --ranks 8] [--rounds 20] [--peer shm ...] [--late MS]

Runs bench/mpi/start.c on PyPI's MPICH, the whole command. In every round each contender (see contenders.py) runs once,
in an order that changes from round to round. A run that takes longer than 20 s is stuck: a round with one is left out,
and counted.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import contenders

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ["shm", "tcp", "ucx_shm", "native"]
STUCK = 20  # seconds


def run(args, program, peer, ranks):
    """Nanoseconds, and KiB of a rank; None: it was stuck."""
    env = contenders.environment(args.build, peer, f"start-{os.getpid()}")
    # Python's own time limit looks at the process now and then only.
    command = contenders.command(args.build, peer, "timeout", str(STUCK), args.python.parent / "mpiexec", "-launcher",
                                 "fork", "-n", str(ranks), program, str(args.late))
    begin = time.monotonic_ns()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    took = time.monotonic_ns() - begin
    if done.returncode == 124:
        subprocess.run(["pkill", "-KILL", "-f", str(program)])
        return None
    if done.returncode != 0:
        sys.exit(f"{peer}, {ranks} ranks: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return took, json.loads(next(l for l in done.stdout.splitlines() if l.startswith("{")))["pss_kib"]


def measure(args, peers, ranks):
    """A table of times, and one of memory."""
    everyone = ["turnout", *peers]
    took = [{p: {} for p in everyone} for _ in range(args.rounds)]
    memory = {p: {} for p in everyone}
    stuck = 0
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "start"
        subprocess.run([args.python.parent / "mpicc", "-O2", "-Wall", "-o", program,
                        ROOT / "bench/mpi/start.c"], check=True)
        for count in ranks:
            for number, times in enumerate(took):
                for peer in contenders.in_turn(everyone, number):
                    found = run(args, program, peer, count)
                    if found is None and peer == "turnout":
                        sys.exit(f"turnout, {count} ranks: no end after {STUCK} s")
                    if found is None:
                        stuck += 1
                        continue
                    times[peer][count] = found[0]
                    memory[peer].setdefault(count, []).append(found[1])
    whole = [t for t in took if all(len(t[p]) == len(ranks) for p in everyone)]
    if not whole:
        sys.exit("in each round a run was stuck")
    rows = [f"| {count} | " + " | ".join(f"{statistics.median(memory[p][count]) / 1024:.1f}" for p in everyone) + " |"
            for count in ranks]
    return (f"{contenders.table(whole, peers, unit=('ms', 1e6), head='ranks')}\n",
            "\n".join(["| ranks | " + " | ".join(f"{contenders.name(p)} (MiB)" for p in everyone) + " |",
                       "|---|" + "---:|" * len(everyone), *rows]) + "\n",
            stuck)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peer", action="append", choices=[p for p in contenders.MPI if p != "turnout"])
    parser.add_argument("--late", type=int, default=0, help="of the last rank's end, in milliseconds")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python")
    args = parser.parse_args()
    for text in measure(args, args.peer or PEERS, args.ranks or [2, 8]):
        print(text)


if __name__ == "__main__":
    main()
