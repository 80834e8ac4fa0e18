#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions of a tagged message of 8 bytes over the emulated mlx5: Turnout's and UCX's, over RC and over DC.

    bench/instructions/mlx5.py BUILD_DIR [--markdown]
    bench/instructions/mlx5.py BUILD_DIR --check docs/mlx5.md     exit 1 if a sum is more than 15 % from that page's

Both ends are in one process and libmlx5 is the system's, so all contenders drive one and the same device; its
emulation, the shim and the measuring programs are not counted. UCX writes work queue entries and reads completions
itself, Turnout does by libmlx5, so its two columns belong together. Counted by callgrind, as count.py does.
Needs: tools/build.sh release fi_message; ucx_perftest (Debian's ucx-utils).
"""

import argparse
import collections
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import callgrind  # noqa: E402  (of the tools)

FEW, MANY = 2000, 8000
# UCX looks for the message until it is there, more often the longer the processor does something else.
RUNS = 3
TOLERANCE = 0.15
# A store to a doorbell faults, and the handler needs to know where the program is.
PRECISE = ["--px-default=allregs-at-mem-access", "--px-file-backed=allregs-at-mem-access"]
DEVICE = ("libturnout-mlx5", "libturnout-shim")
VERBS = ("libmlx5", "libibverbs")


def contenders(build):
    fi_message = [str(build / "bin" / "fi_message"), "--provider", "turnout", "--count"]
    perftest = ["ucx_perftest", "-l", "-t", "tag_lat", "-s", "8", "-w", "10", "-n"]
    turnout = {"FI_PROVIDER_PATH": str(build / "lib"), "TURNOUT_DEVICE": "mlx5_0"}
    # Under valgrind its cache of registrations does not work, and what it does instead crashes at the end.
    ucx = {"UCX_NET_DEVICES": "mlx5_0:1", "UCX_IB_REG_METHODS": "direct"}
    return {
        "Turnout, RC": (fi_message, turnout | {"TURNOUT_POLICY": "static:rc-rdma"}),
        "UCX, rc_mlx5": (perftest, ucx | {"UCX_TLS": "rc_mlx5,ud_mlx5:aux"}),
        "Turnout, DC": (fi_message, turnout | {"TURNOUT_POLICY": "static:dc-rdma"}),
        "UCX, dc_mlx5": (perftest, ucx | {"UCX_TLS": "dc_mlx5"}),
    }


def count(build, program, env):
    """Instructions of a message: (of the library, of libmlx5)."""
    verbs = [str(build / "bin" / "turnout"), "verbs", "--fabric", f"instructions-{os.getpid()}", "--mlx5", "--"]
    env = dict(os.environ, TURNOUT_FABRIC_SIZE="256MiB", UCX_HANDLE_ERRORS="none", **env)
    costs = callgrind.each(lambda n: [*program, str(n)], FEW, MANY, env, RUNS, before=verbs, options=PRECISE)
    sums = collections.Counter()
    for (library, _), instructions in costs.items():
        name = pathlib.Path(library).name
        if name.startswith(DEVICE) or name == pathlib.Path(program[0]).name:
            continue
        sums["verbs" if name.startswith(VERBS) else "above"] += instructions
    return round(sums["above"]), round(sums["verbs"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--check", type=pathlib.Path)
    args = parser.parse_args()
    page = args.check.read_text() if args.check else ""
    wrong = 0
    build = args.build.resolve()
    if args.markdown:
        print("| 8 B, instructions of a message | the library | libmlx5 | together |\n|---|---:|---:|---:|")
    for name, (program, env) in contenders(build).items():
        above, verbs = count(build, program, env)
        row = (name, f"{above:,}", f"{verbs:,}" if verbs else "-", f"{above + verbs:,}")
        print("| " + " | ".join(row) + " |" if args.markdown else "{:14} {:>8} {:>8} {:>8}".format(*row), flush=True)
        said = re.search(rf"^\| {name} \|.*\| ([\d,]+) \|$", page, re.M)
        if args.check and (said is None or abs(above + verbs - int(said[1].replace(",", ""))) > TOLERANCE * (above + verbs)):
            print(f"{args.check} says {said[1] if said else 'nothing'}", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
