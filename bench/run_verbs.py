#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Speed of the virtual adapter for verbs programs, compared with the machine's own operations.

    bench/run_verbs.py BUILD_DIR [--rounds 7] [--output docs/verbs-speed.md]

In every round, in turn: hca_baseline (cache-line transfer between two cores, memcpy, plain
process_vm_writev), perftest's ib_write_lat with 8 B and ib_write_bw with 1 MiB, each with its default
memory and with --mmap, memory in a shared mapping, and hca_alltoall with 2 and with 16 processes on the
same two cores. Figures are medians of the rounds, ratios medians of the rounds' ratios.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import subprocess
import tempfile

import commit

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import verbs_pair  # noqa: E402  (of the tests)

LIMIT = 300  # seconds of a program
LARGE = 1 << 20
MIB = 1 << 20  # perftest's MB, too
MEMORY = {"shared": "a shared mapping (`--mmap`)", "default": "ordinary memory (perftest's default)"}


class Runner:
    def __init__(self, args, folder):
        self.bin = args.build.resolve() / "bin"
        self.cpus = sorted(os.sched_getaffinity(0))[:2]
        self.short = args.short
        self.files = [folder / "server", folder / "client"]
        for file in self.files:
            file.write_bytes(bytes(4 * LARGE))
        self.number = 0

    def ours(self, program, *arguments):
        command = [str(self.bin / program), *(str(a) for a in arguments)]
        self.number += 1
        env = dict(os.environ, TURNOUT_FABRIC=f"speed-{os.getpid()}-{self.number}",
                   LD_LIBRARY_PATH=str(self.bin.parent / "lib" / "turnout"))
        done = subprocess.run(["taskset", "-c", ",".join(map(str, self.cpus)), *command], env=env,
                              capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def perftest(self, program, size, count, memory):
        """The line of figures of the client."""
        self.number += 1
        commands = []
        for cpu, file in zip(self.cpus, self.files):
            mapped = ["--mmap", str(file)] if memory == "shared" else []
            commands.append(["taskset", "-c", str(cpu), str(self.bin / "turnout"), "verbs", "--fabric",
                             f"speed-{os.getpid()}-{self.number}", "--", program, "-s", str(size), "-n",
                             str(count), "-p", str(24000 + os.getpid() % 5000 + self.number), *mapped])
        ended = verbs_pair.run(commands[0], commands[1] + ["localhost"], LIMIT)
        line = next((text.split() for text in ended.client_text.splitlines()
                     if text.split()[:1] == [str(size)]), None)
        if not ended.good or line is None:
            raise SystemExit(f"{' '.join(commands[1])}: server {ended.server}, client {ended.client}\n"
                             f"{ended.text}")
        return [float(word) for word in line]

    def round(self):
        short = self.short
        result = {"base": self.ours("hca_baseline", "--bytes", LARGE, "--copies", 100 if short else 4000,
                                    "--handovers", 10000 if short else 2000000, "--cpus", *self.cpus)}
        for memory in MEMORY:
            # Columns: bytes, iterations, least, most, typical (median), average ... (us)
            result["lat", memory] = self.perftest("ib_write_lat", 8, 2000 if short else 300000, memory)[4] * 1e3
            # Columns: bytes, iterations, peak, average (MiB/s) ...
            result["bw", memory] = self.perftest("ib_write_bw", LARGE, 200 if short else 5000, memory)[3] * MIB
        for processes, rounds in ((2, 150000), (16, 3000)):
            result["all", processes] = self.ours("hca_alltoall", "--processes", processes, "--rounds",
                                                 50 if short else rounds)
        return result


def processor_time(result):
    return result["processor_ns"] / result["messages"]


def time_on(cores, result):
    return result["elapsed_ns"] * cores / result["messages"]


def tables(results):
    def median(get):
        return statistics.median(get(r) for r in results)

    handed = median(lambda r: r["base"]["handover_ns"])
    lines = ["## 8 B RDMA write, one way (ib_write_lat -s 8)",
             "| memory | ns | / cache-line transfer | target (at most) |", "|---|---:|---:|---:|",
             f"| cache-line transfer between two cores | {handed:.0f} | 1 | |"]
    for memory, name in MEMORY.items():
        ratio = median(lambda r, m=memory: r["lat", m] / r["base"]["handover_ns"])
        lines.append(f"| {name} | {median(lambda r, m=memory: r['lat', m]):.0f} | {ratio:.1f} | "
                     f"{'3' if memory == 'shared' else ''} |")
    lines += ["", "## 1 MiB RDMA writes (ib_write_bw -s 1048576)",
              "| memory | MiB/s | reference | MiB/s | ratio | target (at least) |", "|---|---:|---|---:|---:|---:|"]
    for (memory, name), (key, what, least) in zip(
            MEMORY.items(), (("memcpy_bytes_per_s", "memcpy", "0.5"),
                             ("writev_bytes_per_s", "process_vm_writev", "0.9"))):
        ratio = median(lambda r, m=memory, k=key: r["bw", m] / r["base"][k])
        lines.append(f"| {name} | {median(lambda r, m=memory: r['bw', m]) / MIB:,.0f} | {what} | "
                     f"{median(lambda r, k=key: r['base'][k]) / MIB:,.0f} | {ratio:.2f} | {least} |")
    lines += ["", "## All-to-all, 64 B messages over RC, on two cores",
              "| processes | CPU time per message (ns) | elapsed time per message, both cores (ns) | / CPU time of 2 "
              "processes | target (at most) |", "|---:|---:|---:|---:|---:|"]
    for processes in (2, 16):
        ratio = median(lambda r, p=processes: time_on(2, r["all", p]) / processor_time(r["all", 2]))
        lines.append(f"| {processes} | {median(lambda r, p=processes: processor_time(r['all', p])):,.0f} | "
                     f"{median(lambda r, p=processes: time_on(2, r['all', p])):,.0f} | {ratio:.2f} | "
                     f"{'3' if processes == 16 else ''} |")
    return "\n".join(lines)


def page(args, text):
    machine = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text(
        encoding="utf-8").splitlines() if line.startswith("model name")), "unknown processor")
    return f"""# Speed of the virtual adapter
Written by `bench/run_verbs.py build/release --rounds {args.rounds} --output docs/verbs-speed.md` on
{datetime.date.today().isoformat()} at commit `{commit.commit()}`; do not edit.

perftest and other verbs programs over the virtual adapter, compared with the machine's own operations in the
same rounds. Figures are medians of {args.rounds} rounds, ratios medians of the rounds' ratios. The targets are the
project's own. Machine: {machine}, two cores of {os.cpu_count()}, load {os.getloadavg()[1]:.1f} over the last
five minutes, including this command.

Memory in a shared mapping (a memfd, POSIX shared memory, a file mapped with MAP_SHARED) is detected at
registration; the initiator writes it with ordinary stores. Ordinary memory is private to its process, so the
initiator writes it with process_vm_writev, for any number of bytes.

{text}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="little work: only checks that it runs")
    parser.add_argument("--output", type=pathlib.Path, help="write the page there: docs/verbs-speed.md")
    args = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("it needs two cores")
    with tempfile.TemporaryDirectory(prefix="turnout-speed-", dir="/dev/shm") as folder:
        runner = Runner(args, pathlib.Path(folder))
        results = []
        for number in range(args.rounds):
            results.append(runner.round())
            print(f"round {number + 1}/{args.rounds}: "
                  + json.dumps({str(key): value for key, value in results[-1].items()}), flush=True)
    text = tables(results)
    print("\n" + text)
    if args.output:
        args.output.write_text(page(args, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
