# SPDX-License-Identifier: BSD-3-Clause
"""The commands of an MPI as a user calls them, for the tests that start MPI jobs over the `turnout` command."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def suffix_of(mpi, folder):
    """Debian's names of Open MPI's commands end alike, beside those of other MPIs."""
    return ".openmpi" if mpi == "open_mpi" and (folder / "mpirun.openmpi").exists() else ""


def launcher_of(mpi, folder):
    """mpirun of open_mpi or mpich, in this folder."""
    return str(folder / f"mpirun{suffix_of(mpi, folder)}")


def compile_to(program, source, mpi, folder):
    """Compiles a C program with the MPI's mpicc, and returns the program's path as text."""
    subprocess.run([folder / f"mpicc{suffix_of(mpi, folder)}", "-O1", source, "-o", program], check=True)
    return str(program)


def environment(*other_prefixes, **settings):
    """This process's, without settings of Turnout, libfabric and the MPIs, or of the other prefixes."""
    prefixes = ("TURNOUT_", "FI_", "OMPI_", "MPIR_", "PRTE_", *other_prefixes)
    env = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    if os.getuid() == 0:
        env["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
    return {**env, **settings}


class JobTest(unittest.TestCase):
    """Tests of jobs of one MPI program: `launcher` and `program`; for each test an empty folder, `scratch`, and `env`.

    source: the program's file, from this folder. main() sets `turnout`, the command, and `mpi`, its name. `without` and
    `settings` are for environment().
    """

    turnout, mpi, bin, source = "", "", pathlib.Path(), ""
    without, settings = (), {}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix=f"{cls.__name__.lower()}-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.launcher = launcher_of(cls.mpi, cls.bin)
        cls.program = compile_to(pathlib.Path(folder.name) / pathlib.Path(cls.source).stem, HERE / cls.source, cls.mpi,
                                 cls.bin)

    @classmethod
    def environment_in(cls, folder):
        return environment(*cls.without, TMPDIR=folder, XDG_RUNTIME_DIR=folder,
                           TURNOUT_FABRIC=f"{cls.__name__.lower()}-{os.getpid()}", **cls.settings)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix=f"{type(self).__name__.lower()}-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.env = self.environment_in(scratch.name)


def main():
    """Runs the tests of the program: TEST BUILD_DIR MPI PREFIX/bin [unittest's options]."""
    JobTest.turnout = str(pathlib.Path(sys.argv[1]).resolve() / "bin" / "turnout")
    JobTest.mpi, JobTest.bin = sys.argv[2], pathlib.Path(sys.argv[3]).absolute()
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
