# SPDX-License-Identifier: BSD-3-Clause
"""The commands of an MPI as a user calls them, for the tests that start MPI jobs over the `turnout` command."""

import os
import subprocess


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
