#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collects the papers' claims from the pages of the experiments.

claims.py FOLDER          writes FOLDER/claims.md from the tables of claims (see HEAD) of all other pages there
claims.py --check FOLDER  fails if claims.md is not what would be written, or a claim of the papers is in no page
"""
import os
import re
import sys

HEAD = "| claim | what | paper | ours | verdict | cause |"
COMMIT = re.compile(r"\bcommit\s+(`[0-9a-f]{7,40}`)")
# Letter, title, number of claims.
PAPERS = [
    ("A", "AQPS: selection of queue pairs (ExaMPI 2015)", 9),
    ("E", "Eager channels (SC 2006)", 6),
    ("R", "Rendezvous protocols (EuroMPI 2013)", 5),
    ("T", "ACTS: connection tear-down (CASS 2011)", 6),
]
TEXT = """# claims

What the papers report, and what this repository has of it. `tools/claims.py` makes this page from the tables of the
other pages, which have the details. Verdicts follow from the numbers:

- **met**: differences in percent within 3 percentage points, other values within 15 %, arithmetic to the printed
  digits, tendencies as the paper says.
- **tendency**: not met, but with every seed in the paper's direction.
- **missed**: neither.
- **contradicted**: with every seed in the other direction.
- **not run**: nothing here can be compared.

Of several seeds the median is given, in parentheses the least and the most.
"""


def rows_of(text):
    """The cells of each row of a page's tables of claims."""
    inside = False
    for line in text.splitlines():
        if line == HEAD:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def collect(folder):
    """The page, and the claims that are in no other page."""
    claims, commits = [], []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".md") or name == "claims.md":
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            page = file.read()
        link, own = f"[{name[:-3]}]({name})", list(rows_of(page))
        for cells in own:
            if len(cells) != 6 or not re.fullmatch(r"[AERT]\d+", cells[0]):
                sys.exit(f"claims.py: {name}: not a claim: {' | '.join(cells)}")
            claims.append(cells + [link])
        if own:
            commit = COMMIT.search(page)
            commits.append(f"{link} at commit {commit[1]}" if commit else link)
    text, missing = f"{TEXT}\nThe pages: {', '.join(commits)}.\n", []
    for letter, title, count in PAPERS:
        own = sorted((c for c in claims if c[0][0] == letter), key=lambda c: int(c[0][1:]))
        known = {c[0] for c in own}
        missing += [claim for claim in (f"{letter}{i}" for i in range(1, count + 1)) if claim not in known]
        verdicts = [c[4].strip("*") for c in own]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
        text += f"\n## {title}\n\n{len(own)} comparisons: {counts or 'none'}."
        text += f"\n\n{HEAD} page |\n|{'---|' * 7}\n"
        text += "".join(f"| {' | '.join(c)} |\n" for c in own)
    return text, missing


def main(arguments):
    check = arguments[:1] == ["--check"]
    if len(arguments) != 1 + check:
        sys.exit(__doc__)
    folder = arguments[-1]
    text, missing = collect(folder)
    path = os.path.join(folder, "claims.md")
    if not check:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    elif missing:
        sys.exit(f"claims.py: in no page: {', '.join(missing)}")
    elif not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        sys.exit(f"claims.py: {path} is not what the other pages say; run tools/claims.py {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
