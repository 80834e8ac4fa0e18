#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How long a job takes that does nothing but start and end, over Turnout and over libfabric's providers.

    bench/run_start.py BUILD_DIR [--ranks 2 --ranks 8] [--rounds 20] [--provider shm ...] [--late MS]

Runs bench/mpi/start.c on PyPI's MPICH. In every round each provider runs once, in an order drawn anew;
figures are medians of the rounds of the whole command in milliseconds, ratios are to the first of the
other providers in the same round. A run that takes longer than 20 s is counted as stuck and left out.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
STUCK = 20  # seconds


def run(args, program, provider, ranks):
    """Milliseconds; None: it was stuck."""
    env = dict(os.environ, FI_PROVIDER=provider, TURNOUT_FABRIC=f"start-{os.getpid()}",
               MPIR_CVAR_CH4_NETMOD="ofi", MPIR_CVAR_NOLOCAL="1",
               MPIR_CVAR_CH4_PROGRESS_THROTTLE="1",
               MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="16")
    if provider == "turnout":
        env["FI_PROVIDER_PATH"] = str(args.build.resolve() / "lib")
    # Python's own time limit looks at the process now and then only.
    command = ["timeout", str(STUCK), args.python.parent / "mpiexec", "-launcher", "fork",
               "-n", str(ranks), program, str(args.late)]
    begin = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    took = (time.monotonic() - begin) * 1e3
    if done.returncode == 124:
        subprocess.run(["pkill", "-KILL", "-f", str(program)])
        return None
    if done.returncode != 0:
        sys.exit(f"{provider}, {ranks} ranks: exit code {done.returncode}\n"
                 f"{done.stdout}{done.stderr}")
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--provider", action="append")
    parser.add_argument("--late", type=int, default=0, help="of the last rank's end, in milliseconds")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python")
    args = parser.parse_args()
    providers = ["turnout", *(args.provider or ["shm", "tcp"])]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "start"
        subprocess.run([args.python.parent / "mpicc", "-O2", "-Wall", "-o", program,
                        ROOT / "bench/mpi/start.c"], check=True)
        for ranks in args.ranks or [2, 8]:
            rounds = []
            for _ in range(args.rounds):
                order = random.sample(providers, len(providers))
                took = {provider: run(args, program, provider, ranks) for provider in order}
                if took["turnout"] is None:
                    sys.exit(f"turnout, {ranks} ranks: no end after {STUCK} s")
                rounds.append(took)
            for provider in providers:
                times = [took[provider] for took in rounds if took[provider] is not None]
                ratios = [took[provider] / took[providers[1]] for took in rounds
                          if took[provider] is not None and took[providers[1]] is not None]
                if not times or not ratios:
                    print(f"{ranks} ranks  {provider:<8} always stuck")
                    continue
                print(f"{ranks} ranks  {provider:<8} {statistics.median(times):7.1f} ms"
                      f"  ratio {statistics.median(ratios):.2f}"
                      f"  stuck {len(rounds) - len(times)} of {len(rounds)}")


if __name__ == "__main__":
    main()
