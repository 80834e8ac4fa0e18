# SPDX-License-Identifier: BSD-3-Clause
# A recipe for Spack 1.0 and newer, where CLONE is a clone of the repository:
#   spack repo create REPO turnout && mkdir REPO/spack_repo/turnout/packages/turnout
#   cp CLONE/packaging/spack/package.py REPO/spack_repo/turnout/packages/turnout/
#   spack repo add REPO/spack_repo/turnout
#   spack develop --path CLONE turnout@0.2.0     (no release is published yet)
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Turnout(CMakePackage):
    """libfabric provider that chooses the InfiniBand transport of each peer at run time, within a
    memory budget; with a virtual adapter that needs no hardware, and a simulator."""

    license("BSD-3-Clause")

    version("0.2.0")

    variant("plots", default=False, description="matplotlib for `turnout plot`")
    variant("otf2", default=True, description="read OTF2 traces")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("rdma-core@34:")
    depends_on("libfabric@1.17:")
    depends_on("fmt@9:")
    depends_on("tomlplusplus")
    depends_on("nlohmann-json")
    depends_on("robin-map")
    depends_on("cli11")
    depends_on("ncurses")
    depends_on("otf2", when="+otf2")
    depends_on("python", when="+plots", type="run")
    depends_on("py-matplotlib", when="+plots", type="run")

    conflicts("platform=darwin", msg="Linux only")
    conflicts("target=aarch64:", msg="x86-64 only")

    generator("ninja")

    def cmake_args(self):
        return [self.define("BUILD_TESTING", False), self.define("CMAKE_INSTALL_LIBDIR", "lib")]

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.prepend_path("FI_PROVIDER_PATH", join_path(self.prefix.lib, "libfabric"))
