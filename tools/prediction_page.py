#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of docs/running.md: what the prediction of a job's last run saves, and costs where it is wrong.

  tools/prediction_page.py TURNOUT PAGE --commit COMMIT      writes the table and its commit
  tools/prediction_page.py TURNOUT PAGE --check [--first]    compares; --first: two workloads

--jobs N: so many runs at once. Each workload is simulated once with reports, and again with a prediction: its own
reports, those of a run with another seed, its own with the ranks permuted, and those of each other workload. Without
time before the first message, and with 50 ms. Virtual time: the same build gives the same figures on every machine.
"""

import itertools
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from table_page import TablePage, output_of, parser_of

FACTORS = "right | another seed | permuted | another workload, worst"
HEAD = (f"| workload | budget | time | {FACTORS} | time, 50 ms | {FACTORS} |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
RANKS = 16
WORKLOADS = {
    "random": ["messages=30000"],
    "hotspots": ["phases=4", "messages=1500"],
    "phases": ["phases=4", "messages=2400"],
    "alltoall": ["bytes=256", "rounds=400"],
    "shifts": ["shifts=16", "messages=700"],
}
FIRST = ["random", "hotspots"]
BUDGETS = ("16MiB", "64MiB")
STARTS = ("0s", "50ms")


def time_of(turnout, case, seed=1, **settings):
    """Picoseconds."""
    workload, budget, start = case
    with tempfile.TemporaryDirectory(prefix="turnout-prediction-") as folder:
        result = Path(folder) / "result.json"
        command = [turnout, "sim", workload, "--ranks", str(RANKS), "--profile", "connect-ib", "--seed", str(seed),
                   "--no-check", "--start-after", start, "--set", f"memory_budget={budget}", "--json", result]
        for option in WORKLOADS[workload]:
            command += ["--option", option]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        output_of(command)
        return json.loads(result.read_text())["results"][0]["time_ps"]


def permute(reports, folder):
    """Rank r's report as that of 7 r + 3."""
    folder.mkdir()
    for path in reports.iterdir():
        report = json.loads(path.read_text())
        report["rank"] = (7 * report["rank"] + 3) % RANKS
        name = f"rank-{report['rank']}.{report['pid']}.{int(report['endpoint'], 16):016x}.json"
        (folder / name).write_text(json.dumps(report))


class Table:
    """Runs all cases first, whose reports the predictions are made of."""

    def __init__(self, turnout, folder, pool):
        self.turnout, self.folder, self.pool = turnout, folder, pool
        cases = list(itertools.product(WORKLOADS, BUDGETS, STARTS))
        self.without = dict(zip(cases, pool.map(self.report, cases)))

    def reports(self, case, of="right"):
        return self.folder / "-".join((*case, of))

    def report(self, case):
        time = time_of(self.turnout, case, report=self.reports(case))
        time_of(self.turnout, case, seed=2, report=self.reports(case, "seed"))
        permute(self.reports(case), self.reports(case, "permuted"))
        return time

    def cells(self, case):
        workload, budget, start = case
        others = [self.reports((other, budget, start)) for other in WORKLOADS if other != workload]
        own = [self.reports(case, of) for of in ("right", "seed", "permuted")]
        factors = [time_of(self.turnout, case, prediction=path) / self.without[case] for path in own + others]
        shown = [*factors[:len(own)], max(factors[len(own):])]
        return f" {self.without[case] / 1e9:.2f} ms |" + "".join(f" {factor:.2f} |" for factor in shown)

    def rows(self, names):
        lines = list(itertools.product(names, BUDGETS))
        cells = self.pool.map(self.cells, [(*line, start) for line in lines for start in STARTS])
        return "".join(f"| {name} | {budget} |" + "".join(next(cells) for _ in STARTS) + "\n" for name, budget in lines)


def main():
    parser, _ = parser_of(__doc__)
    options = parser.parse_args()
    page = TablePage(options.page, HEAD)
    names = FIRST if options.check and options.first else list(WORKLOADS)
    with tempfile.TemporaryDirectory(prefix="turnout-prediction-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        new = Table(options.turnout, Path(folder), pool).rows(names)
    if not options.check:
        page.write(new, options.commit)
        return
    old = "".join(line for line in page.rows.splitlines(True) if line.split("|")[1].strip() in names)
    page.compare(old, new, "tools/prediction_page.py writes them")


if __name__ == "__main__":
    main()
