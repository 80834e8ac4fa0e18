#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How many ranks one process of the simulator can hold, and how fast it runs; writes docs/experiments/scale.md.

    bench/run_scale.py BUILD_DIR [--ranks 65536] [--output docs/experiments/scale.md]

Runs one after the other; each is a process of its own, whose real memory is what the kernel says of it.
"""
import argparse
import datetime
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import commit

SMALL = ["--set", "receive_buffers=32", "--set", "control_buffers=64", "--set", "send_buffers=16",
         "--set", "ring_entry_size=512"]
MANY, FEW = 65536, 1024
REPEATS = 7  # of the short runs, whose median counts


def runs(most):
    """Name, messages per rank, how often it runs, arguments."""
    limit = ["--no-check", "--time-limit", "1000s"]
    return [(f"ring, {FEW:,} ranks", 300, REPEATS, ["ring", "--ranks", str(FEW), "--option", "rounds=300", *limit]),
            (f"random, 10 neighbours, {FEW:,} ranks", 100, REPEATS, ["random", "--ranks", str(FEW), *limit]),
            (f"ring, {most:,} ranks", 100, 1, ["ring", "--ranks", str(most), *limit, *SMALL]),
            (f"random, 10 neighbours, {most:,} ranks", 100, 1,
             ["random", "--ranks", str(most), *limit, *SMALL])]


def measure(program, arguments):
    """Events, seconds of playing, bytes a rank, seconds of the command, bytes of the command."""
    with tempfile.TemporaryDirectory(prefix="turnout-scale-") as folder:
        csv = pathlib.Path(folder) / "result.csv"
        begun = time.monotonic()
        child = subprocess.Popen([program, "sim", *arguments, "--csv", str(csv)], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.monotonic() - begun
        if status != 0:
            sys.exit(f"{shlex.join(['turnout', 'sim', *arguments])}: wait status {status}")
        values = {}
        for line in csv.read_text(encoding="utf-8").splitlines():
            match = re.search(r"(?:^|,)(events|real_seconds|bytes_per_rank),[^,]*,([^,]+)", line)
            if match:
                values[match.group(1)] = float(match.group(2))
    return values["events"], values["real_seconds"], values["bytes_per_rank"], seconds, used.ru_maxrss * 1024


def size_name(count):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


def span_name(seconds):
    return f"{int(seconds) // 60} min {int(seconds) % 60} s" if seconds >= 60 else f"{seconds:.1f} s"


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")),
                 "unknown processor")
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(encoding="utf-8"))
    return f"{model}, {os.cpu_count()} cores, {int(memory.group(1)) / (1 << 20):.0f} GiB memory"


def page(rows, commands):
    lines = ["| run | messages per rank | events | events per second of real time | real memory per rank | whole command |",
             "|---|---:|---:|---:|---:|---:|"]
    for name, messages, (events, playing, per_rank, seconds, whole) in rows:
        lines.append(f"| {name} | {messages} | {events:,.0f} | {events / playing / 1000:,.0f} k | {size_name(per_rank)} "
                     f"| {span_name(seconds)}, {size_name(whole)} |")
    return f"""# scale
Written by `bench/run_scale.py` on {datetime.date.today().isoformat()} at commit `{commit.commit()}`; do not edit.

How many ranks one simulator process can hold, and how fast it runs. These are measurements of the simulator,
not of Turnout: real time and real memory of one process. Only `events` are reproducible. Machine: {machine()},
load {os.getloadavg()[1]:.1f} over the last five minutes, including this command.

```sh
{chr(10).join(commands)}
```

{chr(10).join(lines)}

With {FEW:,} ranks the settings are the defaults, and the run is the median of {REPEATS}. With {MANY:,} the settings shrink
an endpoint's buffers: as many times the usual size would not fit.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=MANY, help="of the large runs")
    parser.add_argument("--output", type=pathlib.Path, help="write the page there")
    args = parser.parse_args()
    rows, commands = [], []
    for name, messages, repeats, arguments in runs(args.ranks):
        commands.append(shlex.join(["turnout", "sim", *arguments]))
        print(f"{commands[-1]}", flush=True)
        measured = sorted((measure(str(args.build / "bin" / "turnout"), arguments) for _ in range(repeats)),
                          key=lambda run: run[1])
        rows.append((name, messages, measured[repeats // 2]))
    text = page(rows, commands)
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
