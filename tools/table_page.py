# SPDX-License-Identifier: BSD-3-Clause
"""A page of docs/ with one table that a tool makes from runs of this build: for nwchem_page.py, plan_page.py and
prediction_page.py.

Virtual time: the same build gives the same figures on every machine, so the table is compared to the digit.
"""

import argparse
import difflib
import re
import subprocess
import sys
from pathlib import Path

COMMIT = re.compile(r"commit `[0-9a-f]*`")


def parser_of(description):
    """The options that all have, and the group of those that say what is to be done."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turnout")
    parser.add_argument("page", type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--commit")
    what.add_argument("--check", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    return parser, what


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return done.stdout


class TablePage:
    """`head`: the table's, of two lines. `rows`: what the page has below it."""

    def __init__(self, path, head):
        self.path, self.head = path, head
        text = path.read_text()
        parts = text.split(head)
        if len(parts) != 2:
            sys.exit(f"{path}: expected one table with the head\n{head}")
        count = len(COMMIT.findall(text))
        if count != 1:
            sys.exit(f"{path}: expected one commit, found {count}")
        self.before = parts[0]
        self.rows, self.after = parts[1].split("\n\n", 1)
        self.rows += "\n"

    def write(self, rows, commit, path=None):
        text = self.before + self.head + rows + "\n" + self.after
        (path or self.path).write_text(COMMIT.sub(f"commit `{commit}`", text))

    def compare(self, old, new, remedy):
        """Exits if these rows differ, and says what to do."""
        if old != new:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "page", "this build"))
            sys.exit(f"{self.path}: this build gives other figures; {remedy}")
