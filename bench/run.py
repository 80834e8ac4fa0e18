#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turnout and what people compare it with, in one run; writes docs/benchmarks.md.

    bench/run.py BUILD_DIR [--rounds 5] [--part latency --part collectives --part start] [--output FILE]

Latency and rate at two levels: tagged messages through Debian's libfabric (fi_pingpong), and MPI through PyPI's MPICH
(mpi_pingpong, compiled here with the wheel's mpicc); then run_collectives.py and run_start.py. In every round each
contender (see contenders.py) runs once, in an order that changes from round to round, so that other load on the machine
affects all of them equally. Ratios are the medians of the rounds' ratios.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import types

import commit
import contenders
import cores
import run_collectives
import run_start

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = [8, 64, 1024, 4096, 8192, 16384, 32768, 65536, 262144, 1048576]
PARTS = ["latency", "collectives", "start"]
BEST = {"libfabric": ["shm"], "MPI": ["shm", "ucx_shm", "native"]}
KINDS = {"one_way_ns": "latency", "message_ns": "rate"}


def run(command, env, timeout):
    done = subprocess.run(command, env=env, timeout=timeout, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n"
                         f"{done.stdout}{done.stderr}")
    line = json.loads(next(l for l in done.stdout.splitlines() if l.startswith("{")))
    return {kind: {int(size): ns for size, ns in line[key].items()} for key, kind in KINDS.items()}


def libfabric_level(args, contender, number):
    env = contenders.environment(args.build, contender, f"bench-{os.getpid()}-f{number}")
    env.pop("FI_PROVIDER", None)
    command = contenders.command(args.build, contender, args.build / "bin" / "fi_pingpong", "--provider",
                                 contenders.LIBFABRIC[contender], "--json", "--warm-up", str(args.warm_up),
                                 "--duration", str(args.seconds))
    for size in args.size:
        command += ["--size", str(size)]
    return run(command, env, args.timeout)


def mpi_level(args, contender, number, program):
    env = contenders.environment(args.build, contender, f"bench-{os.getpid()}-m{number}")
    command = contenders.command(args.build, contender, args.python.parent / "mpiexec", "-launcher", "fork", "-n", "2",
                                 program, str(args.warm_up), str(args.seconds), *map(str, args.size))
    return run(command, env, args.timeout)


def compile_mpi_program(args, folder):
    program = folder / "mpi_pingpong"
    subprocess.run([args.python.parent / "mpicc", "-O2", "-o", program, ROOT / "bench" / "mpi_pingpong.c"], check=True)
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


def latency(args):
    """Of each level, the rounds: by contender, latency and rate by size; and a sentence about the cores."""
    levels = {"libfabric": [], "MPI": []}
    pair = cores.Cores(args.build)
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        program = compile_mpi_program(args, pathlib.Path(folder))
        measured = {"libfabric": (libfabric_level, contenders.LIBFABRIC),
                    "MPI": (lambda *at: mpi_level(*at, program), contenders.MPI)}
        number = 0
        for r in range(args.rounds):
            for level, (measure, all_of) in measured.items():
                levels[level].append({})
                for contender in contenders.in_turn(list(all_of), r):
                    number += 1
                    pair.look()
                    levels[level][-1][contender] = found = measure(args, contender, number)
                    first = args.size[0]
                    print(f"round {r + 1}/{args.rounds} {level:9} {contender:8} {size_name(first)}: one way "
                          f"{found['latency'][first]:.0f} ns, a message {found['rate'][first]:.0f} ns", flush=True)
    return levels, pair.text()


def latency_text(args):
    levels, distance = latency(args)

    def of(level, kind):
        rounds = [{c: found[kind] for c, found in r.items()} for r in levels[level]]
        return contenders.table(rounds, BEST[level], head="size", row_name=size_name)

    return f"""## MPI, through MPICH {importlib.metadata.version("mpich")} (PyPI)
`bench/mpi_pingpong.c`: MPI_Send and MPI_Recv, half of a round trip; and windows of 64 MPI_Isend, the time of a message.
`best` is the lowest of shm, UCX shm and MPICH's own in each round. Over the providers of libfabric and over UCX MPICH's
own shared memory is off (`MPIR_CVAR_NOLOCAL=1`).
{distance}

Latency:

{of("MPI", "latency")}

Rate:

{of("MPI", "rate")}

## Tagged messages through libfabric {libfabric_version()}
`bench/fi_pingpong.cpp`: the same with `fi_tsend`/`fi_tinject` and `fi_trecv`.

Latency:

{of("libfabric", "latency")}

Rate:

{of("libfabric", "rate")}
"""


def collectives_text(args):
    of = types.SimpleNamespace(build=args.build, rounds=min(args.rounds, 3), milliseconds=40, timeout=300,
                               python=args.python)
    tables = "\n".join(run_collectives.measure(of, run_collectives.PEERS, [2, 4, 8, 16]))
    return f"""## Collective operations, and more ranks than cores
`bench/run_collectives.py`, {of.rounds} rounds, with MPICH's launcher as it is.

{tables}"""


def start_text(args):
    of = types.SimpleNamespace(build=args.build, rounds=args.rounds, late=0, python=args.python)
    times, memory, stuck = run_start.measure(of, run_start.PEERS, [2, 8, 32])
    return f"""## Start and end
`bench/run_start.py`: the whole command of a program that calls MPI_Init, one MPI_Allreduce and MPI_Finalize
({stuck} runs of other contenders than Turnout were stuck, and their rounds left out).

{times}
Resident memory of a rank, shared pages divided among those that share them:

{memory}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--warm-up", type=float, default=1.5,
                        help="seconds; longer than TURNOUT_INTERVAL, so that channels are chosen")
    parser.add_argument("--seconds", type=float, default=0.1, help="for one size and kind")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run")
    parser.add_argument("--python", type=pathlib.Path, default=pathlib.Path(sys.executable))
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "benchmarks.md")
    args = parser.parse_args()
    args.size = args.size or SIZES
    writers = {"latency": latency_text, "collectives": collectives_text, "start": start_text}
    parts = [writers[part](args) for part in args.part or PARTS]
    # the command as anyone would type it, without this machine's paths
    command = " ".join(["bench/run.sh", "BUILD_DIR", *sys.argv[2:]])
    text = f"""# Benchmarks
Written by `make bench` (`{command}`) on {datetime.date.today().isoformat()} at
commit `{commit.commit()}`; do not edit.

Turnout on its virtual adapter, between processes of one host, and what people use there. Latency and rate are of two
processes, each pinned to its own core, with ordinary heap memory. There are {args.rounds} rounds; in each every
contender runs once, in turn, so that all see the same conditions. Turnout's times are medians of the rounds; **ratios
are Turnout's time divided by the other's**, medians of the rounds' ratios, below 1 where Turnout is faster. Every run
of latency and rate starts with {args.warm_up:g} s of 8-byte messages, during which Turnout selects the channel.
`verbs;ofi_rxm`, UCX rc and UCX ud run on the same virtual adapter; UCX shm is UCX's posix and cma.

Machine: {machine()}.

""" + "\n".join(parts)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
