#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""osc_rdma.c on PyPI's Open MPI 5 over Turnout's virtual adapter: its osc/rdma reads, writes and swaps
remote memory through an endpoint of btl/ofi, in the domain where mtl/ofi has its own for messages.

    osc_rdma.py BUILD_DIR [--ranks 4] [--lib FOLDER]

--lib: another folder with libturnout-fi.so.
"""

import argparse
import os
import pathlib
import subprocess
import tempfile

from mpi_libraries import AS_ROOT, MPIS
from mpi_stress import HERE, read_reports

OPEN_MPI_5 = MPIS["open_mpi_5"]
OPENMPI = OPEN_MPI_5.folder
CASES = {
    "": {},
    " over UD at first": {"TURNOUT_DEFAULT_TRANSPORT": "ud"},
    " without DC": {"TURNOUT_ADAPTER": "rxe"},
    " switching": {"TURNOUT_TUNING": "test_switch_every=20"},
}


def run(program, args, name, folder):
    lib = (args.lib or args.build / "lib").resolve()
    env = dict(os.environ)
    env.update(CASES[name], FI_PROVIDER_PATH=str(lib), TURNOUT_DEVICE="virtual",
               TURNOUT_VERBS_PATH=str(lib / "turnout"), TURNOUT_REPORT=str(folder / "reports"),
               TURNOUT_FABRIC=f"osc-rdma-{os.getpid()}-{folder.name}", **AS_ROOT)
    parameters = {"osc": "rdma", "btl": "ofi,self", "mtl_ofi_provider_include": "turnout",
                  "btl_ofi_provider_include": "turnout"}
    command = OPEN_MPI_5.command(args.ranks)
    for parameter, value in parameters.items():
        command += ["--mca", parameter, value]
    done = subprocess.run([str(word) for word in command + [program]], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    if done.returncode != 0 or f"{args.ranks} ranks: all verified" not in done.stdout:
        raise SystemExit(f"{args.ranks} ranks{name}: ended with {done.returncode}\n{done.stdout}")
    # Of every process one of each endpoint; one of them has read and written.
    reports = read_reports(folder / "reports")
    if [report["rank"] for report in reports] != [i // 2 for i in range(2 * args.ranks)]:
        raise SystemExit(f"{len(reports)} reports of {args.ranks} processes with two endpoints")
    if any(report["peak"] > report["budget"] for report in reports):
        raise SystemExit(f"{args.ranks} ranks{name}: over its budget")
    for first, second in zip(reports[::2], reports[1::2]):
        sent = max((sum(part["messages"] for part in report["profile"]["sent"]["write"]),
                    sum(part["messages"] for part in report["profile"]["sent"]["read"]))
                   for report in (first, second))
        if not all(sent):
            raise SystemExit(f"rank {first['rank']} wrote and read {sent} times over Turnout")
        print(f"{args.ranks} ranks{name}: rank {first['rank']} wrote and read {sent} times", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--lib", type=pathlib.Path)
    args = parser.parse_args()
    if not (OPENMPI / "bin" / "mpirun").exists():
        raise SystemExit(f"{OPENMPI} has no Open MPI: run make deps-all")
    with tempfile.TemporaryDirectory(prefix="turnout-osc-rdma-") as name:
        top = pathlib.Path(name)
        program = top / "osc_rdma"
        subprocess.run([OPENMPI / "bin" / "mpicc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion",
                        "-Werror", "-o", program, HERE / "osc_rdma.c"], check=True)
        for number, case in enumerate(CASES):
            folder = top / str(number)
            folder.mkdir()
            run(program, args, case, folder)


if __name__ == "__main__":
    main()
