#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Micro-benchmarks (bench/mpi) as MPI programs over Turnout's virtual adapter, one protocol after the other.

    bench/run_micro.py BUILD_DIR [BENCHMARK ...] [--protocol get --protocol put ...] [--rounds 3]

Benchmarks: bowtie, alltoall, overlap, bandwidth, flood, incast; each file in bench/mpi describes its own.
Runs on PyPI's MPICH, all messages over Turnout. In every round each rendezvous protocol
(TURNOUT_RENDEZVOUS) runs once, in an order that changes from round to round; figures are medians of the
rounds, and ratios are to the first protocol in the same round. Every program checks its messages. The
job's profile (`turnout report --json`) is read from the reports of each run: peak memory, which must not
exceed the budget, RNR retries, unexpected messages.

bandwidth: the bandwidth of the virtual adapter itself is measured in the same rounds (bench/hca_write_bw.cpp,
which does the same as perftest's ib_write_bw). overlap with --progress-thread: also runs with that setting,
at the computing process only and at both.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import commit

ROOT = pathlib.Path(__file__).resolve().parents[1]
BENCHMARKS = ["bowtie", "alltoall", "overlap", "bandwidth", "flood", "incast"]
PROTOCOLS = ["getcqe", "get", "rput", "putnr", "put", "auto"]
# Benchmarks with messages large enough for rendezvous.
LARGE = {"bowtie", "alltoall", "overlap", "bandwidth"}
WINDOW = 64  # of bandwidth, as osu_bw's
SIDES = ["sender", "receiver"]  # of overlap, by rank
UNITS = {"K": 1 << 10, "M": 1 << 20}


def size_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def size_name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def cases(args, benchmark):
    """(name, ranks, arguments) of each case of a benchmark."""
    short = args.short
    repeats = ["--repeats", "1" if short else "3"]
    if benchmark == "bowtie":
        ranks = args.ranks or (4 if short else 8)
        return [(f"{ranks // 2} pairs, {size_name(size)}", ranks,
                 ["--bytes", size, "--messages", 200 if short else messages, *repeats])
                for size, messages in ((1024, 20000), (65536, 2000), (1048576, 100))]
    if benchmark == "alltoall":
        ranks = args.ranks or (4 if short else 8)
        return [(f"{ranks} ranks in groups of 4, {size_name(size)}", ranks,
                 ["--group", 4, "--bytes", size, "--rounds", 20 if short else rounds, *repeats])
                for size, rounds in ((1024, 400), (16384, 200), (262144, 30))]
    if benchmark == "overlap":
        sizes = [size_of(s) for s in args.size or (["64K"] if short else
                                                   ["64K", "256K", "1M", "4M"])]
        return [(size_name(size), 2, ["--bytes", size, "--repeats", 5 if short else 25])
                for size in sizes]
    if benchmark == "bandwidth":
        sizes = [size_of(s) for s in args.size or (["64K"] if short else
                                                   ["4K", "64K", "256K", "1M", "4M"])]
        # About 2 GiB in a repeat.
        return [(f"{size_name(size)}, {buffers} buffer{'s' if buffers > 1 else ''}", 2,
                 ["--bytes", size, "--window", WINDOW, "--buffers", buffers, *repeats,
                  "--windows", 2 if short else max(4, min(1000, (2 << 30) // (WINDOW * size)))])
                for size in sizes for buffers in (1, WINDOW)]
    if benchmark == "flood":
        messages = args.messages or (20000 if short else 1000000)
        ranks = args.ranks or (3 if short else 2)
        return [(f"{messages} messages from {ranks - 1}", ranks,
                 ["--messages", messages, "--compute-ms", 50 if short else 300])]
    ranks = args.ranks or (4 if short else 8)
    return [(f"{ranks - 1} sources, {size_name(size)}", ranks,
             ["--bytes", size, "--messages", 300 if short else messages, *repeats])
            for size, messages in ((8, 40000), (1024, 20000))]


class Runner:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.number = 0
        self.bin = args.python.parent

    def compile(self, benchmark):
        subprocess.run([self.bin / "mpicc", "-O2", "-Wall", "-Wno-unused-function", "-o",
                        self.folder / benchmark, ROOT / "bench" / "mpi" / f"{benchmark}.c"],
                       check=True)

    def environment(self, protocol, reports):
        env = dict(os.environ)
        env.update(FI_PROVIDER_PATH=str(self.args.library or self.args.build.resolve() / "lib"),
                   FI_PROVIDER="turnout", TURNOUT_FABRIC=f"micro-{os.getpid()}-{self.number}",
                   TURNOUT_VERBS_PATH=str(self.args.build.resolve() / "lib" / "turnout"),
                   TURNOUT_REPORT=str(reports), TURNOUT_RENDEZVOUS=protocol,
                   MPIR_CVAR_CH4_NETMOD="ofi", MPIR_CVAR_NOLOCAL="1",
                   MPIR_CVAR_CH4_PROGRESS_THROTTLE="1",
                   MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="16")
        if self.args.budget:
            env["TURNOUT_MEMORY_BUDGET"] = self.args.budget
        return env

    def run(self, benchmark, case, way):
        """One result; `way` is a protocol, and where a thread makes progress: none, computing, both."""
        protocol, thread = way
        if thread != "computing":
            return self.start(benchmark, case, protocol, [thread == "both"] * case[1])
        first, second = (self.start(benchmark, case, protocol, [rank == side for rank in (0, 1)])
                         for side in (0, 1))
        return {**first, "receiver": second["receiver"]}

    def start(self, benchmark, case, protocol, threads):
        """`threads`: which ranks have one, all or none of more than two."""
        _, ranks, arguments = case
        self.number += 1
        reports = self.folder / f"reports-{self.number}"
        program = [self.folder / benchmark, *arguments]
        setting = ["-env", "TURNOUT_PROGRESS_THREAD", self.args.progress_thread or 0]
        if any(threads) and not all(threads):
            parts = [["-n", 1, *(setting if has else []), *program] for has in threads]
            program = [*parts[0], ":", *parts[1]]
        else:
            program = ["-n", ranks, *(setting if any(threads) else []), *program]
        command = [str(word) for word in (self.bin / "mpiexec", "-launcher", "fork", *program)]
        done = subprocess.run(command, env=self.environment(protocol, reports),
                              timeout=self.args.timeout, capture_output=True, text=True)
        line = next((l for l in done.stdout.splitlines() if l.startswith("{")), None)
        if done.returncode != 0 or line is None:
            raise SystemExit(f"{shlex.join(command)} with {protocol}: exit code "
                             f"{done.returncode}\n{done.stdout}{done.stderr}")
        result = json.loads(line)
        result["profile"] = self.profile(reports, ranks)
        return result

    def adapter(self, case):
        """The adapter's own bandwidth: RDMA writes to the same number of buffers."""
        size, buffers, windows = (case[2][case[2].index(name) + 1]
                                  for name in ("--bytes", "--buffers", "--windows"))
        self.number += 1
        command = [str(word) for word in (self.args.build / "bin" / "hca_write_bw", "--bytes", size,
                                          "--writes", WINDOW * windows, "--buffers", buffers)]
        done = subprocess.run(command, env=self.environment("getcqe", "0"), check=True,
                              timeout=self.args.timeout, capture_output=True, text=True)
        return json.loads(done.stdout)

    def profile(self, reports, ranks):
        """The job's profile; checks that it is complete and that no process exceeded the budget."""
        told = subprocess.run([self.args.build / "bin" / "turnout", "report", "--json", reports],
                              check=True, capture_output=True, text=True)
        [job] = json.loads(told.stdout)
        if job["processes"] != ranks or job["profiled"] != ranks:
            raise SystemExit(f"{job['processes']} processes reported, not {ranks}")
        for path in reports.glob("*.json"):
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["peak"] > report["budget"]:
                raise SystemExit(f"{path.name}: peak memory of {report['peak']} bytes exceeds the "
                                 f"budget of {report['budget']}")
        return job["per_process"]


def median(results, get):
    values = [get(r) for r in results]
    return statistics.median(v for v in values if v is not None) if any(
        v is not None for v in values) else None


def of_profile(key, which="max"):
    return lambda r: r["profile"].get(key, {}).get(which)


# The figure that is compared, and further columns: (heading, value, format).
MAIN = {"bowtie": ("messages/s", lambda r: r["messages_per_s"], "{:,.0f}"),
        "alltoall": ("us", lambda r: r["us"], "{:,.1f}"),
        "flood": ("received/s", lambda r: r["taken_per_s"], "{:,.0f}"),
        "incast": ("messages/s", lambda r: r["messages_per_s"], "{:,.0f}")}
MORE = {"bowtie": [("MiB/s", lambda r: r["bytes_per_s"] / (1 << 20), "{:,.0f}")],
        "alltoall": [],
        "flood": [("unexpected", of_profile("unexpected_messages"), "{:,.0f}"),
                  ("peak (MiB)", lambda r: of_profile("memory_peak")(r) / (1 << 20), "{:.1f}")],
        "incast": [("slowest source/s", lambda r: min(r["rates"]), "{:,.0f}"),
                   ("fastest source/s", lambda r: max(r["rates"]), "{:,.0f}"),
                   ("fairness", lambda r: r["fairness"], "{:.3f}"),
                   ("RNR retries", of_profile("rnr_retries", "sum"), "{:,.0f}")]}


def overlap_table(results, case_list, ways):
    lines = ["| size | protocol | thread | sender alone (us) | receiver alone (us) | sender overlap | receiver "
             "overlap |", "|---:|---|---|---:|---:|---:|---:|"]
    for case in case_list:
        for way in ways:
            runs = results[case[0], way]
            value = {side: (median(runs, lambda r, s=side: r[s]["alone_us"]),
                            median(runs, lambda r, s=side: r[s]["ratio"]))
                     for side in SIDES}
            lines.append(f"| {case[0]} | {way[0]} | {way[1]} | {value['sender'][0]:.1f} | "
                         f"{value['receiver'][0]:.1f} | {value['sender'][1]:.2f} | "
                         f"{value['receiver'][1]:.2f} |")
    return "\n".join(lines)


def bandwidth_table(results, case_list, ways, adapter):
    lines = ["| case | protocol | MPI (MiB/s) | adapter (MiB/s) | MPI / adapter |",
             "|---|---|---:|---:|---:|"]
    for case in case_list:
        for way in ways:
            runs, raw = results[case[0], way], adapter[case[0]]
            ratio = statistics.median(of_rate(a) / of_rate(b) for a, b in zip(runs, raw))
            lines.append(f"| {case[0]} | {way[0]} | {median(runs, of_rate):,.0f} | "
                         f"{median(raw, of_rate):,.0f} | {ratio:.2f} |")
    return "\n".join(lines)


def of_rate(result):
    return result["bytes_per_s"] / (1 << 20)


def table(benchmark, results, case_list, ways, adapter):
    if benchmark == "overlap":
        return overlap_table(results, case_list, ways)
    if benchmark == "bandwidth":
        return bandwidth_table(results, case_list, ways, adapter)
    heading, get, form = MAIN[benchmark]
    more = MORE[benchmark]
    head = ["case", "protocol", heading, f"relative to {ways[0][0]}", *(m[0] for m in more)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for case in case_list:
        for way in ways:
            runs, first = results[case[0], way], results[case[0], ways[0]]
            ratio = statistics.median(get(a) / get(b) for a, b in zip(runs, first))
            row = [case[0], way[0], form.format(median(runs, get)), f"{ratio:.2f}"]
            for _, value, text in more:
                v = median(runs, value)
                row.append("-" if v is None else text.format(v))
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def page(args, tables):
    command = shlex.join(["bench/run_micro.py", "BUILD_DIR", *sys.argv[2:]])
    load = os.getloadavg()[1]
    return f"""# Micro-benchmarks
Written by `{command}` on {datetime.date.today().isoformat()} at
commit `{commit.commit()}`; do not edit.

MPI programs of bench/mpi over Turnout's virtual adapter, between processes of one host. There the CPU of the
process that posts a request also does the copying; no adapter works in parallel. Medians of {args.rounds}
rounds, in each of which every rendezvous protocol runs once, in turn; ratios are medians of the rounds'
ratios. {len(os.sched_getaffinity(0))} cores, load {load:.1f} over the last five minutes, including this
command. A load above the number of cores means that other work ran at the same time, and single figures are
unreliable. overlap: the part of a transfer that overlaps with a computation on one side, 1 at best; a value
below 0 means that the transfer took longer. bandwidth: the adapter column is RDMA writes by
bench/hca_write_bw.cpp, like ib_write_bw's, to as many buffers as MPI receives into; a single one stays in
the caches.

""" + "\n\n".join(tables) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("benchmark", nargs="*", help=f"{', '.join(BENCHMARKS)}; all of them")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS,
                        help="repeatable; default: all if the messages are large, else getcqe")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--size", action="append",
                        help="for overlap and bandwidth: 64K, 1M; repeatable")
    parser.add_argument("--progress-thread", help="for overlap: also run with this TURNOUT_PROGRESS_THREAD")
    parser.add_argument("--messages", type=int, help="for flood")
    parser.add_argument("--budget", help="TURNOUT_MEMORY_BUDGET")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="little work: only checks that it runs")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("--library", type=pathlib.Path, help="folder of another libturnout-fi.so")
    parser.add_argument("--python", type=pathlib.Path, default=pathlib.Path(sys.executable),
                        help="the virtual environment with mpich")
    parser.add_argument("--output", type=pathlib.Path, help="write the page there: docs/micro.md")
    parser.add_argument("--json", type=pathlib.Path, help="write the results of all runs there")
    args = parser.parse_args()
    unknown = [name for name in args.benchmark if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]}; known: {', '.join(BENCHMARKS)}")
    tables, listed = [], []
    with tempfile.TemporaryDirectory(prefix="turnout-micro-") as folder:
        runner = Runner(args, pathlib.Path(folder))
        for benchmark in args.benchmark or BENCHMARKS:
            runner.compile(benchmark)
            protocols = args.protocol or (PROTOCOLS if benchmark in LARGE else ["getcqe"])
            threads = ["none"]
            if benchmark == "overlap" and args.progress_thread:
                threads += ["computing", "both"]
            ways = [(protocol, thread) for protocol in protocols for thread in threads]
            case_list = cases(args, benchmark)
            results = {(case[0], way): [] for case in case_list for way in ways}
            adapter = {case[0]: [] for case in case_list}
            for r in range(args.rounds):
                at = r % len(ways)
                for case in case_list:
                    if benchmark == "bandwidth":
                        adapter[case[0]].append(runner.adapter(case))
                    for way in ways[at:] + ways[:at]:
                        result = runner.run(benchmark, case, way)
                        results[case[0], way].append(result)
                        shown = {k: v for k, v in result.items() if k != "profile"}
                        thread = "" if way[1] == "none" else f", thread: {way[1]}"
                        print(f"round {r + 1}/{args.rounds} {way[0]:7} {case[0]}{thread}: "
                              f"{json.dumps(shown)}", flush=True)
            tables.append(f"## {benchmark}\n{table(benchmark, results, case_list, ways, adapter)}")
            listed += [{"benchmark": benchmark, "case": case, "protocol": way[0], "thread": way[1],
                        "runs": runs} for (case, way), runs in results.items()]
            listed += [{"benchmark": "hca_write_bw", "case": case, "runs": runs}
                       for case, runs in adapter.items() if runs]
    if args.json:
        args.json.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    print(f"\n{len(os.sched_getaffinity(0))} cores, median of {args.rounds} rounds\n")
    print("\n\n".join(tables))
    if args.output:
        args.output.write_text(page(args, tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
