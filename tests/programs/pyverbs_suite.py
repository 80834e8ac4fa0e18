#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdma-core's own tests (Debian's package rdma-core, run with pyverbs) on the virtual adapter.

    pyverbs_suite.py BUILD [--mlx5 [--rdma-core TREE]] [--least N] [--markdown]

All tests run in one process under `turnout verbs`, with the adapter as a ConnectX-5; with --mlx5 over the
system's own libibverbs and libmlx5, on the emulated device below them, or those of another version's sources
(TREE, built in TREE/build with -DIN_PLACE=1) and their tests. None may fail, at least N must pass, and whatever is skipped must be skipped for a reason of the table below, which says of
each whether a real ConnectX-5 would skip it, too. With --markdown the table of skips is printed, as it
stands in docs/virtual-adapter.md.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path("/usr/share/doc/rdma-core/tests")
LEAST = 150
LEAST_MLX5 = 172
LIMIT = 900  # seconds

# Reasons for skipping, as the tests tell them: (pattern, real, why). real: a ConnectX-5 on an InfiniBand port
# of a host without what the test wants skips it as well.
SKIPS = [
    (r"on Ethernet link layer", True, "the port is InfiniBand"),
    (r"RAW QP must be done by root on Ethernet", True, "the port is InfiniBand"),
    (r"Link layer of port=\d+ is InfiniBand", True, "the port is InfiniBand"),
    (r"No supported port is up", True, "RoCE test: the port is InfiniBand"),
    (r"over non EFA device", True, "tests of Amazon's EFA adapter"),
    (r"Allocating dmabuf is not supported|renderD\d+ is not present", True, "no GPU"),
    (r"cuda-python", True, "no CUDA"),
    (r"Crypto login details must be supplied", True, "no crypto credentials of a ConnectX-6 Dx"),
    (r"PCI device must be passed by the user", True, "VFIO: no PCI device given"),
    (r"There are no huge pages", True, "the host has no huge pages"),
    (r"scapy package is needed", True, "scapy is not installed"),
    (r"Create memory window of type 3", True, "no such type"),
    (r"MEMIC atomic operations are not supported", True, "device memory that counts: of later adapters"),
    (r"NIC flow table does not support reformat", True, "packets that are changed on their way: of an Ethernet port"),
    (r"Packet pacing entry allocation", True, "packet pacing: of an Ethernet port"),
    (r"All gid indices populated", True, "needs an adapter with a full GID table"),
    (r"Create Mlx5DV QP is not supported", False,
     "interleaved and signature memory keys, DMA copies, raw work requests: not emulated"),
    (r"DevX|VAR allocation|UAR allocation", False, "VAR, and on the virtual adapter DevX and UAR: commands of mlx5's firmware, not emulated"),
    (r"LAG affinity|schedule elements", False, "mlx5 LAG and scheduling elements: not emulated"),
    (r"CQE compression with stride index", False, "this CQE compression format is not reported as supported"),
    (r"Create Mkey is not supported", False, "memory keys of several regions: not emulated"),
    (r"Mapping AH to QP|ODP is not supported using DC", False, "DC: what libmlx5 asks firmware for (DevX), not emulated"),
    (r"DCI caps is not supported", False, "streams of a DCI: libmlx5 resets them by firmware commands (DevX), not emulated"),
    (r"Alloc reserved QP number|SkipTest occurred on (passive|active) side", False,
     "reserved numbers of queue pairs: libmlx5 has them by firmware commands (DevX), not emulated"),
    (r"Tag matching is not supported", False, "hardware tag matching: not emulated"),
    (r"Extended CQ is not supported|Extended QP is not supported", False,
     "hardware tag matching and IP packet offloads: not emulated"),
    # Of versions after 44.
    (r"SRQ resize is not supported", True, "mlx5 does not resize shared receive queues"),
    (r"DV QP OOO|IBV_ACCESS_FLUSH_GLOBAL|ODP is unavailable|DMA Handle|CC_DMA_BOUNCE", True,
     "out-of-order receives, flushes, DMA handles, memory of confidential hosts: of later adapters"),
    (r"FDs file not found", True, "files that a privileged process hands over: none"),
    (r"No PHC", True, "no clock of an Ethernet port"),
    (r"dmabuf export is not supported|allocate VAR|ibv_query_port_speed|Could not find the PCI device", False,
     "doorbells and device memory as dma-buf, VAR, speeds of ports, packet steering: not emulated"),
]

