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

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from table_page import TablePage, output_of, parser_of

HEAD = ("| program | ranks | time, predicted | whole | error | memory, predicted | whole | error | budget, predicted "
        "| whole |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
ROUNDS = {"nas-cg": 5, "nas-lu": 8, "nas-mg": 8, "nas-sp": 8, "nas-bt": 8, "nas-is": 4, "nas-ft": 4}
FIRST = ["nas-cg", "nas-lu"]
SMALL, LARGE = (8, 16, 32), (64, 128)


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
    output_of([turnout, "plan", *traces, "--ranks", str(ranks), "--samples", "0", "--json", result])
    return row(name, ranks, json.loads(result.read_text())["own_error"])


def rows_of(turnout, name, larger):
    with tempfile.TemporaryDirectory(prefix="turnout-plan-") as text:
        folder = Path(text)
        traces = {}
        for ranks in SMALL + larger:
            traces[ranks] = folder / f"{name}-{ranks}.trace"
            output_of([turnout, "sim", name, "--ranks", str(ranks), "--no-check", "--option",
                       f"rounds={ROUNDS[name]}", "--write-trace", traces[ranks]])
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
    parser, what = parser_of(__doc__)
    what.add_argument("--recordings", type=Path)
    options = parser.parse_args()
    if options.recordings:
        print(HEAD + recorded_rows(options.turnout, options.recordings), end="")
        return
    page = TablePage(options.page, HEAD)
    first = options.check and options.first
    names, larger = (FIRST, LARGE[:1]) if first else (list(ROUNDS), LARGE)
    with ThreadPoolExecutor(options.jobs) as pool:
        new = "".join(pool.map(lambda name: rows_of(options.turnout, name, larger), names))
    if not options.check:
        page.write(new, options.commit)
        return
    old = page.rows
    if first:
        kept = {tuple(line.split("|")[1:3]) for line in new.splitlines()}
        old = "".join(line for line in old.splitlines(True) if tuple(line.split("|")[1:3]) in kept)
    page.compare(old, new, "tools/plan_page.py writes them")


if __name__ == "__main__":
    main()
