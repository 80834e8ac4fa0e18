# SPDX-License-Identifier: BSD-3-Clause
"""Source distributions of PyPI: test suites that the installed packages leave out."""

import hashlib
import pathlib
import subprocess
import sys
import tarfile

# sha256, so that the cache cannot hold something else.
DIGESTS = {
    "mpi4py-4.1.2": "56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02",
    "shmem4py-1.0.0": "41db82b216b46b7eaa737daf17e6ad74c4ba07332779df312c06250bad847f81",
}


def fetch(package: str, version: str, cache: pathlib.Path) -> pathlib.Path:
    """The folder of the unpacked distribution, downloaded on first use."""
    name = f"{package}-{version}"
    folder = cache / name
    if (folder / "test").exists():
        return folder
    if name not in DIGESTS:
        raise SystemExit(f"{name}: no sha256 of it in {__file__}; add that of PyPI's page")
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{name}.tar.gz"
    if not archive.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package,
                        "--dest", str(cache), f"{package}=={version}"], check=True)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != DIGESTS[name]:
        raise SystemExit(f"{archive.name}: sha256 {digest}, expected {DIGESTS[name]}: remove it")
    with tarfile.open(archive) as tar:
        # Python before 3.11.4 (Debian 12's) has no filters: refuse what would leave the folder.
        if any(n.startswith("/") or ".." in pathlib.Path(n).parts for n in tar.getnames()):
            raise SystemExit(f"{archive.name}: has members outside of its folder")
        tar.extractall(cache)
    return folder
