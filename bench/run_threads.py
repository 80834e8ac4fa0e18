#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/threads.md: rates of MPI_THREAD_MULTIPLE, one thread against several.

    .venv/bin/python bench/run_threads.py BUILD_DIR [--rounds 9] [--messages 400000] [--output docs/threads.md]

Runs tests/mpi/threads.c on PyPI's MPICH, 2 processes, messages of 8 bytes in windows of 64. In every round each
contender (see contenders.py) runs once with each number of threads, in an order that changes from round to round.
Nothing else should run meanwhile. Needs the target domain_lock.
"""

import argparse
import datetime
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import commit
import contenders
from run_micro_page import machine

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ["shm", "tcp", "ucx_shm", "native"]
THREADS = [1, 2, 4]
STUCK = 60  # seconds


def rate(args, program, peer, threads):
    """Messages a second."""
    env = contenders.environment(args.build, peer, f"threads-{os.getpid()}")
    command = contenders.command(args.build, peer, "timeout", str(STUCK), args.python.parent / "mpiexec", "-launcher",
                                 "fork", "-n", "2", program, "--threads", str(threads), "--messages",
                                 str(args.messages // threads), "--size", "8")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found = re.search(r"all right; (\d+) messages/s", done.stdout)
    if done.returncode != 0 or found is None:
        sys.exit(f"{peer}, {threads} threads: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return int(found[1])


def measure(args, program):
    """Of each round: {contender: {threads: rate}}."""
    everyone = ["turnout", *PEERS]
    rounds = []
    for number in range(args.rounds):
        rates = {p: {} for p in everyone}
        for peer in contenders.in_turn(everyone, number):
            for threads in THREADS:
                rates[peer][threads] = rate(args, program, peer, threads)
        rounds.append(rates)
        print(f"round {number + 1} of {args.rounds}", flush=True)
    return rounds


def table(rounds):
    rows = []
    for peer in rounds[0]:
        rates = [f"{statistics.median(r[peer][t] for r in rounds) / 1e6:.2f}" for t in THREADS]
        ratios = [f"{statistics.median(r[peer][t] / r[peer][1] for r in rounds):.2f}" for t in THREADS[1:]]
        rows.append(f"| {contenders.name(peer)} | " + " | ".join(rates + ratios) + " |")
    head = [f"{t} thread{'s' if t > 1 else ''} (M/s)" for t in THREADS] + [f"{t} / 1" for t in THREADS[1:]]
    return "\n".join(["| | " + " | ".join(head) + " |", "|---|" + "---:|" * len(head), *rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--messages", type=int, default=400000, help="of each process, all threads together")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/threads.md")
    args = parser.parse_args()
    lock = subprocess.run([args.build / "bin" / "domain_lock"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "threads"
        subprocess.run([args.python.parent / "mpicc", "-O2", "-o", program, ROOT / "tests/mpi/threads.c",
                        "-lpthread"], check=True)
        rounds = measure(args, program)
    args.output.write_text(f"""# Threads
Measured at commit `{commit.commit()}`, {datetime.date.today().isoformat()}, {machine()}.

Two processes on PyPI's MPICH with `MPI_THREAD_MULTIPLE`; each thread of one sends to a thread of the other: windows of
64 messages of 8 bytes, in turns, {args.messages} of each process in all. Medians of {args.rounds} rounds, in millions of
messages a second of both processes together, and of the rounds' ratios to one thread:

{table(rounds)}

One thread of each process keeps both cores busy: further threads can only take turns with it, and a waiting thread
yields to one that has something to do.

All objects of a domain share one lock. Where no other thread wants it, it takes {lock.stdout.strip()} ns of a call
(`bench/domain_lock.cpp`), so it was not divided.

`.venv/bin/python bench/run_threads.py build/release` writes this page (targets `turnout_fi` and `domain_lock`).
""", encoding="utf-8")


if __name__ == "__main__":
    main()
