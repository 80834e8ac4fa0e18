#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records the programs of bench/plan at several numbers of ranks, for tools/plan_page.py --recordings.

  bench/plan/record.py BUILD FOLDER [--ranks 8,16,32,64,128] [--programs heat,transpose] [--over turnout] [--mpi BIN]

Builds each program and runs it once with each number of ranks, as many as there are of them on this host, whatever its
number of cores. The recordings of one run are FOLDER/PROGRAM-RANKS. A run that was recorded already is left as it is;
--again records it anew. Of --times N runs the one with the least computed time is kept: the others were disturbed more.

BUILD: a build of Turnout (build/release). --over: `turnout` (`turnout run --trace`), or a provider of libfabric such as
`tcp` or `shm` (`turnout record`). --mpi: the folder of an MPICH's mpicc and mpirun; default: that of `make deps`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = sorted(path.stem for path in HERE.glob("*.c"))


def say(text):
    print(f"== {text}", flush=True)


def fail(text, log=""):
    tail = "".join(f"\n   {line}" for line in log.strip().splitlines()[-15:])
    sys.exit(f"record.py: {text}{tail}")


def found(path, remedy):
    if not path.exists():
        fail(f"{path} not found: {remedy}")
    return path


def compile_program(mpicc, name, folder):
    program = folder / name
    done = subprocess.run([mpicc, "-O2", "-Wall", "-o", program, HERE / f"{name}.c"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        fail(f"{name}.c cannot be compiled with {mpicc}; is it MPICH's and complete? `make deps` installs one.",
             done.stderr)
    return program


def computed(recordings):
    """Nanoseconds of all ranks, and how many of them are complete."""
    total = complete = 0
    for path in recordings.glob("*.recording"):
        last = ""
        with path.open() as lines:
            for last in lines:
                if last.startswith("c "):
                    total += int(last.split()[1])
        complete += last == "end\n"
    return total, complete


def record_once(turnout, mpirun, program, ranks, over, limit, to):
    if over == "turnout":
        command = [turnout, "run", "--trace", to, "--"]
    else:
        command = [turnout, "record", "--to", to, "--"]
    env = dict(os.environ, OMP_NUM_THREADS="1")
    if over != "turnout":
        env["FI_PROVIDER"] = over
        env.setdefault("FI_TCP_IFACE", "lo")
    what = f"{program.name} with {ranks} ranks over {over}"
    try:
        done = subprocess.run([*command, mpirun, "-n", str(ranks), program], capture_output=True, text=True, check=False,
                              timeout=limit, env=env)
    except subprocess.TimeoutExpired:
        fail(f"{what} took more than {limit} s: this host is too small or too busy for it; give fewer --ranks or a larger "
             "--limit")
    if done.returncode != 0:
        fail(f"{what} failed (exit code {done.returncode}). `turnout doctor` checks this host; more ranks need more memory "
             f"and processes (ulimit -u, -n).", done.stdout + done.stderr)
    total, complete = computed(to)
    if complete != ranks:
        fail(f"{what} left {complete} complete recordings; is {mpirun} the MPICH that mpicc belongs to? Is the disk full?",
             done.stdout + done.stderr)
    return total


def record(options, mpirun, program, ranks, scratch):
    kept = options.folder / f"{program.name}-{ranks}"
    if kept.is_dir() and not options.again:
        say(f"{kept}: recorded already (--again records it anew)")
        return
    best = None
    for number in range(options.times):
        to = scratch / f"{program.name}-{ranks}-{number}"
        begun = time.monotonic()
        total = record_once(options.build / "bin" / "turnout", mpirun, program, ranks, options.over, options.limit, to)
        took = time.monotonic() - begun
        say(f"{program.name}, {ranks} ranks: took {took:.1f} s; a rank computed {total / ranks / 1e6:.2f} ms")
        if best is None or total < best[0]:
            best = (total, to)
    if kept.exists():
        shutil.rmtree(kept)
    options.folder.mkdir(parents=True, exist_ok=True)
    shutil.move(best[1], kept)


def numbers(text):
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 2 or max(values) > 1024:
        raise argparse.ArgumentTypeError(f"{text}: expected numbers from 2 to 1024, separated by commas")
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=numbers, default=numbers("8,16,32,64,128"))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--over", default="turnout")
    parser.add_argument("--mpi", type=Path, default=ROOT / ".venv" / "bin")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600, help="seconds that one run may take")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    programs = options.programs.split(",")
    for name in programs:
        if name not in PROGRAMS:
            fail(f"--programs {name}: known are {', '.join(PROGRAMS)}")
    if options.times < 1:
        fail(f"--times {options.times}: expected 1 or more")
    found(options.build / "bin" / "turnout", "run `make build`, or name another build")
    mpicc = found(options.mpi / "mpicc", "run `make deps`, or name the folder of an MPICH with --mpi")
    mpirun = found(options.mpi / "mpirun", "run `make deps`, or name the folder of an MPICH with --mpi")
    with tempfile.TemporaryDirectory(prefix="turnout-record-") as text:
        scratch = Path(text)
        for name in programs:
            program = compile_program(mpicc, name, scratch)
            for ranks in options.ranks:
                record(options, mpirun, program, ranks, scratch)
    say(f"recorded; now: tools/plan_page.py {options.build}/bin/turnout docs/plan.md --recordings {options.folder}")


if __name__ == "__main__":
    main()
