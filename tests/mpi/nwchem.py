#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""NWChem, the program of ACTS, over Turnout: the energy of two water molecules must be what NWChem computes over Open
MPI's shared memory, also where a process may keep fewer connections than it has partners.

    nwchem.py BUILD_DIR [--ranks 4]

Debian's NWChem, on Debian's Open MPI; its one-sided operations are sent as messages (osc pt2pt), millions of small
ones. Each run is recorded and played in virtual time: what each process sent to which must agree.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

from hpcc_replay import replays_alike
from mpi_libraries import MPIS, environment
from mpi_stress import read_reports

INPUT = """\
start water
memory total 200 mb
geometry units angstrom noautosym nocenter
  O  0.000  0.000  0.000
  H  0.757  0.586  0.000
  H -0.757  0.586  0.000
  O  0.000  2.900  0.000
  H  0.757  3.486  0.000
  H -0.757  3.486  0.000
end
basis
  * library 6-31g
end
scf
  maxiter 20
end
task scf energy
"""
# hartree; NWChem's own threshold of convergence leaves as much to the order of sums
AGREE = 1e-6
LIMIT = 600  # seconds
SETTINGS = {"plain": {}, "two connections": {"TURNOUT_POLICY": "rc-rdma-od", "TURNOUT_MAX_CONN": "2"}}


def energy(command, env, folder):
    (folder / "water.nw").write_text(INPUT, encoding="utf-8")
    command = [*command, "nwchem.openmpi", "water.nw"]
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, check=False)
    found = re.search(r"Total SCF energy = *(-[\d.]+)", done.stdout)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout[-3000:]}")
    return float(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    build = args.build.resolve()
    base = environment(MPIS["open_mpi_4"], "turnout", build / "lib", f"nwchem-{os.getpid()}")
    base.update(TURNOUT_DEVICE="virtual")
    with tempfile.TemporaryDirectory(prefix="turnout-nwchem-") as name:
        alone = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks)]
        expected = energy([*alone, "--mca", "pml", "ob1", "--mca", "btl", "self,vader"], base, pathlib.Path(name))
    for case, settings in SETTINGS.items():
        with tempfile.TemporaryDirectory(prefix="turnout-nwchem-") as name:
            folder = pathlib.Path(name)
            reports, recordings = folder / "reports", folder / "recordings"
            reports.mkdir()
            recordings.mkdir()
            env = base | settings | {"TURNOUT_REPORT": str(reports), "TURNOUT_TRACE": f"{recordings}/"}
            over = [*MPIS["open_mpi_4"].command(args.ranks), "--mca", "btl", "self", "--mca", "osc", "pt2pt"]
            found = energy(over, env, folder)
            if abs(found - expected) > AGREE:
                raise SystemExit(f"{case}: {found} hartree over Turnout, {expected} over shared memory")
            read = read_reports(reports)
            if len(read) != args.ranks:
                raise SystemExit(f"{case}: {len(read)} reports of {args.ranks} processes")
            if any(report["peak"] > report["budget"] for report in read):
                raise SystemExit(f"{case}: over its budget")
            torn_down = sum(report["connections"]["tear_downs"] for report in read)
            if (torn_down > 0) != ("TURNOUT_MAX_CONN" in settings):
                raise SystemExit(f"{case}: {torn_down} connections were torn down")
            print(f"{case}: {found} hartree, {expected} over shared memory; {torn_down} tear-downs", flush=True)
            if not replays_alike(build, recordings, reports):
                raise SystemExit(f"{case}: other messages were replayed than were reported")


if __name__ == "__main__":
    main()
