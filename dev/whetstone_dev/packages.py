"""The few Debian programs that the cluster and the image builds use; installed only where one is missing."""

import os
import shutil
from pathlib import Path

from whetstone_dev.commands import DevError, run
from whetstone_dev.places import cache_folder
from whetstone_dev.progress import stage
from whetstone_dev.turns import turn

_TURN = "packages"
NODE = {
    "runc": "runc",
    "docker-registry": "docker-registry",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
    "openssl": "openssl",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""Program (a name on the PATH, or a path) and the package that brings it: what a node needs."""

IMAGES = {"buildah": "buildah", "debootstrap": "debootstrap", "runc": "runc", "zstd": "zstd"}
"""The same for building images."""

POLICIES = {"ipset": "ipset"}
"""The same for enforcing NetworkPolicies."""

BROWSER = {"chromium": "chromium", "chromedriver": "chromium-driver"}
"""The same for tests of pages."""

JAVA = {"mvn": "maven", "javac": "default-jdk-headless"}
"""The same for the test against a real Elasticsearch."""

TERMINAL = {"tmux": "tmux"}
"""The same for tests of terminus-2 without pods; pods get it from the benchmark image."""


def install(wanted: dict[str, str]) -> None:
    """Install the packages of the programs that are missing.

    A program that is there is always kept.

    Raises:
        DevError: the machine has no apt-get, or it failed.
    """
    if not _missing(wanted):
        return
    with turn(_TURN):
        _install(_missing(wanted))


def _missing(wanted: dict[str, str]) -> list[str]:
    return sorted({package for program, package in wanted.items() if shutil.which(program) is None})


def _install(missing: list[str]) -> None:
    if not missing:
        return
    if os.geteuid() != 0:
        raise DevError(f"missing programs, and only root can install them: {', '.join(missing)}")
    if shutil.which("apt-get") is None:
        raise DevError(f"missing programs, and no apt-get to install them: {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with stage(f"Installing {', '.join(missing)}", expected="1 minute"):
        run(["apt-get", "update", "-q"], env=environment)
        run(["apt-get", "install", "--yes", "-q", "--no-install-recommends", *missing], env=environment)


def unpack(package: str) -> Path:
    """Return a folder with a package's files, which are not installed: a service in it must not start.

    Raises:
        DevError: The machine has no apt-get, or the package cannot be fetched.
    """
    folder = cache_folder() / "debian" / package
    if folder.exists():
        return folder
    if shutil.which("apt-get") is None:
        raise DevError(f"no apt-get to fetch {package} with")
    with turn(_TURN):
        if not folder.exists():
            _fetch(package, folder)
    return folder


def _fetch(package: str, folder: Path) -> None:
    work = folder.with_name(f"{package}.new")
    shutil.rmtree(work, ignore_errors=True)
    (work / "download").mkdir(parents=True)
    with stage(f"Fetching {package}", expected="1 minute"):
        if os.geteuid() == 0:
            run(["apt-get", "update", "-q"])
        run(["apt-get", "download", "-q", package], cwd=work / "download")
        [archive] = (work / "download").glob("*.deb")
        run(["dpkg-deb", "--extract", archive, work / "files"])
    (work / "files").rename(folder)
    shutil.rmtree(work)