RUNNER = """
import json, sys, unittest
sys.path.insert(0, sys.argv[1])
out = open(sys.argv[2], "w")
sys.argv[1:] = []
from args_parser import parser
parser.parse_args()
from importlib.machinery import SourceFileLoader
tests = SourceFileLoader("tests", sys.path[0] + "/tests/__init__.py").load_module()

class Result(unittest.TestResult):
    def tell(self, test, outcome, why=""):
        out.write(json.dumps([test.id(), outcome, why]) + "\\n")
        out.flush()
    def startTest(self, test):
        super().startTest(test)
        self.tell(test, "started")
    def addSuccess(self, test):
        self.tell(test, "passed")
    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)
    def addFailure(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test))
    def addError(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test))

unittest.defaultTestLoader.loadTestsFromModule(tests).run(Result())
"""


def unpack(sources, folder):
    target = folder / "tests"
    shutil.copytree(sources, target)
    for packed in target.glob("*.gz"):
        with gzip.open(packed) as source, packed.with_suffix("").open("wb") as plain:
            shutil.copyfileobj(source, plain)
        packed.unlink()
    # They import this one from beside their package.
    shutil.copy(target / "args_parser.py", folder)


def run(build, folder, adapter, tree):
    """{name: (outcome, why)}, and what the process said. A test that never ended is the one that crashed."""
    unpack(tree / "tests" if tree else SOURCES, folder)
    results = folder / "results"
    # No variable of ours or of mlx5's from outside.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TURNOUT_", "MLX"))}
    if tree:
        # Newer ones ask iproute2 for the network devices of ports: by netlink, of which there is none here.
        tool = folder / "bin" / "rdma"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\necho '[]'\n")
        tool.chmod(0o755)
        env.update(LD_LIBRARY_PATH=str(tree / "build/lib"), PYTHONPATH=str(tree / "build/python"),
                   PATH=f"{tool.parent}:{env['PATH']}")
    command = [str(build / "bin" / "turnout"), "verbs", "--fabric", f"pyverbs-{os.getpid()}", *adapter, "--", "/usr/bin/python3", "-c", RUNNER, str(folder), str(results)]
    process = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace", timeout=LIMIT)
    outcomes = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        name, outcome, why = json.loads(line)
        outcomes[name] = (outcome, why)
    return outcomes, process.stdout, process.returncode


def reason(why):
    return next(((real, text) for pattern, real, text in SKIPS if re.search(pattern, why)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--mlx5", action="store_true",
                        help="with the system's own libibverbs and libmlx5, on the emulated mlx5")
    parser.add_argument("--rdma-core", type=pathlib.Path, metavar="TREE",
                        help="another version's sources, built in TREE/build")
    parser.add_argument("--least", type=int, help=f"tests that must pass ({LEAST}, or {LEAST_MLX5} with --mlx5)")
    parser.add_argument("--markdown", action="store_true", help="the table of what is skipped")
    options = parser.parse_args()
    least = options.least or (LEAST_MLX5 if options.mlx5 else LEAST)
    if options.rdma_core and not options.mlx5:
        parser.error("--rdma-core goes with --mlx5")
    has_tests = SOURCES.is_dir() and subprocess.run(["/usr/bin/python3", "-c", "import pyverbs"]).returncode == 0
    if not options.rdma_core and not has_tests:
        print("rdma-core's tests are not here: apt-get install rdma-core python3-pyverbs", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="turnout-pyverbs-") as folder:
        outcomes, said, status = run(options.build.resolve(), pathlib.Path(folder),
                                     ["--mlx5"] if options.mlx5 else ["--profile", "connectx-5", "--mlx5dv"],
                                     options.rdma_core and options.rdma_core.resolve())

    count = collections.Counter(outcome for outcome, _ in outcomes.values())
    skips = collections.Counter()
    wrong = []
    for name, (outcome, why) in sorted(outcomes.items()):
        if outcome == "skipped":
            known = reason(why)
            if known is None:
                wrong.append(f"{name}: skipped for an unknown reason: {why}")
            else:
                skips[known] += 1
        elif outcome == "failed":
            wrong.append(f"{name}: failed\n{why}")
        elif outcome == "started":
            wrong.append(f"{name}: did not end")
    if status != 0:
        wrong.append(f"the process ended with {status}; its last words:\n" + "\n".join(said.splitlines()[-20:]))
    if count["passed"] < least:
        wrong.append(f"{count['passed']} passed, at least {least} must")

    text = f"{count['passed']} of {len(outcomes)} tests passed, {count['skipped']} were skipped, {count['failed']} failed"
    if options.markdown:
        print(f"{text}.\n\n| skipped | why | on a real ConnectX-5 |\n|---:|---|---|")
        for (real, why), n in sorted(skips.items(), key=lambda item: (-item[0][0], -item[1])):
            print(f"| {n} | {why} | {'also skipped' if real else 'run, if the firmware supports it'} |")
    else:
        print(text)
        by_hand = sum(n for (real, _), n in skips.items() if not real)
        print(f"of the skipped, {by_hand} are of what is not emulated (docs/virtual-adapter.md)")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
