#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""post_start.c on PyPI's MPICH over Turnout's virtual adapter, with more ranks than cores.

    post_start.py BUILD_DIR [--provider NAME]
"""

import argparse
import os
import pathlib
import subprocess
import tempfile

from mpi_libraries import MPIS, environment
from mpi_stress import VENV, compile_to

CASES = {
    "": {},
    " over UD at first": {"TURNOUT_DEFAULT_TRANSPORT": "ud"},
    " switching": {"TURNOUT_TUNING": "test_switch_every=20"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--provider", default="turnout")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="turnout-post-start-") as folder:
        program = compile_to(pathlib.Path(folder), "post_start")
        for name, settings in CASES.items():
            for ranks in (3, 4, 8):
                env = environment(MPIS["mpich"], args.provider, args.build / "lib", f"post-start-{os.getpid()}") | settings
                done = subprocess.run([VENV / "mpiexec", "-launcher", "fork", "-n", str(ranks), program, "300"],
                                      env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      timeout=60, check=False)
                if done.returncode != 0 or f"{ranks} ranks, 300 rounds: all right" not in done.stdout:
                    raise SystemExit(f"{ranks} ranks{name}: ended with {done.returncode}\n{done.stdout}")
                print(f"{ranks} ranks{name}: all right", flush=True)


if __name__ == "__main__":
    main()
