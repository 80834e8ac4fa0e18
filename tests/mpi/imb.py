#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Intel MPI's own benchmarks (IMB), all programs and all benchmarks in them, over Turnout's virtual adapter: each
has to end, every process has to use Turnout, within its budget. Nothing about times.

    imb.py BUILD_DIR [--ranks 2 --ranks 4]
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

from mpi_libraries import MPIS, environment
from mpi_stress import read_reports

SHORT = ["-iter", "20", "-msglog", "0:20"]
PROGRAMS = {
    "IMB-MPI1": SHORT,
    "IMB-NBC": SHORT,
    "IMB-RMA": SHORT,
    "IMB-P2P": ["-iter", "20,20"],
    "IMB-MT": ["-repeat", "20", "-check", "true", "-thread_level", "multiple", "-count", "1,1024,65536,262144"],
}
LIMIT = 240  # seconds


def benchmarks(path, env):
    """All that the program has, also what it leaves out when nobody asks."""
    text = subprocess.run([path, "-list"], env=env, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True).stdout
    return re.findall(r"^(?:    |# )(\w+)(?: \(non-default\))? *$", text, re.MULTILINE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, action="append")
    args = parser.parse_args()
    mpi = MPIS["intel_mpi"]
    for ranks in args.ranks or [2, 4]:
        for program, options in PROGRAMS.items():
            with tempfile.TemporaryDirectory(prefix="turnout-imb-") as folder:
                env = environment(mpi, "turnout", (args.build / "lib").resolve(), f"imb-{os.getpid()}")
                env.update(TURNOUT_DEVICE="virtual", OMP_NUM_THREADS="2")
                path = mpi.folder / "bin" / program
                names = benchmarks(path, env)
                env.update(TURNOUT_REPORT=folder)
                done = subprocess.run([*mpi.command(ranks), str(path), *options, *names], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
                begun = re.findall(r"^# Benchmarking:? +(\w+)", done.stdout, re.MULTILINE)
                # Patterns that take more processes, by its own word.
                left_out = re.findall(r"Benchmark (\w+) is invalid for", done.stdout)
                what = f"{program}, {ranks} ranks"
                if done.returncode != 0 or not names or set(begun) | set(left_out) != set(names):
                    raise SystemExit(f"{what}: ended with {done.returncode} in {begun[-1:]}, not run "
                                     f"{set(names) - set(begun)}\n{done.stdout[-3000:]}")
                # IMB-MT's -check writes so.
                if re.search(r"(?i)\b(fail|wrong|error)", done.stdout):
                    raise SystemExit(f"{what}: {done.stdout[-4000:]}")
                reports = read_reports(pathlib.Path(folder))
                if len({report["rank"] for report in reports}) != ranks:
                    raise SystemExit(f"{what}: {len(reports)} processes used Turnout")
                if any(report["peak"] > report["budget"] for report in reports):
                    raise SystemExit(f"{what}: over its budget")
                print(f"{what}: {len(set(begun))} of its {len(names)} benchmarks", flush=True)


if __name__ == "__main__":
    main()
