#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mpi_absence.c on PyPI's MPICH over Turnout's virtual adapter: processes that are outside of MPI while
others send to them, leave, or have left.

    mpi_absence.py BUILD_DIR isend|early|late [--lib FOLDER] [--provider NAME]

--lib: another folder with libturnout-fi.so; --provider: another provider of libfabric, for comparison, of
which no report is read.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile

from mpi_stress import VENV, compile_to, read_reports

MESSAGES = 5000
# A quarter of it is for records of sends: 5,000 and some more.
SCARCE = {"TURNOUT_MEMORY_BUDGET": "16MiB"}
UD = {"TURNOUT_DEFAULT_TRANSPORT": "ud"}
LOG = {"TURNOUT_LOG": "debug"}
# Name -> ranks, arguments, settings.
CASES = {
    "isend": {
        "8 B": (2, [MESSAGES, 8], SCARCE),
        "64 KiB": (2, [MESSAGES, 65536], SCARCE),
        "8 B over UD": (2, [MESSAGES, 8], SCARCE | UD),
        "64 KiB over UD": (2, [MESSAGES, 65536], SCARCE | UD),
    },
    "early": {
        "60 messages": (2, [60], {}),
        "5,000 messages": (2, [MESSAGES], {}),
        "60 messages over UD": (2, [60], UD),
        "5,000 messages over UD": (2, [MESSAGES], UD),
    },
    # Over UD the others cannot have left: their last messages wait for acknowledgements.
    "late": {
        "2 ranks": (2, ["left"], LOG),
        "8 ranks": (8, ["left"], LOG),
        "2 ranks over UD": (2, ["leaving"], LOG | UD),
        "8 ranks over UD": (8, ["leaving"], LOG | UD),
    },
}
# What the late one must not say: it tried to reach somebody who had left. An adapter gives up on such a
# queue pair after half a second; on the virtual one it logs so.
IN_VAIN = re.compile(r"is not responding|close timed out|request \S+ failed with status")


def logs(folder):
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("log.*")))


def start(program, args, name, folder):
    """Runs a case to its end; what it printed."""
    ranks, arguments, settings = CASES[args.what][name]
    lib = args.lib or args.build / "lib"
    env = dict(os.environ)
    env.update(settings, FI_PROVIDER=args.provider, FI_PROVIDER_PATH=str(lib), TURNOUT_DEVICE="virtual",
               TURNOUT_VERBS_PATH=str(lib / "turnout"), TURNOUT_REPORT=str(folder / "reports"),
               TURNOUT_LOG_FILE=str(folder / "log.%p"),
               TURNOUT_FABRIC=f"mpi-absence-{os.getpid()}-{folder.name}", MPIR_CVAR_CH4_NETMOD="ofi",
               MPIR_CVAR_NOLOCAL="1", MPIR_CVAR_CH4_PROGRESS_THROTTLE="1",
               MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="16")
    command = [VENV / "mpiexec", "-launcher", "fork", "-n", ranks, program, args.what, folder, *arguments]
    with subprocess.Popen([str(word) for word in command], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as job:
        try:
            printed = job.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            job.terminate()  # mpiexec ends its ranks
            said = sorted(path.name for path in folder.glob("*.[0-9]"))
            raise SystemExit(f"{args.what}, {name}: nothing moves. What the ranks said of themselves: {said}"
                             f"\n{job.communicate()[0]}{logs(folder)}") from None
    if job.returncode != 0:
        raise SystemExit(f"{args.what}, {name}: ended with {job.returncode}\n{printed}{logs(folder)}")
    return printed


def check_reports(args, name, folder):
    ranks, arguments, settings = CASES[args.what][name]
    reports = read_reports(folder / "reports")
    if [report["rank"] for report in reports] != list(range(ranks)):
        raise SystemExit(f"{name}: {len(reports)} reports of {ranks} processes")
    if any(report["peak"] > report["budget"] for report in reports):
        raise SystemExit(f"{name}: over its budget")
    if settings.items() >= SCARCE.items() and any(r["budget"] != 16 << 20 for r in reports):
        raise SystemExit(f"{name}: another budget than was set")
    channel = reports[0]["peers"][0]["send"]["spans"][0]["channel"]
    if channel.startswith("UD") != (settings.items() >= UD.items()):
        raise SystemExit(f"{name}: it began over {channel}")
    large = args.what == "isend" and arguments[1] > 8
    if large != (sum(report["rendezvous"] for report in reports) >= MESSAGES):
        raise SystemExit(f"{name}: {[report['rendezvous'] for report in reports]} messages by rendezvous")
    peaks = [round(report["peak"] / (1 << 20), 1) for report in reports]
    return f"peak memory {peaks} MiB of {reports[0]['budget'] >> 20}"


def run(program, args, name, folder):
    printed = start(program, args, name, folder)
    if args.what == "late":
        late = re.search(r"the late one is process (\d+)", printed)
        if late is None:
            raise SystemExit(f"{name}: no rank was late\n{printed}")
        log = (folder / f"log.{late[1]}").read_text(encoding="utf-8")
        if IN_VAIN.search(log):
            raise SystemExit(f"{name}: the late rank tried to reach who had left\n{log}")
    else:
        wanted = f"{CASES[args.what][name][1][0]} messages received and verified"
        if wanted not in printed:
            raise SystemExit(f"{name}: not all messages came\n{printed}")
    said = check_reports(args, name, folder) if args.provider == "turnout" else f"provider {args.provider}"
    print(f"{args.what}, {name}: {said}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("what", choices=CASES)
    parser.add_argument("--lib", type=pathlib.Path)
    parser.add_argument("--provider", default="turnout")
    parser.add_argument("--only", default="", help="regular expression of cases")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="turnout-mpi-absence-") as name:
        top = pathlib.Path(name)
        program = compile_to(top, "mpi_absence")
        cases = [case for case in CASES[args.what] if re.search(args.only, case)]
        # Those who are absent are waited for most of the time.
        with concurrent.futures.ThreadPoolExecutor(len(cases) if args.what == "early" else 1) as pool:
            runs = []
            for number, case in enumerate(cases):
                folder = top / str(number)
                folder.mkdir()
                runs.append(pool.submit(run, program, args, case, folder))
            for future in runs:
                future.result()


if __name__ == "__main__":
    main()
