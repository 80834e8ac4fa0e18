#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mpi_stress.c on PyPI's Open MPI 5 over libfabric's lnx, which links Turnout's provider as a peer, alone and with
libfabric's shm: every message is verified, and the reports must say over which of the two they went.

    lnx.py BUILD_DIR [--messages 4000] [--seed N]

MPICH takes no lnx of libfabric 2.5, whatever it links: without hints lnx says that it can do nothing.
"""

import argparse
import os
import pathlib
import random
import subprocess
import tempfile

from mpi_libraries import AS_ROOT
from mpi_stress import HERE, read_reports
from osc_rdma import OPEN_MPI_5, OPENMPI

# Links, ranks, whether ranks believe to be on two hosts, whether messages go over Turnout, and its settings.
CASES = [("turnout", 2, False, True, {}), ("turnout", 4, False, True, {}),
         ("shm+turnout", 2, False, False, {}), ("shm+turnout", 4, False, False, {}),
         ("shm+turnout", 4, True, True, {}),
         ("shm+turnout", 4, True, True, {"TURNOUT_TUNING": "test_switch_every=50"}),
         ("turnout", 4, False, True, {"TURNOUT_DEFAULT_TRANSPORT": "ud", "TURNOUT_UNEXPECTED_MEMORY": "16KiB",
                                      "TURNOUT_MEMORY_BUDGET": "5MiB"}),
         ("turnout", 4, False, True, {"TURNOUT_RENDEZVOUS": "rput", "TURNOUT_PROGRESS_THREAD": "20us"})]


def run(folder, args, links, ranks, hosts, carries, settings):
    name = ", ".join([links, f"{ranks} ranks{' of two hosts' if hosts else ''}",
                      *(f"{setting}={value}" for setting, value in settings.items())])
    lib = args.build.resolve() / "lib"
    reports = folder / name.replace(" ", "").replace(",", "-")
    env = dict(os.environ)
    env.update(settings, FI_PROVIDER="lnx", FI_LNX_PROV_LINKS=links, FI_PROVIDER_PATH=str(lib), TURNOUT_DEVICE="virtual",
               TURNOUT_VERBS_PATH=str(lib / "turnout"), TURNOUT_REPORT=str(reports),
               TURNOUT_FABRIC=f"lnx-{os.getpid()}", **AS_ROOT)
    parameters = {"mtl_ofi_av": "table", "mtl_ofi_provider_include": "lnx", "btl_ofi_provider_include": "none",
                  "osc": "^ucx"}
    command = OPEN_MPI_5.command(ranks)
    for parameter, value in parameters.items():
        command += ["--mca", parameter, value]
    if hosts:
        command += ["-x", f"LD_PRELOAD={folder / 'other_host.so'}"]
    command += [folder / "mpi_stress", "--messages", args.messages, "--seed", args.seed, "--stall", 60]
    done = subprocess.run([str(word) for word in command], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200, check=False)
    if done.returncode != 0 or "all received and verified" not in done.stdout:
        raise SystemExit(f"{name}: ended with {done.returncode}\n{done.stdout}")
    found = read_reports(reports)
    if len(found) != ranks:
        raise SystemExit(f"{name}: {len(found)} reports")
    sent = [sum(part["messages"] for part in report["profile"]["sent"]["data"]) for report in found]
    if any((count > 0) != carries for count in sent):
        raise SystemExit(f"{name}: messages over Turnout, by rank: {sent}")
    print(f"{name}: {done.stdout.splitlines()[-1]}, over Turnout {sent}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    args = parser.parse_args()
    if not (OPENMPI / "bin" / "mpirun").exists():
        raise SystemExit(f"{OPENMPI} has no Open MPI: run make deps-all")
    print(f"seed {args.seed}")
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    with tempfile.TemporaryDirectory(prefix="turnout-lnx-") as name:
        folder = pathlib.Path(name)
        subprocess.run([OPENMPI / "bin" / "mpicc", *flags, "-o", folder / "mpi_stress", HERE / "mpi_stress.c"],
                       check=True)
        subprocess.run(["cc", *flags, "-shared", "-fPIC", "-o", folder / "other_host.so", HERE / "other_host.c",
                        "-ldl"], check=True)
        for case in CASES:
            run(folder, args, *case)


if __name__ == "__main__":
    main()
