#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs mpi4py's own test suite over libfabric providers and compares the tests that pass.

    mpi4py_suite.py --np 2 --np 4 --provider tcp --provider turnout [--lib BUILD/lib] [--only REGEX]
                    [--mpi mpich | open_mpi_5 | open_mpi_4 | intel_mpi]

The providers "ucx", "ucx_rc_mlx5" and "ucx_dc_mlx5" are none of libfabric: MPICH's UCX, on the verbs of the
virtual adapter, or with the system's own libmlx5 on the emulated mlx5; "turnout_mlx5" is Turnout there
(--lib says where they are, beside `turnout verbs`).

The suite comes from mpi4py's source distribution, of the version that is installed beside this
Python, fetched once into --cache (no network is used when it is there). Every test module is one job
under mpiexec of the installed MPICH, so a crash ends one module only; a test that crashes or hangs is
noted, excluded, and the rest of its module is run again. The exit code is 0 when every test that
passes over the first provider passes over the others too.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from mpi_libraries import CACHE, HERE, MPIS, UCX, environment, verbs_command
from source_distribution import fetch
# From good to bad; of the outcomes of one test on all ranks the worst counts.
ORDER = ["skip", "pass", "fail", "error", "crash", "hang"]
# Tests whose outcome hangs on a fault of MPICH or mpi4py and on timing, whatever the provider: run and
# shown, but no difference counts. (pattern of the test's name, package, its version, reason)
KNOWN = [
    (r"test_comm_topo\..*\.testDistgraphcomm$", "mpich", "5.0.2",
     "MPICH's any-source probe and receive see different messages when one is the rank's own "
     "(tests/mpi/mpich_probe_self.c shows it over tcp)"),
    (r"test_util_sync\.Test(Mutex|Condition|Semaphore)\w*World\.", "mpi4py", "4.1.2",
     "mpi4py's Mutex stands in the queue before its own Accumulate that empties `next` is complete, so "
     "that may undo the Accumulate of the one behind: both wait for ever (over tcp too, now and then, on a "
     "busy machine); its Condition has a Mutex, and its Semaphore a Condition"),
    (r"test_rma\.\w+\.testStartCompletePostTest$", "mpi4py", "4.1.2",
     "it takes for granted that rank 0's MPI_Win_complete, a message of its own, has come before the last "
     "message of a barrier from another rank; over Turnout it does not once in 10,000 times, while the "
     "pair changes its channel, and MPI promises nothing of the kind"),
]
OTHERS = {  # MPI library -> [(pattern, reason)]
    "intel_mpi": [
        (r"test_win\.TestWinCreateDynamic\w+\.test(Memory|AttachDetach|Attributes|GetAttr)$",
         "where the provider has one-sided operations, Intel MPI tells the size of the whole address space as that of a "
         "dynamic window, as MPICH did before 3.4; over tcp it emulates them"),
    ],
}
RERUNS = 12  # of a module, each without the test that did not end before


def newest_line(record: pathlib.Path) -> float:
    """When any rank last wrote to its record."""
    return max((f.stat().st_mtime for f in record.glob("rank-*")), default=0.0)


def run_job(command, env, record, suite, module, excluded, timeout, log):
    """One job of the launcher; returns its exit code, or None when no rank began or ended a test for `timeout`
    seconds and the job was killed."""
    command = command + [sys.executable, str(HERE / "suite_rank.py"), str(record), str(suite / "test"),
                         "--no-builddir"]
    for name in excluded:
        command += ["-x", f"*{name}"]
    # unittest's own options end before the names of modules
    command += [module]
    with log.open("ab") as out:
        out.write((" ".join(command) + "\n").encode())
        out.flush()
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        started, code = time.time(), None
        while code is None and time.time() - max(started, newest_line(record)) < timeout:
            try:
                code = process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        # the session is ours: whatever is left of the job ends with it
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    kill_leftovers(record)
    return code


