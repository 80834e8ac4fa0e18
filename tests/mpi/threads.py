#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""threads.c on PyPI's MPICH, and on the system's Open MPI, over Turnout's virtual adapter: MPI_THREAD_MULTIPLE.

    threads.py BUILD_DIR [--messages 3000]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import tempfile

from mpi_libraries import MPIS, environment
from mpi_stress import HERE, VENV

CASES = {
    "": {},
    ", over UD at first": {"TURNOUT_DEFAULT_TRANSPORT": "ud"},
    ", switching": {"TURNOUT_TUNING": "test_switch_every=50"},
    ", with a progress thread": {"TURNOUT_PROGRESS_THREAD": "20us"},
}


def libraries(build):
    """Name, compiler, the words before the program, and whether it sends with MPI_Send."""
    yield "MPICH", VENV / "mpicc", [VENV / "mpiexec", "-launcher", "fork", "-n", "2"], "0"
    # Open MPI 4.1 returns the request of MPI_Isend to its free list twice, over every provider, if one thread waits for
    # it while another one completes it (docs/troubleshooting.md).
    if shutil.which("mpirun.openmpi") and shutil.which("mpicc.openmpi"):
        yield "Open MPI", "mpicc.openmpi", [build / "bin" / "turnout", "run", "--", "mpirun.openmpi", "-n", "2",
                                            "--oversubscribe", "--allow-run-as-root", "--mca", "mtl", "ofi"], "1"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--messages", default="3000")
    args = parser.parse_args()
    build = args.build.resolve()
    with tempfile.TemporaryDirectory(prefix="turnout-threads-") as folder:
        program = pathlib.Path(folder) / "threads"
        for name, compiler, words, blocking in libraries(build):
            subprocess.run([compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-o", program,
                            HERE / "threads.c", "-lpthread"], check=True)
            for case, settings in CASES.items():
                for communicators in ("0", "1"):
                    env = environment(MPIS["mpich"], "turnout", build / "lib", f"threads-{os.getpid()}") | settings
                    done = subprocess.run([*words, program, "--threads", "4", "--messages", args.messages,
                                           "--communicators", communicators, "--blocking", blocking], env=env,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                                          check=False)
                    what = f"{name}{case}, {'own communicators' if communicators == '1' else 'tags'}"
                    if done.returncode != 0 or f"4 threads, {args.messages} messages each, all right" not in done.stdout:
                        raise SystemExit(f"{what}: ended with {done.returncode}\n{done.stdout}")
                    print(f"{what}: all right", flush=True)


if __name__ == "__main__":
    main()
