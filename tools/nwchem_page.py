#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of evictions in docs/nwchem.md, from the runs that the page names.

  tools/nwchem_page.py TURNOUT PAGE --commit COMMIT [--output FILE]  writes the table and its commit
  tools/nwchem_page.py TURNOUT PAGE --check [--first]                compares; --first: the first run only, seconds

--jobs N: so many runs at once. FILE: instead of PAGE.

Virtual time: the same build gives the same figures on every machine.
"""

import argparse
import difflib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HEAD = "| run | time | partners of a process | limit | LRU | LRU-M | clairvoyant |\n|---|---:|---:|---:|---:|---:|---:|\n"
COMMIT = re.compile(r"commit `[0-9a-f]*`")
# Label, options, limits.
RUNS = [
    ("64 processes", "--ranks 64", "32,4"),
    ("512 processes, 512 owners", "--ranks 512", "128,32,4"),
    ("512 processes, 128 owners", "--ranks 512 --ranks-per-node 4", "128,32,4"),
    ("512 processes, 64 tasks each", "--ranks 512 --option tasks=64 --option iterations=4", "32"),
]


def run(turnout, options, limits):
    command = [turnout, "sim", "nwchem", *options.split(), "--no-check", "--limits", limits]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turnout")
    parser.add_argument("page", type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--commit")
    what.add_argument("--check", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    page = options.page.read_text()
    if options.commit:
        page, count = COMMIT.subn(f"commit `{options.commit}`", page)
        if count != 1:
            sys.exit(f"{options.page}: expected one commit, found {count}")
    parts = page.split(HEAD)
    if len(parts) != 2:
        sys.exit(f"{options.page}: expected one table with the head\n{HEAD}")
    old, after = parts[1].split("\n\n", 1)
    old += "\n"
    runs = RUNS[:1] if options.check and options.first else RUNS
    with ThreadPoolExecutor(options.jobs) as pool:
        texts = list(pool.map(lambda one: run(options.turnout, *one[1:]), runs))
    new = "".join(rows_of(label, text) for (label, _, _), text in zip(runs, texts))
    if not options.check:
        (options.output or options.page).write_text(parts[0] + HEAD + new + "\n" + after)
        return
    if options.first:
        old = "".join(old.splitlines(keepends=True)[: new.count("\n")])
    if old != new:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "page", "this build"))
        sys.exit(f"{options.page}: this build gives other figures; make pages PAGES=nwchem")


if __name__ == "__main__":
    main()
