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
    tcp: str = "tcp"  # libfabric's provider for TCP

    def command(self, np):
        launcher = self.folder / "bin" / self.launcher if self.folder else self.launcher
        return [str(launcher), *self.options, "-n", str(np)]

    def environment(self, provider):
        provider = self.tcp if provider == "tcp" else provider
        env = self.env | {"FI_PROVIDER": provider}
        if self.options is OPEN_MPI:
            env.update(OMPI_MCA_mtl_ofi_provider_include=provider, OMPI_MCA_opal_common_ofi_provider_include=provider)
        if self.library:
            env["MPI4PY_LIBMPI"] = str(self.folder / "lib" / self.library if self.folder else self.library)
        if self.folder:
            env.update(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", LD_LIBRARY_PATH=str(self.folder / "lib"))
        return env


CACHE = HERE.parents[1] / ".cache"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OPEN_MPI = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "cm",
            "--mca", "mtl", "ofi"]
MPIS = {
    "mpich": Mpi(
        pathlib.Path(sys.executable).parents[1], "mpiexec", "",
        # All traffic through the provider, none through MPI's own memory; more ranks than cores: let pollers sleep.
        {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
         "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16"},
        ["-launcher", "fork"]),
    "open_mpi_5": Mpi(CACHE / "openmpi", "mpirun", "libmpi.so.40", AS_ROOT, OPEN_MPI),
    "open_mpi_4": Mpi(None, "mpirun.openmpi", "libmpi.so.40", AS_ROOT, OPEN_MPI, tcp="tcp;ofi_rxm"),
    "intel_mpi": Mpi(CACHE / "intel", "mpirun", "libmpi.so.12",
                     {"I_MPI_ROOT": str(CACHE / "intel"), "I_MPI_FABRICS": "ofi", "I_MPI_THREAD_YIELD": "2"}, []),
}


# What is no provider of libfabric, but MPICH's UCX: its transports and their adapter.
UCX = {
    "ucx": ("rc_v,ud_v,self", "turnout0:1"),
    "ucx_rc_mlx5": ("rc_mlx5,ud_mlx5,self", "mlx5_0:1"),
    "ucx_dc_mlx5": ("dc_mlx5,self", "mlx5_0:1"),
}


def verbs_command(build: pathlib.Path, provider: str) -> list:
    """What starts a job whose libraries use an adapter that they find for themselves."""
    if provider not in UCX and provider != "turnout_mlx5":
        return []
    return [str(build / "bin" / "turnout"), "verbs", *(["--mlx5"] if provider.endswith("_mlx5") else []), "--"]


def environment(mpi: Mpi, provider: str, lib: pathlib.Path | None, fabric: str) -> dict:
    env = dict(os.environ)
    env.update(mpi.environment("turnout" if provider == "turnout_mlx5" else provider))
    if provider == "turnout_mlx5":
        env.update(TURNOUT_DEVICE="mlx5_0")
    env.update(TURNOUT_FABRIC=fabric, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    if provider in UCX:
        transports, adapter = UCX[provider]
        env.pop("FI_PROVIDER")
        env.update(
            MPIR_CVAR_CH4_NETMOD="ucx",
            UCX_TLS=transports,
            UCX_NET_DEVICES=adapter,
            # A flush of rc_verbs writes to the peer, who in MPI_Finalize may be gone: as over any adapter
            # it waits for this long, eight times.
            UCX_RC_TIMEOUT="20ms",
        )
    # Open MPI 5 takes no provider that has the loopback interface alone.
    if provider == "tcp" and mpi.options is not OPEN_MPI:
        env.setdefault("FI_TCP_IFACE", "lo")
    if lib is not None:
        env["FI_PROVIDER_PATH"] = str(lib)
    return env
