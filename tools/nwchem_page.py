#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of evictions in docs/nwchem.md, from the runs that the page names.

  tools/nwchem_page.py TURNOUT PAGE --commit COMMIT [--output FILE]  writes the table and its commit
  tools/nwchem_page.py TURNOUT PAGE --check [--first]                compares; --first: the first run only, seconds

--jobs N: so many runs at once. FILE: instead of PAGE.

Virtual time: the same build gives the same figures on every machine.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from table_page import TablePage, output_of, parser_of

HEAD = "| run | time | partners of a process | limit | LRU | LRU-M | clairvoyant |\n|---|---:|---:|---:|---:|---:|---:|\n"
# Label, options, limits.
RUNS = [
    ("64 processes", "--ranks 64", "32,4"),
    ("512 processes, 512 owners", "--ranks 512", "128,32,4"),
    ("512 processes, 128 owners", "--ranks 512 --ranks-per-node 4", "128,32,4"),
    ("512 processes, 64 tasks each", "--ranks 512 --option tasks=64 --option iterations=4", "32"),
]


def run(turnout, options, limits):
    return output_of([turnout, "sim", "nwchem", *options.split(), "--no-check", "--limits", limits])


def rows_of(label, text):
    time = re.search(r"^  time +(\S+ s)$", text, re.M)
    partners = re.search(r"^partners per process, \S+ (\d+) to (\d+)", text, re.M)
    found = re.findall(r"^ +(\d+)  (lru|lru-m|clairvoyant) +\S+ +(\S+)$", text, re.M)
    if not time or not partners or not found:
        sys.exit(f"{label}: the output has no time, partners or evictions:\n{text}")
    least, most = partners.groups()
    table = {}
    for limit, order, evicted in found:
        table.setdefault(limit, {})[order] = evicted
    rows = ""
    head = [label, time[1], least if least == most else f"{least} to {most}"]
    for limit, evicted in table.items():
        cells = [*head, limit, evicted["lru"], evicted["lru-m"], evicted["clairvoyant"]]
        rows += "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"
        head = ["", "", ""]
    return rows


def main():
    parser, _ = parser_of(__doc__)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    page = TablePage(options.page, HEAD)
    first = options.check and options.first
    runs = RUNS[:1] if first else RUNS
    with ThreadPoolExecutor(options.jobs) as pool:
        texts = list(pool.map(lambda one: run(options.turnout, *one[1:]), runs))
    new = "".join(rows_of(label, text) for (label, _, _), text in zip(runs, texts))
    if not options.check:
        page.write(new, options.commit, options.output)
        return
    old = "".join(page.rows.splitlines(keepends=True)[: new.count("\n")]) if first else page.rows
    page.compare(old, new, "make pages PAGES=nwchem")


if __name__ == "__main__":
    main()
