"""A real API server, the real operator, and namespaces to measure in."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from integration.api import Api
from integration.conftest import install_kinds
from integration.operator_process import (
    USER,
    OperatorProcess,
    account_kubeconfig,
    install_rights,
    operators_entries,
)
from integration.world import World
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.rbac_page import SYSTEM_NAMESPACE

LETTERS: Final = {"ModelServer": "s", "LoRATrainingJob": "t", "BenchmarkRun": "r"}
"""First letter of the names of each kind."""


class Stage:
    """A control plane with Whetstone's kinds and rights.

    Args:
        folder: Its files.
        controllers: Whether the controller manager works.
        audited: Users beside the operator whose requests are counted.
    """

    def __init__(self, folder: Path, *, controllers: bool = True, audited: Sequence[str] = ()) -> None:
        self.folder = folder
        self.plane = ControlPlane(folder / "control-plane", audited=[USER, *audited])
        self._controllers = controllers

    def __enter__(self) -> "Stage":
        self.plane.start(controllers=self._controllers)
        self.api = Api(self.plane.server, self.plane.pki.folder)
        install_kinds(self.api)
        install_rights(self.plane, self.api)
        self.kubeconfig = account_kubeconfig(self.plane, self.api, self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        self.api.close()
        self.plane.stop()

    def requests(self) -> list[str]:
        """Return all requests of operators so far but for their Lease, as verb and resource, from the audit log."""
        entries = operators_entries(self.plane)
        asked = [(entry["verb"], entry.get("objectRef", {}).get("resource", "")) for entry in entries]
        return [f"{verb} {resource}" for verb, resource in asked if resource != "leases"]

    @contextmanager
    def world(self) -> Iterator[World]:
        """Give a namespace with claims, deleted afterwards."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        world = World(self.api, name)
        world.claims()
        yield world
        self.api.raw("DELETE", f"/api/v1/namespaces/{name}")

    def admit(self, account: str) -> None:
        """Create an account that may do everything, beside the operator's."""
        subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        self.api.raw("POST", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts", {"metadata": {"name": account}})
        self.api.raw(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {"metadata": {"name": account}, "subjects": [subject], "roleRef": role},
        )

    @contextmanager
    def operator(
        self, world: World, *, launcher: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> Iterator[OperatorProcess]:
        """Give the running operator.

        Args:
            world: The namespace that it serves.
            launcher: What its command is an argument of.
            environment: Further variables.
        """
        log = self.folder / f"operator-{world.namespace}.log"
        process = OperatorProcess(
            kubeconfig=self.kubeconfig,
            namespace=world.namespace,
            log=log,
            environment=environment,
            launcher=launcher,
        )
        process.start()
        try:
            yield process
        finally:
            process.stop()


def resident_mebibytes(pid: int) -> float:
    """Return the resident memory of a process."""
    return round(_told(pid, "VmRSS:") / 1024, 1)


def peak_mebibytes(pid: int) -> float:
    """Return the largest resident memory that a process has had."""
    return round(_told(pid, "VmHWM:") / 1024, 1)


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return _told(pid, "Threads:")


def open_files(pid: int) -> int:
    """Return how many files and connections a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _told(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def pause(seconds: float) -> None:
    """Let time pass: a rate at rest has no event to wait for."""
    time.sleep(seconds)
