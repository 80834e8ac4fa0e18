#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of docs/plan.md: how well `turnout plan` predicts programs that the simulator can run whole.

  tools/plan_page.py TURNOUT PAGE --commit COMMIT      writes the table and its commit
  tools/plan_page.py TURNOUT PAGE --check [--first]                      compares; --first: two programs at 64
  tools/plan_page.py TURNOUT PAGE --recordings FOLDER  prints a table of recorded programs

--jobs N: so many programs at once. Traces of each program at 8, 16, 32, 64 and 128 ranks are written by `turnout sim
--write-trace`; 64 and 128 are predicted from the others and compared with the traces themselves. Virtual time: the
same build gives the same figures on every machine.

Recordings (TURNOUT_TRACE) are in FOLDER/PROGRAM-RANKS, of 8, 16 and 32 ranks, and 64, 128 or both. They hold what a processor
measured, so the page has no table of them.
"""

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HEAD = ("| program | ranks | time, predicted | whole | error | memory, predicted | whole | error | budget, predicted "
        "| whole |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
COMMIT = re.compile(r"commit `[0-9a-f]*`")
ROUNDS = {"nas-cg": 5, "nas-lu": 8, "nas-mg": 8, "nas-sp": 8, "nas-bt": 8, "nas-is": 4, "nas-ft": 4}
FIRST = ["nas-cg", "nas-lu"]
SMALL, LARGE = (8, 16, 32), (64, 128)


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")


def size_name(count):
    return f"{count / (1 << 20):.2f} MiB" if count else "none"


def time_name(picoseconds):
    return f"{picoseconds / 1e9:.2f} ms"


def change(predicted, whole):
    return f"{100 * (predicted / whole - 1):+.1f} %"


def row(name, ranks, own):
    if "missing" in own:
        return f"| {name} | {ranks} | {own['missing']} | | | | | | | |\n"
    predicted, whole = own["predicted"], own["recorded"]
    return (f"| {name} | {ranks} | {time_name(predicted['time_ps'])} | {time_name(whole['time_ps'])} "
            f"| {change(predicted['time_ps'], whole['time_ps'])} | {size_name(predicted['memory'])} "
            f"| {size_name(whole['memory'])} | {change(predicted['memory'], whole['memory'])} "
            f"| {size_name(own['predicted_budget'])} | {size_name(own['recorded_budget'])} |\n")


def predict(turnout, name, traces, ranks, folder):
    result = folder / f"{name}-{ranks}.json"
    call([turnout, "plan", *traces, "--ranks", str(ranks), "--samples", "0", "--json", result])
    return row(name, ranks, json.loads(result.read_text())["own_error"])


def rows_of(turnout, name, larger):
    with tempfile.TemporaryDirectory(prefix="turnout-plan-") as text:
        folder = Path(text)
        traces = {}
        for ranks in SMALL + larger:
            traces[ranks] = folder / f"{name}-{ranks}.trace"
            call([turnout, "sim", name, "--ranks", str(ranks), "--no-check", "--option", f"rounds={ROUNDS[name]}",
                  "--write-trace", traces[ranks]])
        small = [traces[ranks] for ranks in SMALL]
        return "".join(predict(turnout, name, [*small, traces[ranks]], ranks, folder) for ranks in larger)


def recorded_rows(turnout, recordings):
    names = sorted({path.name.rpartition("-")[0] for path in recordings.iterdir() if path.is_dir()})
    rows = ""
    with tempfile.TemporaryDirectory(prefix="turnout-plan-") as text:
        for name in names:
            small = [recordings / f"{name}-{ranks}" for ranks in SMALL]
            for ranks in LARGE:
                larger = recordings / f"{name}-{ranks}"
                if larger.is_dir():
                    rows += predict(turnout, name, [*small, larger], ranks, Path(text))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turnout")
    parser.add_argument("page", type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--commit")
    what.add_argument("--check", action="store_true")
    what.add_argument("--recordings", type=Path)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if options.recordings:
        print(HEAD + recorded_rows(options.turnout, options.recordings), end="")
        return
    parts = options.page.read_text().split(HEAD)
    if len(parts) != 2:
        sys.exit(f"{options.page}: expected a table with the head\n{HEAD}")
    old, after = parts[1].split("\n\n", 1)
    old += "\n"
    first = options.check and options.first
    names, larger = (FIRST, LARGE[:1]) if first else (list(ROUNDS), LARGE)
    with ThreadPoolExecutor(options.jobs) as pool:
        new = "".join(pool.map(lambda name: rows_of(options.turnout, name, larger), names))
    if not options.check:
        text, count = COMMIT.subn(f"commit `{options.commit}`", parts[0] + HEAD + new + "\n" + after)
        if count != 1:
            sys.exit(f"{options.page}: expected one commit, found {count}")
        options.page.write_text(text)
        return
    if first:
        kept = {tuple(line.split("|")[1:3]) for line in new.splitlines()}
        old = "".join(line for line in old.splitlines(True) if tuple(line.split("|")[1:3]) in kept)
    if old != new:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "page", "this build"))
        sys.exit(f"{options.page}: this build gives other figures; tools/plan_page.py writes them")


if __name__ == "__main__":
    main()
