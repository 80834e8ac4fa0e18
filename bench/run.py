#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ping-pong latency of Turnout and of libfabric's shm and tcp providers; writes docs/benchmarks.md.

    bench/run.py BUILD_DIR [--rounds 5] [--provider turnout --provider shm --provider tcp]

Two levels: tagged messages through Debian's libfabric (fi_pingpong), and MPI_Send/MPI_Recv through
PyPI's MPICH and the libfabric it bundles (mpi_pingpong, compiled here with the wheel's mpicc). In every
round each provider runs once, in an order that changes from round to round, so that other load on the
machine affects all of them equally; each figure is the median of the rounds.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import commit

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = [8, 64, 1024, 4096, 16384, 65536, 262144, 1048576]
NAMES = {"turnout": "Turnout", "shm": "shm", "tcp": "tcp"}


def environment(provider, build, fabric):
    env = dict(os.environ)
    env["FI_PROVIDER_PATH"] = str((build / "lib").resolve())
    env["TURNOUT_FABRIC"] = fabric
    env.setdefault("FI_TCP_IFACE", "lo")
    return env


def run(command, env, timeout):
    done = subprocess.run(command, env=env, timeout=timeout, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n"
                         f"{done.stdout}{done.stderr}")
    line = next(l for l in done.stdout.splitlines() if l.startswith("{"))
    return {int(size): ns for size, ns in json.loads(line)["one_way_ns"].items()}


def libfabric_level(args, provider, number):
    env = environment(provider, args.build, f"bench-{os.getpid()}-f{number}")
    command = [args.build / "bin" / "fi_pingpong", "--provider", provider, "--json",
               "--warm-up", str(args.warm_up), "--duration", str(args.seconds)]
    for size in args.size:
        command += ["--size", str(size)]
    return run(command, env, args.timeout)


def mpi_level(args, provider, number, program):
    env = environment(provider, args.build, f"bench-{os.getpid()}-m{number}")
    env.update(MPIR_CVAR_CH4_NETMOD="ofi", MPIR_CVAR_NOLOCAL="1", FI_PROVIDER=provider)
    mpiexec = pathlib.Path(sys.executable).parent / "mpiexec"
    command = [mpiexec, "-launcher", "fork", "-n", "2", program, str(args.warm_up),
               str(args.seconds), *map(str, args.size)]
    return run(command, env, args.timeout)


def compile_mpi_program(folder):
    mpicc = pathlib.Path(sys.executable).parent / "mpicc"
    program = folder / "mpi_pingpong"
    subprocess.run([mpicc, "-O2", "-o", program, ROOT / "bench" / "mpi_pingpong.c"], check=True)
    return program


def machine():
    """Facts that affect the figures, and nothing that identifies the machine."""
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    virtual = "hypervisor" in pathlib.Path("/proc/cpuinfo").read_text()
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    system = "Linux"
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        pass
    return (f"{model}, {len(os.sched_getaffinity(0))} cores usable"
            f"{' (virtual machine)' if virtual else ''}, "
            f"{int(memory.group(1)) // (1 << 20)} GiB memory, {system}, "
            f"kernel {platform.release()}")


def libfabric_version():
    done = subprocess.run(["fi_info", "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"libfabric: (\S+)", done.stdout)
    return match.group(1) if match else "of the system"


def size_name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def time_name(ns):
    return f"{ns / 1000:.2f}"


def table(results, providers, sizes):
    """Medians in microseconds and Turnout's ratios to the others."""
    median = {p: {s: statistics.median(r[s] for r in results[p]) for s in sizes} for p in providers}
    others = [p for p in providers if p != "turnout"] if "turnout" in providers else []
    head = ["size"] + [f"{NAMES.get(p, p)} (us)" for p in providers]
    head += [f"Turnout / {NAMES.get(p, p)}" for p in others]
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for size in sizes:
        row = [size_name(size)] + [time_name(median[p][size]) for p in providers]
        row += [f"{median['turnout'][size] / median[p][size]:.2f}" for p in others]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines), median


def spread(results, providers, sizes):
    lines = []
    for p in providers:
        for s in (sizes[0], sizes[-1]):
            values = sorted(r[s] for r in results[p])
            lines.append(f"| {NAMES.get(p, p)} | {size_name(s)} | {time_name(values[0])} | "
                         f"{time_name(values[-1])} |")
    return "\n".join(["| provider | size | lowest (us) | highest (us) |", "|---|---:|---:|---:|",
                      *lines])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--provider", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--warm-up", type=float, default=2.0,
                        help="seconds; longer than TURNOUT_INTERVAL, so that channels are chosen")
    parser.add_argument("--seconds", type=float, default=0.4, help="for one size")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "benchmarks.md")
    args = parser.parse_args()
    providers = args.provider or ["turnout", "shm", "tcp"]
    args.size = args.size or SIZES
    levels = {"libfabric": {p: [] for p in providers}, "MPI": {p: [] for p in providers}}
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        program = compile_mpi_program(pathlib.Path(folder))
        number = 0
        for r in range(args.rounds):
            order = providers[r % len(providers):] + providers[:r % len(providers)]
            for provider in order:
                number += 1
                levels["libfabric"][provider].append(libfabric_level(args, provider, number))
                levels["MPI"][provider].append(mpi_level(args, provider, number, program))
                f, m = levels["libfabric"][provider][-1], levels["MPI"][provider][-1]
                first, last = args.size[0], args.size[-1]
                print(f"round {r + 1}/{args.rounds} {provider:8} {size_name(first)}: libfabric "
                      f"{time_name(f[first])} us, MPI {time_name(m[first])} us; "
                      f"{size_name(last)}: {time_name(f[last])} us, {time_name(m[last])} us",
                      flush=True)
    libfabric_table, _ = table(levels["libfabric"], providers, args.size)
    mpi_table, _ = table(levels["MPI"], providers, args.size)
    # the command as anyone would type it, without this machine's paths
    options = [a for a in sys.argv[2:]]
    command = " ".join(["bench/run.sh", "BUILD_DIR", *options])
    mpich = importlib.metadata.version("mpich")
    system = libfabric_version()
    text = f"""# Benchmarks
Written by `make bench` (`{command}`) on {datetime.date.today().isoformat()} at
commit `{commit.commit()}`; do not edit.

One-way latency (half the round trip) of a ping-pong between two processes, each pinned to its own core.
There are {args.rounds} rounds. In each round every provider runs once, in turn, so that all see the same
conditions. A figure is the median over the rounds of the median over the batches of a round. Every run
starts with {args.warm_up:g} s of 8-byte messages, during which Turnout selects the channel. Buffers are
ordinary heap memory. Turnout runs on its virtual adapter, between processes of one host. Other patterns
(overlap, bandwidth compared with the adapter, ...) are in [micro.md](micro.md).

Machine: {machine()}.

## Tagged messages through libfabric {system}
`fi_tsend`/`fi_tinject` and `fi_trecv` (`bench/fi_pingpong.cpp`).

{libfabric_table}

Range over the rounds:

{spread(levels["libfabric"], providers, args.size)}

## MPI_Send and MPI_Recv through MPICH {mpich} (PyPI) and the libfabric it bundles
`bench/mpi_pingpong.c`. MPICH's own shared memory is off (`MPIR_CVAR_NOLOCAL=1`); `FI_PROVIDER` selects
the provider.

{mpi_table}

Range over the rounds:

{spread(levels["MPI"], providers, args.size)}
"""
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
