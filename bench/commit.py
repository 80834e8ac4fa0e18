# SPDX-License-Identifier: BSD-3-Clause
"""The commit that a page of benchmarks names: TURNOUT_COMMIT (tools/pages.sh), else that of the source tree."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def commit():
    given = os.environ.get("TURNOUT_COMMIT")
    if given:
        return given
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
