#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collective operations and pairs of ranks, with more ranks than cores too: Turnout against its peers.

    bench/run_collectives.py BUILD_DIR [--ranks 4 --ranks 8] [--rounds 3] [--peer shm ...]

Runs bench/mpi/collectives.c on PyPI's MPICH, with its launcher as it is. In every round each contender
runs once, in an order that changes from round to round. The table has the medians of the rounds'
ratios Turnout / peer, the geometric mean over the operations, and Turnout's own median time.
`ucx` is UCX's shared memory (posix and cma), `native` MPICH's own.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from run import environment

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = {
    "turnout": {"FI_PROVIDER": "turnout"},
    "shm": {"FI_PROVIDER": "shm"},
    "tcp": {"FI_PROVIDER": "tcp"},
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "self,posix,cma"},
    "native": {"MPIR_CVAR_NOLOCAL": "0"},
}


def run(args, program, peer, ranks, number):
    env = environment(peer, args.build, f"collectives-{os.getpid()}-{number}")
    env.update(MPIR_CVAR_CH4_NETMOD="ofi", MPIR_CVAR_NOLOCAL="1")
    env.update(PEERS[peer])
    command = [args.python.parent / "mpiexec", "-launcher", "fork", "-n", str(ranks), program,
               "--milliseconds", str(args.milliseconds), "--repeats", "3"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        sys.exit(f"{peer}, {ranks} ranks: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(next(l for l in done.stdout.splitlines() if l.startswith("{")))["ns"]


def table(results, peers):
    """results: of each round, by contender and operation, nanoseconds."""
    lines = ["| operation | Turnout (us) | " + " | ".join(f"/ {p}" for p in peers) + " |",
             "|---|" + "---:|" * (len(peers) + 1)]
    logs = {p: [] for p in peers}
    for operation in results[0]["turnout"]:
        own = statistics.median(r["turnout"][operation] for r in results)
        row = [operation, f"{own / 1000:.2f}"]
        for p in peers:
            ratio = statistics.median(r["turnout"][operation] / r[p][operation] for r in results)
            logs[p].append(math.log(ratio))
            row.append(f"{ratio:.2f}")
        lines.append("| " + " | ".join(row) + " |")
    means = [f"{math.exp(statistics.fmean(logs[p])):.2f}" for p in peers]
    lines.append("| geometric mean | | " + " | ".join(means) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", choices=[p for p in PEERS if p != "turnout"])
    parser.add_argument("--milliseconds", type=int, default=40, help="at least, for one repeat")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python")
    args = parser.parse_args()
    peers = args.peer or ["shm", "ucx", "native"]
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        program = pathlib.Path(folder) / "collectives"
        subprocess.run([args.python.parent / "mpicc", "-O2", "-o", program,
                        ROOT / "bench" / "mpi" / "collectives.c"], check=True)
        number = 0
        for ranks in args.ranks or [2, 4, 8]:
            results = []
            for r in range(args.rounds):
                order = ["turnout", *peers]
                order = order[r % len(order):] + order[:r % len(order)]
                results.append({})
                for peer in order:
                    number += 1
                    results[-1][peer] = run(args, program, peer, ranks, number)
            print(f"\n{ranks} ranks on {len(os.sched_getaffinity(0))} cores\n\n"
                  f"{table(results, peers)}", flush=True)


if __name__ == "__main__":
    main()