def kill_leftovers(record: pathlib.Path):
    """The launcher puts ranks into sessions of their own: end those that name our folder."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            if str(record).encode() in arguments:
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue


def read_records(record: pathlib.Path):
    """(outcomes: test -> worst outcome of all ranks, open: tests that some rank never ended)."""
    outcomes, unfinished = {}, []
    for file in sorted(record.glob("rank-*")):
        current = None
        for line in file.read_text(encoding="utf-8").splitlines():
            outcome, _, test = line.partition(" ")
            if outcome == "start":
                current = test
                continue
            if outcome in ORDER:
                worst = max(outcome, outcomes.get(test, "skip"), key=ORDER.index)
                outcomes[test] = worst
                if test == current:
                    current = None
        if current is not None:
            unfinished.append(current)
    return outcomes, unfinished


def run_module(command, env, suite, module, timeout, folder: pathlib.Path):
    """test -> outcome for one module, however often it has to be started."""
    outcomes, excluded = {}, []
    for attempt in range(RERUNS):
        with tempfile.TemporaryDirectory(prefix="turnout-suite-") as record:
            code = run_job(command, env, pathlib.Path(record), suite, module, excluded, timeout,
                           folder / f"{module}.log")
            seen, unfinished = read_records(pathlib.Path(record))
        for test, outcome in seen.items():
            outcomes[test] = max(outcome, outcomes.get(test, "skip"), key=ORDER.index)
        if not unfinished:
            if code not in (0, 1):
                outcomes[f"{module}.(whole module)"] = "hang" if code is None else "crash"
            break
        # A rank that failed goes on to the next test alone: to blame is the test that other ranks have
        # behind them, the later one is run again.
        blamed = next((t for t in unfinished if t in seen), unfinished[0])
        outcomes[blamed] = "hang" if code is None else "crash"
        excluded.append(blamed)
        print(f"    {blamed}: {outcomes[blamed]}, module started again without it", flush=True)
    else:
        outcomes[f"{module}.(whole module)"] = "crash"
    return outcomes


def known_reason(test, mpi):
    """Why a difference in this test says nothing of the provider, or None."""
    known = [(pattern, reason) for pattern, package, version, reason in KNOWN
             if (package != "mpich" or mpi == "mpich") and importlib.metadata.version(package) == version]
    return next((reason for pattern, reason in known + OTHERS.get(mpi, []) if re.search(pattern, test)), None)


def run_suite(args, suite, provider, np):
    modules = sorted(p.stem for p in (suite / "test").glob("test_*.py"))
    if args.only:
        modules = [m for m in modules if re.search(args.only, m)]
    folder = args.out / f"{provider}-{np}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lib = args.lib if provider.startswith("turnout") else None
    mpi, outcomes = MPIS[args.mpi], {}
    for module in modules:
        started = time.monotonic()
        env = environment(mpi, provider, lib, f"suite-{os.getpid()}-{np}")
        verbs = verbs_command(args.lib.parent, provider) if args.lib else []
        part = run_module(verbs + mpi.command(np), env, suite, module, args.timeout, folder)
        outcomes.update(part)
        counts = collections.Counter(part.values())
        text = " ".join(f"{counts[o]} {o}" for o in ORDER if counts[o])
        print(f"  {provider} np={np} {module}: {text} ({time.monotonic() - started:.1f} s)",
              flush=True)
        (folder / "outcomes.json").write_text(json.dumps(outcomes, indent=0, sort_keys=True))
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--np", type=int, action="append", help="processes (repeatable)")
    parser.add_argument("--provider", action="append", help="the first one is the yardstick")
    parser.add_argument("--mpi", choices=MPIS, default="mpich", help="the MPI library (default: mpich)")
    parser.add_argument("--lib", type=pathlib.Path, help="folder of libturnout-fi.so")
    parser.add_argument("--only", help="regular expression of module names")
    parser.add_argument("--timeout", type=float, default=45, help="seconds for one test")
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE)
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="folder for logs and outcomes (a temporary one by default)")
    parser.add_argument("--baseline", type=pathlib.Path, action="append", default=[],
                        help="outcomes.json to compare with instead of running the first provider")
    parser.add_argument("--fetch", action="store_true", help="fetch the suite and stop")
    args = parser.parse_args()
    suite = fetch("mpi4py", importlib.metadata.version("mpi4py"), args.cache)
    if args.fetch:
        return 0
    providers = args.provider or ["tcp", "turnout"]
    if not {"turnout", "turnout_mlx5", *UCX}.isdisjoint(providers) and args.lib is None:
        parser.error("--lib: the folder of libturnout-fi.so is needed")
    if args.lib is not None:
        args.lib = args.lib.resolve()
    if args.out is None:
        args.out = pathlib.Path(tempfile.mkdtemp(prefix="turnout-suite-out-"))
    bad = 0
    for index, np in enumerate(args.np or [2, 4]):
        results = {}
        for provider in providers:
            if provider == providers[0] and index < len(args.baseline):
                results[provider] = json.loads(args.baseline[index].read_text())
            else:
                results[provider] = run_suite(args, suite, provider, np)
        print(f"\nmpi4py {suite.name.removeprefix('mpi4py-')} with {args.mpi}, {np} processes")
        for provider in providers:
            counts = collections.Counter(results[provider].values())
            print(f"  {provider:10}" + "".join(f" {counts[o]:5} {o}" for o in ORDER))
            for test, outcome in sorted(results[provider].items()):
                if outcome not in ("pass", "skip"):
                    print(f"      {outcome:6} {test}")
        yardstick = results[providers[0]]
        if "pass" not in yardstick.values():
            raise SystemExit(f"no test passes over {providers[0]}: nothing to compare with; see {args.out}")
        for provider in providers[1:]:
            worse = [(t, results[provider].get(t, "not run")) for t, o in sorted(yardstick.items())
                     if o == "pass" and results[provider].get(t) != "pass"
                     and (not args.only or re.search(args.only, t.split(".")[0]))]
            known = [(t, o, reason) for t, o in worse for reason in [known_reason(t, args.mpi)] if reason]
            worse = [(t, o) for t, o in worse if not known_reason(t, args.mpi)]
            better = [t for t, o in sorted(results[provider].items())
                      if o == "pass" and yardstick.get(t, "pass") not in ("pass", "skip")]
            print(f"  {len(worse)} tests pass over {providers[0]} but not over {provider}"
                  f"{':' if worse else ''}")
            for test, outcome in worse:
                print(f"      {outcome:8} {test}")
            for test, outcome, reason in known:
                print(f"  not counted: {outcome} {test}: {reason}")
            if better:
                print(f"  {len(better)} tests pass over {provider} but not over {providers[0]}")
            bad += len(worse)
    print(f"logs and outcomes: {args.out}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
