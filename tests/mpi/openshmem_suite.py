#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""shmem4py's own tests (OpenSHMEM from Python) on Debian's OpenSHMEM, which is Open MPI's over UCX, on the verbs
of Turnout's virtual adapter.

    openshmem_suite.py BUILD_DIR [--pes 2 --pes 4]

Every test has to pass on every PE, over each of UCX's transports for verbs. Those are left out that call
shmem_test_lock or shmem_wait_until_some: Open MPI 4.1.4 makes no progress in their loops, which UCX needs where it
executes atomics of 4 bytes on the target's processor. Over tcp shmem_test_lock waits for ever, too.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from mpi_libraries import AS_ROOT, CACHE
from source_distribution import fetch

PYTHON = CACHE / "openshmem" / "bin" / "python"
VERSION = "1.0.0"
TRANSPORTS = ["rc_verbs,ud_verbs,self", "ud_verbs,self"]
LEFT_OUT = re.compile(r"test_lock\..*\.test(TestLock|NonBlocking)|test_sync\..*\.testSome")
LEAST = 95  # of its 104 tests
LIMIT = 60  # seconds


def rank(record):
    """One PE. It tells its result before the end of Python, where Debian's OpenSHMEM ends by a signal, whatever
    the transport."""
    import unittest

    def tests(suite):
        for part in suite:
            yield from tests(part) if isinstance(part, unittest.TestSuite) else [part]

    found = tests(unittest.defaultTestLoader.discover("."))
    chosen = unittest.TestSuite(test for test in found if not LEFT_OUT.match(test.id()))
    result = unittest.TextTestRunner(verbosity=2).run(chosen)
    bad = [str(test) for test, _ in result.failures + result.errors]
    skipped = [f"{test}: {why}" for test, why in result.skipped]
    path = pathlib.Path(record) / os.environ["OMPI_COMM_WORLD_RANK"]
    path.write_text(json.dumps({"run": result.testsRun, "bad": bad, "skipped": skipped}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--pes", type=int, action="append")
    args = parser.parse_args()
    suite = fetch("shmem4py", VERSION, CACHE)
    for transport in TRANSPORTS:
        for pes in args.pes or [2, 4]:
            with tempfile.TemporaryDirectory(prefix="openshmem-suite-") as record:
                env = dict(os.environ, UCX_TLS=transport, UCX_NET_DEVICES="turnout0:1", UCX_RC_TIMEOUT="20ms",
                           TURNOUT_FABRIC=f"openshmem-{os.getpid()}", **AS_ROOT)
                command = [args.build.resolve() / "bin" / "turnout", "verbs", "--", "oshrun", "--oversubscribe",
                           "--mca", "mpi_yield_when_idle", "1", "--mca", "spml_ucx_async_progress", "1", "-n", pes,
                           PYTHON, pathlib.Path(__file__).resolve(), "--rank", record]
                done = subprocess.run([str(word) for word in command], env=env, cwd=suite / "test", text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
                results = [json.loads(file.read_text()) for file in pathlib.Path(record).iterdir()]
                what = f"{transport}, {pes} PEs"
                if len(results) != pes or any(r["run"] < LEAST or r["bad"] for r in results):
                    raise SystemExit(f"{what}: {results}\n{done.stdout[-6000:]}")
                print(f"{what}: {results[0]['run']} tests, none fails; skipped: {len(results[0]['skipped'])}", flush=True)
    for reason in results[0]["skipped"]:
        print(f"  {reason}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2])
    else:
        main()
