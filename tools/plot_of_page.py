#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The data of a page's picture, read back from its tables: plot_of_page.py PAGE.md >DATA.json

For pages of `turnout sim --experiment policies` and `clairvoyant` that were written before these experiments wrote the
data themselves. The format is that of tools/plot.py; the ratios have the page's two digits behind the point.
"""
import json
import re
import sys

# The table's third column: what the times are divided by, in the words of the experiments.
DIVIDED_BY = {"best": "best policy", "best maps found": "best maps found"}


def cells(line):
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def plot(ranks, table):
    head, lines = table[0], table[1:]
    series = [{"name": policy, "from_paper": False, "x": [], "y": []} for policy in head[3:]]
    rows, budgets = [], []
    for line in lines:
        if not rows or rows[-1] != line[0]:
            rows.append(line[0])
        if line[1] not in budgets:
            budgets.append(line[1])
        for one, cell in zip(series, line[3:]):
            one["x"].append(None if cell == "failed" else float(cell))
            one["y"].append(float(len(rows) - 1))
    label = f"time / {DIVIDED_BY[head[2]]}, log scale\nsmall to large marker: budget {', '.join(budgets)}"
    return {"kind": "dots", "title": f"{ranks} processes (modelled)", "x_label": label, "y_label": "", "x_log": True,
            "y_log": False, "unit": "", "rows": rows, "limits": [], "brackets": [], "series": series}


def main(path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    plots, ranks = [], None
    for number, line in enumerate(lines):
        heading = re.match(r"## (\d+) processes$", line)
        if heading:
            ranks = heading.group(1)
        if ranks and line.startswith("| workload | budget |") and cells(line)[2] in DIVIDED_BY:
            table = [cells(line)]
            for row in lines[number + 2:]:
                if not row.startswith("|"):
                    break
                table.append(cells(row))
            plots.append(plot(ranks, table))
    if not plots:
        sys.exit(f"{path}: no table of a comparison in it")
    print(json.dumps({"format": 1, "plots": plots}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: plot_of_page.py PAGE.md >DATA.json")
    main(sys.argv[1])
