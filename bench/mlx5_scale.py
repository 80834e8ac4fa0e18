#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs and memory of queues that a rank has made on the emulated mlx5 at the end of a job in which every rank
has written to every other: UCX over rc_mlx5 and dc_mlx5, and Turnout.

    bench/mlx5_scale.py BUILD_DIR [--ranks 64] [--markdown]
    bench/mlx5_scale.py BUILD_DIR --check docs/mlx5.md     exit 1 if a figure is another than that page's

The figures are what the device counted (log level info); time is not measured. MPICH is the virtual environment's
(tools/deps.sh), and the system's libmlx5 drives the device.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "mpi"))
from mpi_libraries import MPIS, environment, verbs_command  # noqa: E402  (of the tests)

PROGRAM = ("from mpi4py import MPI; c = MPI.COMM_WORLD; n = c.size\n"
           "assert c.alltoall(list(range(n))) == [c.rank] * n\n"
           "q = [c.isend(c.rank, p, 7) for p in range(n) if p != c.rank]\n"
           "assert sorted(c.recv(tag=7) for _ in q) == [p for p in range(n) if p != c.rank]\n"
           "MPI.Request.waitall(q)")
NAMES = {"ucx_rc_mlx5": "UCX, rc_mlx5", "ucx_dc_mlx5": "UCX, dc_mlx5", "turnout_mlx5": "Turnout"}
CLOSED = re.compile(r"mlx5 context closed: (\d+) queue pairs, .* made, (\d+) bytes")


def measure(build, provider, ranks):
    """(queue pairs of a rank, bytes of entries of a rank), medians; contexts without a queue pair are not counted."""
    mpi = MPIS["mpich"]
    env = environment(mpi, provider, build / "lib", f"scale-{os.getpid()}")
    # Nobody is to come to memory of another process than by the device.
    env.update(TURNOUT_LOG="info", MPIR_CVAR_NOLOCAL="1")
    python = str(mpi.folder / "bin" / "python")
    command = [*verbs_command(build, provider), *mpi.command(ranks), python, "-c", PROGRAM]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{provider} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = [tuple(map(int, match.groups())) for match in CLOSED.finditer(done.stdout + done.stderr)]
    found = [(pairs, size) for pairs, size in found if pairs > 0]
    if len(found) < ranks:
        raise SystemExit(f"{provider}: {len(found)} reports of {ranks} ranks")
    # A rank may open the device several times; the largest of the contexts are those of the traffic.
    largest = sorted(found)[-ranks:]
    return tuple(statistics.median(column) for column in zip(*largest))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--check", type=pathlib.Path)
    args = parser.parse_args()
    page = args.check.read_text() if args.check else ""
    wrong = 0
    print(f"| {args.ranks} ranks, each | queue pairs | MiB of queue entries |\n|---|---:|---:|" if args.markdown
          else f"{args.ranks} ranks     queue pairs   MiB of entries")
    for provider, name in NAMES.items():
        pairs, size = measure(args.build.resolve(), provider, args.ranks)
        print(f"| {name} | {pairs:.0f} | {size / 2**20:.1f} |" if args.markdown
              else f"{name:14} {pairs:8.0f} {size / 2**20:14.1f}", flush=True)
        if args.check and f"| {name} | {pairs:.0f} | {size / 2**20:.1f} |" not in page:
            print(f"{args.check} says otherwise", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
