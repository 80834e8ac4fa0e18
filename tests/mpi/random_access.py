#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whose are the errors that HPCC's MPI RandomAccess finds? Over Turnout, and over libfabric's tcp.

    random_access.py BUILD_DIR [--rounds 20] [--ranks 16] [--order 200] [--provider turnout ...]

HPCC drops updates that MPI has delivered (hpcc_lost_updates.c tells how), and tolerates that 1 % of its
table is wrong. In every round each provider runs once; what HPCC finds wrong must not be more than what
it has dropped itself.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

from hpcc_replay import ROOT, hpcc_command, hpcc_environment, hpcc_input


def run(args, provider, shim):
    """(errors, updates dropped, whether HPCC tolerates the errors) of one run, of both its generators."""
    with tempfile.TemporaryDirectory(prefix="random-access-") as name:
        folder = pathlib.Path(name)
        (folder / "hpccinf.txt").write_text(hpcc_input(args.order, args.ranks), encoding="utf-8")
        done = subprocess.run(hpcc_command(args.ranks, provider, ["-x", f"LD_PRELOAD={shim}"]),
                              cwd=folder, env=hpcc_environment(args.build), timeout=900, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        summary = folder / "hpccoutf.txt"
        text = summary.read_text(encoding="utf-8", errors="replace") if summary.exists() else ""
    dropped = re.search(r"updates that were delivered and dropped: (\d+)", done.stdout)
    if done.returncode != 0 or "End of HPC Challenge tests" not in text or dropped is None:
        sys.exit(f"{provider}: exit code {done.returncode}\n{done.stdout}")
    found = re.findall(r"Found (\d+) errors in \d+ locations \((passed|failed)\)", text)
    errors = [int(number) for number, _ in found]
    tolerated = all(judgement == "passed" for _, judgement in found)
    if len(errors) != 4:  # of MPI and of a single process, with either generator
        sys.exit(f"{provider}: {len(errors)} of 4 parts of RandomAccess have ended\n{text}")
    if tolerated and "Success=1" not in text:
        sys.exit(f"{provider}: another part of HPCC failed\n{text}")
    return sum(errors), int(dropped.group(1)), tolerated


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--order", type=int, default=200)
    parser.add_argument("--provider", action="append")
    args = parser.parse_args()
    args.build = args.build.resolve()
    unexplained = 0
    with tempfile.TemporaryDirectory() as folder:
        shim = pathlib.Path(folder) / "lost_updates.so"
        subprocess.run(["mpicc.openmpi", "-shared", "-fPIC", "-O2", "-Wall", "-o", shim,
                        ROOT / "tests/mpi/hpcc_lost_updates.c"], check=True)
        for number in range(1, args.rounds + 1):
            for provider in args.provider or ["turnout", "tcp"]:
                errors, dropped, tolerated = run(args, provider, shim)
                print(f"round {number:2}  {provider:<8} {errors:5} errors  {dropped:5} updates "
                      f"dropped by HPCC{'' if tolerated else '; over its tolerance'}", flush=True)
                unexplained += errors > dropped
    if unexplained:
        sys.exit(f"{unexplained} runs have errors that HPCC has not made itself")


if __name__ == "__main__":
    main()
