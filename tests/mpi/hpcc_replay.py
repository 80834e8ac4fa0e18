#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records HPCC over Turnout as a trace, plays it in virtual time, compares the messages of every pair.

    hpcc_replay.py BUILD_DIR [--ranks 8] [--order 1000]

HPCC runs on Debian's Open MPI. For every pair of ranks, what the processes' own reports say they sent
and what the replayed ranks sent must agree.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def hpcc_input(order, ranks):
    """HPCC's input file as the demonstration writes it, with another order and grid."""
    text = (ROOT / "tools" / "demo.sh").read_text(encoding="utf-8")
    text = re.search(r"<<INPUT\n(.*?)\nINPUT\n", text, re.S).group(1) + "\n"
    rows = max(c for c in range(1, ranks + 1) if ranks % c == 0 and c * c <= ranks)
    text = text.replace("$order", str(order)).replace("$((ranks / rows))", str(ranks // rows))
    return text.replace("$rows", str(rows)).replace("1200         values", f"{order}         values")


def hpcc_environment(build):
    return dict(os.environ, FI_PROVIDER_PATH=str(build / "lib"), TURNOUT_FABRIC=f"hpcc-{os.getpid()}",
                OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def hpcc_command(ranks, provider="turnout", more=()):
    return ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), "--mca", "pml",
            "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", provider, "--mca", "btl",
            "self", "--mca", "mpi_yield_when_idle", "1", *more, "hpcc"]


def run_hpcc(build, ranks, order, folder, settings):
    """Runs HPCC in `folder` with these variables; returns its summary and the folder of the reports."""
    (folder / "hpccinf.txt").write_text(hpcc_input(order, ranks), encoding="utf-8")
    reports = folder / "reports"
    reports.mkdir()
    env = hpcc_environment(build)
    env.update(settings, TURNOUT_REPORT=str(reports))
    subprocess.run(hpcc_command(ranks), cwd=folder, env=env, check=True, timeout=900,
                   stdout=subprocess.DEVNULL)
    summary = (folder / "hpccoutf.txt").read_text(encoding="utf-8", errors="replace")
    if "Success=1" not in summary:
        raise SystemExit("HPCC did not succeed")
    return summary, reports


def record(build, ranks, order, folder):
    recordings = folder / "recordings"
    recordings.mkdir()
    _, reports = run_hpcc(build, ranks, order, folder, {"TURNOUT_TRACE": f"{recordings}/"})
    return recordings, reports


def pairs_of_reports(reports):
    loaded = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(reports.glob("*.json"))]
    rank_of = {r["endpoint"]: r["rank"] for r in loaded}
    counts = collections.Counter()
    for report in loaded:
        for peer in report["peers"]:
            sent = sum(span["messages"] for span in peer["send"]["spans"])
            to = rank_of.get(peer["endpoint"])
            if sent and to is not None and to != report["rank"]:
                counts[report["rank"], to] += sent
    return counts


def replays_alike(build, recordings, reports):
    """Whether each pair of ranks exchanges as many messages when the recordings are played in virtual time."""
    with tempfile.TemporaryDirectory(prefix="turnout-replay-") as name:
        result = pathlib.Path(name) / "result.json"
        command = [build / "bin" / "turnout", "sim", "replay", "--trace", recordings, "--json",
                   result, "--no-check", "--time-limit", "1000s",
                   # what was eager in the recording: the program did not wait for the receiver
                   "--set", "rendezvous_threshold=256KiB"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise SystemExit(f"turnout sim replay: {done.stdout}{done.stderr}")
        print(done.stdout)
        replayed = collections.Counter()
        for source, to, count in json.loads(result.read_text())["results"][0]["pairs"]:
            if source != to:
                replayed[source, to] += count
    reported = pairs_of_reports(reports)
    print(f"{sum(reported.values())} messages of {len(reported)} pairs in the reports, "
          f"{sum(replayed.values())} of {len(replayed)} pairs replayed")
    different = {p: (reported[p], replayed[p]) for p in reported | replayed
                 if reported[p] != replayed[p]}
    for pair, (was, now) in sorted(different.items())[:10]:
        print(f"  {pair[0]} -> {pair[1]}: {was} in the reports, {now} replayed")
    return bool(reported) and not different


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--order", type=int, default=1000)
    args = parser.parse_args()
    build = args.build.resolve()
    with tempfile.TemporaryDirectory(prefix="turnout-hpcc-") as name:
        recordings, reports = record(build, args.ranks, args.order, pathlib.Path(name))
        return 0 if replays_alike(build, recordings, reports) else 1


if __name__ == "__main__":
    sys.exit(main())
