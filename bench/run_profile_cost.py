#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the profile costs: 0-byte ping-pong with it and without it, in pairs of runs.

    cmake --build BUILD_DIR --target fi_pingpong turnout_fi turnout_fi_unprofiled
    bench/run_profile_cost.py BUILD_DIR [--pairs 25]

The other side of each pair is the same provider compiled without the counts (TURNOUT_PROFILE=0, see
core/report/profile.h). Which of the two runs first changes from pair to pair, so that whatever else the machine
does hits both alike. Beside them, in the same way, pairs of the profiled provider with itself: what the
machine's noise alone makes of such a ratio. Printed are the medians, and of the ratios of the pairs the
median with its 95% interval (order statistics) and the quartiles.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys


def one_way(args, folder, size, number):
    env = dict(os.environ)
    env.update(FI_PROVIDER_PATH=str(folder), TURNOUT_FABRIC=f"profile-{os.getpid()}-{number}",
               TURNOUT_VERBS_PATH=str(args.build.resolve() / "lib" / "turnout"),
               TURNOUT_INTERVAL="100ms", TURNOUT_POLICY=args.policy)
    command = [args.build / "bin" / "fi_pingpong", "--provider", "turnout", "--json", "--size",
               str(size), "--warm-up", str(args.warm_up), "--duration", str(args.seconds)]
    done = subprocess.run([str(word) for word in command], env=env, timeout=120,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)["one_way_ns"][str(size)]


def interval_of_median(values):
    """Ranks between which the median of the population lies with 95% (binomial, normal approximation)."""
    ordered = sorted(values)
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half) - 1)
    high = min(n - 1, math.ceil(n / 2 + half))
    return ordered[low], ordered[high]


def describe(name, pairs):
    ratios = [first / second for first, second in pairs]
    low, high = interval_of_median(ratios)
    quartiles = statistics.quantiles(ratios, n=4)
    return (f"| {name} | {statistics.median(p[0] for p in pairs):.1f} | "
            f"{statistics.median(p[1] for p in pairs):.1f} | {statistics.median(ratios):.4f} | "
            f"{low:.4f} to {high:.4f} | {quartiles[0]:.4f} to {quartiles[2]:.4f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--policy", default="turnout")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds of 8-byte messages")
    parser.add_argument("--seconds", type=float, default=0.4, help="of one run")
    args = parser.parse_args()
    with_it = args.build.resolve() / "lib"
    without = with_it / "unprofiled"
    if not (without / "libturnout-fi.so").exists():
        raise SystemExit(f"{without}: build the target turnout_fi_unprofiled first")
    number = 0
    results = {"with / without": [], "with / with": []}
    for pair in range(args.pairs):
        for name, other in (("with / without", without), ("with / with", with_it)):
            sides = [with_it, other]
            times = [0.0, 0.0]
            for side in ((0, 1) if pair % 2 == 0 else (1, 0)):
                number += 1
                times[side] = one_way(args, sides[side], args.size, number)
            results[name].append(tuple(times))
        print(f"pair {pair + 1}/{args.pairs}: " + ", ".join(
            f"{name} {p[-1][0]:.1f} / {p[-1][1]:.1f} ns" for name, p in results.items()), flush=True)
    print(f"\n{args.size}-byte messages one way, {args.pairs} pairs of runs of {args.seconds:g} s, "
          f"{len(os.sched_getaffinity(0))} cores\n")
    print("| pairs | first (ns) | second (ns) | ratio | of the median, 95% | half of the pairs |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, pairs in results.items():
        print(describe(name, pairs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
