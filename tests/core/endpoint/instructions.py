#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions that a settled pair spends on an 8-byte message, both ends together, counted by callgrind.

  instructions.py PROGRAM TABLE           compares with the table; exit 1 if a count is more than 1 % above it
  instructions.py PROGRAM TABLE --write   writes the table

PROGRAM is core_hot_path. A count is the difference of two runs with a different number of messages. It includes the
core and the few instructions of the program itself, not the virtual adapter and other libraries. Counts are of the
release preset and its compiler; those of another compiler differ.
"""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
import callgrind  # noqa: E402  (of the tools)

POLICIES = ["static:dc-sendrecv", "static:dc-rdma", "static:rc-rdma", "static:ud-sendrecv"]
FEW, MANY = 1000, 3000
TOLERANCE = 1.01
HEAD = "# Instructions of the core for an 8-byte message, both ends together; see instructions.py.\n"


def instructions(program, policy):
    costs = callgrind.each(lambda count: [program, policy, str(count)], FEW, MANY)
    name = os.path.realpath(program)
    total = sum(count for (library, _), count in costs.items() if library == name)
    if total <= 0:
        sys.exit(f"{policy}: callgrind counted nothing in {name}: {costs}")
    return round(total)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    counts = {policy: instructions(options.program, policy) for policy in POLICIES}
    if options.write:
        options.table.write_text(HEAD + "".join(f"{policy}\t{count}\n" for policy, count in counts.items()))
        return
    rows = [line.split("\t") for line in options.table.read_text().splitlines() if not line.startswith("#")]
    before = {policy: int(count) for policy, count in rows}
    if set(before) != set(counts):
        sys.exit(f"{options.table}: expected rows for {', '.join(counts)}")
    worse = False
    for policy, count in counts.items():
        change = count / before[policy]
        worse |= change > TOLERANCE
        print(f"{policy}: {count} instructions a message, {before[policy]} in the table ({change - 1:+.1%})"
              f"{'  TOO MANY' if change > TOLERANCE else ''}")
    if worse:
        sys.exit("a message takes more instructions than it did; if that is meant, write the table anew (--write)")


if __name__ == "__main__":
    main()
