"""Where the demo runs: the local cluster, or one that the user names with KUBECONFIG and REGISTRY."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import DevError
from whetstone_dev.images import Registry


@dataclass(frozen=True, kw_only=True)
class Target:
    """A cluster and the registry that its nodes pull from.

    Args:
        kubeconfig: Names the cluster by its current context.
        registry: Where the images go; None is the local cluster's.
        storage_class: Class of the claims; None is the cluster's default.
    """

    kubeconfig: Path
    registry: Registry | None = None
    storage_class: str | None = None

    @property
    def foreign(self) -> bool:
        """Whether the cluster is the user's: nothing on it may be taken for the demo's own."""
        return self.registry is not None


def choose(
    environment: Mapping[str, str] = os.environ,
    *,
    registry: str | None = None,
    insecure: bool = False,
    storage_class: str | None = None,
) -> Target:
    """Return where to run.

    Args:
        environment: Its KUBECONFIG names the user's cluster.
        registry: The user's registry, as in `registry.example.com/team`.
        insecure: Whether that registry speaks plain HTTP or has a certificate that nobody knows.
        storage_class: Name of the class of the claims.

    Raises:
        DevError: Only one of KUBECONFIG and REGISTRY is given, or no such file is there.
    """
    local = Cluster().kubeconfig
    given = environment.get("KUBECONFIG")
    if registry is None:
        if given and not _same(Path(given), local):
            raise DevError(f"KUBECONFIG={given} names a cluster of yours: give REGISTRY=... too, or unset KUBECONFIG")
        return Target(kubeconfig=local, storage_class=storage_class)
    if not given:
        raise DevError(f"REGISTRY={registry} needs KUBECONFIG=... too: the cluster whose nodes pull from it")
    path = _file(given)
    if "://" in registry or not registry.strip("/"):
        raise DevError(f"REGISTRY={registry}: a name without scheme is needed, as in registry.example.com/team")
    return Target(
        kubeconfig=path,
        registry=Registry(name=registry.strip("/"), address=registry.strip("/"), insecure=insecure),
        storage_class=storage_class,
    )


def of_cluster(environment: Mapping[str, str] = os.environ) -> Target:
    """Return the cluster of KUBECONFIG, or else the local one, to remove things from.

    Raises:
        DevError: No such file is there, or no local cluster is.
    """
    given = environment.get("KUBECONFIG")
    if given:
        return Target(kubeconfig=_file(given))
    local = Cluster().kubeconfig
    if not local.is_file():
        raise DevError("no local cluster was started from this checkout; KUBECONFIG=... names one of yours")
    return Target(kubeconfig=local)


def _file(given: str) -> Path:
    """Return the one file: kubectl merges a list of them, helm and this program are given one."""
    path = Path(given.split(os.pathsep)[0]).expanduser().resolve()
    if not path.is_file():
        raise DevError(f"KUBECONFIG={given}: no such file")
    return path


def _same(given: Path, local: Path) -> bool:
    """Whether a kubeconfig is the local cluster's, of this checkout or another."""
    if given.resolve() == local.resolve():
        return True
    admin = Cluster().folder / "pki" / "admin.conf"
    return given.is_file() and admin.is_file() and given.read_text() == admin.read_text()
