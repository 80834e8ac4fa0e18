#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/micro.md: the runs of bench/run_micro.py that the page has, one after the other.

    .venv/bin/python bench/run_micro_page.py BUILD_DIR [--output docs/micro.md] [--short]

Nothing else should run meanwhile.
"""
import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

import commit

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Heading, what it shows, options of run_micro.py.
SECTIONS = [
    ("overlap",
     """How much of a 1 MiB transfer overlaps with a computation on one side, which makes no MPI calls meanwhile: without
`TURNOUT_PROGRESS_THREAD` ([016](decisions/016-progress-thread.md)), with it in the computing process, and in both.
1 is complete overlap, 0 is none.""",
     "overlap --size 1M --protocol get --protocol put --protocol rput --progress-thread 20us --rounds 5"),
    ("bandwidth",
     """Windows of 64 messages in one direction, as in osu_bw, compared with RDMA writes over plain verbs on the same
adapter, as in perftest's ib_write_bw (`bench/hca_write_bw.cpp`), in the same rounds. With one buffer, the default
of both, the data stay in the caches. With 64 buffers each receive of a window has its own.
Under `put` with one buffer only the first receive of a window is announced by an RTR, since all receives use the same
memory; the other messages are read. With 64 buffers memory is the limit: writing into many buffers of another process
costs more than reading into one's own, so protocols that read can be faster than the adapter's writes.""",
     "bandwidth --size 64K --size 1M --size 4M --protocol getcqe --protocol get --protocol rput --protocol put --rounds 3"),
    ("bowtie, alltoall",
     "Messages of 1 KiB do not use rendezvous: their differences are noise.",
     "bowtie alltoall --ranks 4 --protocol getcqe --protocol put --rounds 2"),
    ("flood", "8-byte messages without a posted receive.", "flood --ranks 2 --messages 200000 --rounds 3"),
]


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")),
                 "unknown processor")
    virtual = " (virtual machine)" if "hypervisor" in text else ""
    return f"{model}, {len(os.sched_getaffinity(0))} cores{virtual}"


def section(args, heading, words, options):
    command = [sys.executable, str(ROOT / "bench" / "run_micro.py"), str(args.build), *options.split()]
    if args.short:
        command += ["--short", "--rounds", "1"]
    print(f"== {heading}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    tables = done.stdout[done.stdout.index("\n## ") + 1:].strip()
    # One heading for all of them.
    tables = re.sub(r"^## .*\n", "", tables, flags=re.M)
    return f"""## {heading}
{words}

    bench/run_micro.py build/release {options}

{tables}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "micro.md")
    parser.add_argument("--short", action="store_true", help="little work: only checks that it runs")
    args = parser.parse_args()
    parts = "\n".join(section(args, *one) for one in SECTIONS)
    args.output.write_text(f"""# Micro-benchmarks
Written by `bench/run_micro_page.py` on {datetime.date.today().isoformat()} at commit `{commit.commit()}`; do not edit.

MPI programs of `bench/mpi/` on PyPI's MPICH, with all messages over Turnout's virtual adapter, between processes
of one host. There the CPU of the process that posts a request also moves its bytes; no adapter works in parallel.
The tables therefore compare protocols with each other in one run, and do not predict results on an InfiniBand
adapter. `bench/run_micro.py` describes the columns. Each figure is the median of the rounds, each ratio the median
of the rounds' ratios.

Machine: {machine()}, load {os.getloadavg()[1]:.1f} over the last five minutes, including the commands. On a machine with
other work run them at real-time priority, `chrt -r 1`, which leaves caches and memory as the only influence of that
work; with more processes than cores that priority makes them wait long for each other.

{parts}
## Cost of the profile's counters
`bench/run_profile_cost.py build/release` compares pairs of runs with and without the counters; the comment at its
top states what to build first.
""", encoding="utf-8")
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
