#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""changing_pattern.c on PyPI's MPICH over Turnout's virtual adapter: how soon after a change of its pattern
a program's new pairs have their channels, in set-up times of a queue pair, by the processes' reports.

    changing_pattern.py BUILD_DIR [--ranks 8] [--seconds 2] [--distances 1 3]

Fails if a pair of the last pattern is left on the channel that all begin with, or had another one and went
back to it. Times are printed and never judged: with more ranks than cores a window of messages takes as long as
the ranks in between compute, so the number of messages that a pair sent before its change is printed, too.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

from mpi_libraries import MPIS, environment
from mpi_stress import VENV, compile_to, read_reports

FIRST = {"DC-sendrecv", "UD-sendrecv"}


def sources_of(reports, distance):
    """(receiver's report, rank that sends to it, the report's entry for it) of each pair at that distance."""
    ranks = {report["endpoint"]: report["rank"] for report in reports}
    for report in reports:
        for peer in report["peers"]:
            source = (report["rank"] - distance) % len(reports)
            if ranks.get(peer["endpoint"]) == source:
                yield report, source, peer


def setup_time(reports):
    """What a queue pair took from its request to its first use, nanoseconds: the median of the job."""
    outcomes = [decision["outcome"] for report in reports for decision in report["decisions"]
                if decision["to"] == "RC-RDMA"]
    done = [re.fullmatch(r"done in (\d+) us", outcome) for outcome in outcomes]
    return statistics.median(int(match[1]) for match in done if match) * 1000


def judge(report, source, peer):
    """(description of the pair, when its last change was, whether it is as it should be)"""
    spans = peer["receive"]["spans"]
    channels = [span["channel"] for span in spans]
    left = next((i for i, channel in enumerate(channels) if channel not in FIRST), len(channels))
    good = left < len(channels) and not FIRST.intersection(channels[left:])
    since = report["started_unix_ns"] + spans[-1]["since_ns"]
    before = sum(span["messages"] for span in spans[:left])
    return f"rank {source} -> rank {report['rank']}: {', '.join(channels)}; left after {before} messages", since, good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--distances", type=int, nargs="+", default=[1, 3])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="turnout-changing-pattern-") as name:
        folder = pathlib.Path(name)
        program = compile_to(folder, "changing_pattern")
        env = environment(MPIS["mpich"], "turnout", args.build / "lib", f"changing-pattern-{os.getpid()}")
        env["TURNOUT_REPORT"] = str(folder / "reports")
        done = subprocess.run([VENV / "mpiexec", "-launcher", "fork", "-n", str(args.ranks), program,
                               str(args.seconds), *map(str, args.distances)],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60 + 10 * args.seconds * len(args.distances), check=False)
        if done.returncode != 0 or "all right" not in done.stdout:
            raise SystemExit(f"{program.name} ended with {done.returncode}\n{done.stdout}")
        began = int(re.findall(r"begins at (\d+)", done.stdout)[-1])
        reports = read_reports(folder / "reports")
    pairs = [judge(*pair) for pair in sources_of(reports, args.distances[-1])]
    if len(pairs) != args.ranks:
        raise SystemExit(f"reports tell of {len(pairs)} pairs at distance {args.distances[-1]}, expected {args.ranks}")
    setup = setup_time(reports)
    for text, since, good in pairs:
        print(f"{text}; last change after {(since - began) / setup:.1f} set-up times{'' if good else ' (wrong)'}")
    print(f"a set-up took {setup / 1e6:.2f} ms; median {statistics.median(p[1] - began for p in pairs) / setup:.1f} of them")
    if not all(good for _, _, good in pairs):
        raise SystemExit("a pair has no channel of its own, or went back to the first one")


if __name__ == "__main__":
    main()
