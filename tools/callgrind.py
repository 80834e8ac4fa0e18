# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program under valgrind's callgrind, and adds up the instructions by library and function."""

import collections
import pathlib
import re
import subprocess
import tempfile


class CallgrindError(Exception):
    pass


def self_costs(text):
    """Instructions by (library, function), from callgrind's output file."""
    names = {"ob": {}, "fn": {}}
    costs = collections.Counter()
    current = {"ob": None, "fn": None}
    inclusive = False
    for line in text.splitlines():
        if match := re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", line):
            of_callee, kind, number, name = match.groups()
            if name:
                names[kind][number] = name
            if not of_callee:
                current[kind] = names[kind][number]
        elif line.startswith("calls="):
            inclusive = True  # the next line is the cost of what was called
        elif re.match(r"[+\-*\d]", line):
            if not inclusive and current["fn"] is not None:
                costs[current["ob"], current["fn"]] += int(line.split()[1])
            inclusive = False
    return costs


def run(command, env=None, before=(), options=()):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        # A call through the PLT that is skipped is charged with what ran before CALLGRIND_ZERO_STATS.
        whole = [*before, "valgrind", "--tool=callgrind", "--skip-plt=no", *options, f"--callgrind-out-file={out}", *command]
        done = subprocess.run(whole, capture_output=True, text=True, check=False, env=env)
        if done.returncode != 0:
            raise CallgrindError(f"{' '.join(map(str, whole))} failed:\n{done.stdout}{done.stderr}")
        return self_costs(out.read_text())


def each(command_for, few, many, env=None, runs=1, **how):
    """What one more of what `command_for(count)` repeats takes: the difference of two runs, each the one with the
    fewest instructions of so many. What a program does by time, or until something has come, only adds to them."""
    less, more = (min((run(command_for(count), env, **how) for _ in range(runs)), key=lambda costs: costs.total())
                  for count in (few, many))
    return {key: (more[key] - less[key]) / (many - few) for key in more if more[key] != less[key]}
