# SPDX-License-Identifier: BSD-3-Clause
"""How far two cores are from each other: in a virtual machine that changes, and with it all times between them.

A hypervisor runs two cores of a guest on threads of one core, on neighbours, or on two processors, and moves them at
any time. A cache line then takes several times as long from one to the other.
"""

import json
import os
import statistics
import subprocess


class Cores:
    """The first two that may be used."""

    def __init__(self, build):
        self._program = build / "bin" / "hca_baseline"
        self._cpus = [str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2]]
        self._distances = []

    def look(self):
        """Notes how long a cache line takes from one to the other, one way: nanoseconds."""
        if len(self._cpus) < 2:
            return
        done = subprocess.run([self._program, "--bytes", "4096", "--copies", "1", "--handovers", "50000", "--cpus",
                               *self._cpus], capture_output=True, text=True, check=True)
        self._distances.append(json.loads(done.stdout)["handover_ns"])

    def text(self):
        if not self._distances:
            return ""
        return (f"Before each run a cache line took {min(self._distances):.0f} to {max(self._distances):.0f} ns from one "
                f"core to the other, {statistics.median(self._distances):.0f} in the middle:\nthe cores of a virtual "
                "machine move, and ratios of runs at different distances scatter.")
