# SPDX-License-Identifier: BSD-3-Clause
# A Spack recipe: put this folder's parent into a repository as packages/turnout, or
#   spack repo create turnout-repo && cp package.py turnout-repo/packages/turnout/
from spack.package import *


class Turnout(CMakePackage):
    """libfabric provider that chooses the InfiniBand transport of each peer at run time, within a
    memory budget; with a virtual adapter that needs no hardware, and a simulator."""

    license("BSD-3-Clause")

    # No release is published yet: spack develop --path CLONE turnout@0.2.0
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
    depends_on("cli11")
    depends_on("otf2", when="+otf2")
    depends_on("python", when="+plots", type="run")
    depends_on("py-matplotlib", when="+plots", type="run")

    conflicts("platform=darwin", msg="Linux only")
    conflicts("target=aarch64:", msg="x86-64 only")

    generator("ninja")

    def cmake_args(self):
        return [self.define("BUILD_TESTING", self.run_tests)]

    def setup_run_environment(self, env):
        env.prepend_path("FI_PROVIDER_PATH", join_path(self.prefix.lib, "libfabric"))
