#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mpi_stress.c on PyPI's MPICH over Turnout's virtual adapter: every message of every kind of service and
change, verified by the program, and what the processes' reports must say of it.

    mpi_stress.py BUILD_DIR [--messages 12000] [--seed N] [--only REGEX]
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE.parents[1] / ".venv" / "bin"
# Name -> settings, and what of the reports must not be 0. `rxe` has neither DC nor XRC.
CASES = {
    "dc": ({"TURNOUT_POLICY": "static:dc-sendrecv"}, ""),
    "chosen": ({"TURNOUT_INTERVAL": "20ms", "TURNOUT_MEMORY_BUDGET": "6MiB"}, "made"),
    "chosen without DC": ({"TURNOUT_INTERVAL": "20ms", "TURNOUT_MEMORY_BUDGET": "6MiB",
                           "TURNOUT_ADAPTER": "rxe"}, "made"),
    "switching": ({"TURNOUT_TUNING": "test_switch_every=50", "TURNOUT_MEMORY_BUDGET": "8MiB"}, "made"),
    "switching without DC": ({"TURNOUT_TUNING": "test_switch_every=50", "TURNOUT_MEMORY_BUDGET": "8MiB",
                              "TURNOUT_ADAPTER": "rxe"}, "made"),
    "failing": ({"TURNOUT_TUNING": "test_switch_every=50,test_break_every=500"}, "failed"),
    "failing without DC": ({"TURNOUT_TUNING": "test_switch_every=50,test_break_every=500",
                            "TURNOUT_ADAPTER": "rxe"}, "failed"),
    "offers": ({"TURNOUT_RENDEZVOUS": "put", "TURNOUT_TUNING": "test_switch_every=100"}, "made"),
}


def compile_to(folder, name="mpi_stress"):
    """A program of this folder, made with the mpicc beside this repository's MPICH."""
    program = folder / name
    subprocess.run([VENV / "mpicc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-o",
                    program, HERE / f"{name}.c"], check=True)
    return program


def read_reports(folder):
    """The reports of a job's processes, by rank."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(reports, key=lambda report: report["rank"])


def run(program, build, folder, name, arguments):
    settings, counted = CASES[name]
    reports = folder / "reports"
    for old in reports.glob("*"):
        old.unlink()
    env = dict(os.environ)
    env.update(settings, FI_PROVIDER="turnout", FI_PROVIDER_PATH=str(build / "lib"), TURNOUT_DEVICE="virtual",
               TURNOUT_FABRIC=f"mpi-stress-{os.getpid()}", TURNOUT_REPORT=str(reports),
               MPIR_CVAR_CH4_NETMOD="ofi", MPIR_CVAR_NOLOCAL="1", MPIR_CVAR_CH4_PROGRESS_THROTTLE="1",
               MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="16")
    command = [VENV / "mpiexec", "-launcher", "fork", "-n", "4", program, *arguments]
    done = subprocess.run([str(word) for word in command], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=250, check=False)
    if done.returncode != 0 or "all received and verified" not in done.stdout:
        raise SystemExit(f"{name}, {settings}: ended with {done.returncode}\n{done.stdout}")
    found = read_reports(reports)
    if len(found) != 4:
        raise SystemExit(f"{name}: {len(found)} reports of 4 processes")
    if counted and not sum(report["connections"][counted] for report in found):
        raise SystemExit(f"{name}: no connection was {counted}")
    if any(report["peak"] > report["budget"] for report in found):
        raise SystemExit(f"{name}: over its budget")
    print(f"{name}: {done.stdout.splitlines()[-1]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--messages", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--only", default="", help="regular expression of cases")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="turnout-mpi-stress-") as name:
        folder = pathlib.Path(name)
        program = compile_to(folder)
        for case in CASES:
            if re.search(args.only, case):
                run(program, args.build.resolve(), folder, case,
                    ["--messages", args.messages, "--seed", args.seed, "--stall", 60])


if __name__ == "__main__":
    main()
