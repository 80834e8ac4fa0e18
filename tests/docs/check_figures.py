#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Figures that the README quotes are those of the page it names: check_figures.py ROOT

The page itself is made by `turnout sim --experiment budget`.
"""
import pathlib
import re
import sys


def peak(page, policy, budget):
    """Largest peak of `policy` with 4096 processes."""
    row = re.search(rf"^\| {re.escape(policy)} \| 4096 \| {budget} \| [^|]* \| ([^|]*) \|", page, re.M)
    if not row:
        sys.exit(f"docs/experiments/budget.md has no row of {policy} with 4096 processes and budget {budget}")
    return row.group(1).strip()


def main(root):
    readme = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    page = (root / "docs/experiments/budget.md").read_text(encoding="utf-8")
    faults = 0
    for text in (f"rank 0 of 4,096 needs {peak(page, 'rc-rdma-od', 'none')} for it",
                 f"Under a budget of 32 MB, Turnout peaks at {peak(page, 'turnout', '32000000 B')}"):
        if text not in readme:
            print(f'README.md: "{text}" is what docs/experiments/budget.md says; the README says something else')
            faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
