"""A real Argo CD (application controller, repo server, cache) as processes beside a control plane of a test's own."""

import socket
import uuid
from pathlib import Path
from typing import Any

import yaml
from integration.api import Api, Object
from integration.conftest import install_kind
from support.health import health_checks
from support.waiting import eventually
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.gobuild import ARGOCD, HELM, build

NAMESPACE = "argocd"
_APPLICATIONS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"
_PARTS = ("application-controller", "repo-server", "redis")
_SECONDS = 120.0
RETRIED_SECONDS = 420.0
"""Argo CD tries a refused sync five times more, with growing pauses, before it looks at a newer commit."""


class ArgoCD:
    """Argo CD of one control plane, with the health checks of the examples.

    Args:
        plane: The control plane.
        api: Its administrator's client.
        folder: Folder of its own.
    """

    def __init__(self, plane: ControlPlane, api: Api, folder: Path) -> None:
        self._plane, self._api, self._folder = plane, api, folder

    def start(self) -> None:
        """Install its kinds and settings and start it."""
        program = build(ARGOCD)
        self._install(program.parent / "manifests")
        redis, repos, *metrics = _free_ports(4)
        environment = self._environment()
        commands = {
            "redis": [f"127.0.0.1:{redis}"],
            "repo-server": [
                *(f"--redis=127.0.0.1:{redis}", "--address=127.0.0.1", f"--port={repos}", "--disable-tls"),
                *("--metrics-address=127.0.0.1", f"--metrics-port={metrics[0]}"),
            ],
            "application-controller": [
                *(f"--redis=127.0.0.1:{redis}", f"--repo-server=127.0.0.1:{repos}", "--repo-server-plaintext"),
                *(f"--namespace={NAMESPACE}", f"--kubeconfig={self._plane.kubeconfig}"),
                *(f"--metrics-port={metrics[1]}", "--persist-resource-health", "--app-resync=3600"),
            ],
        }
        for name, arguments in commands.items():
            self._plane.processes.start(f"argocd-{name}", [program, name, *arguments], env=environment)

    def stop(self) -> None:
        """End it."""
        for name in _PARTS:
            self._plane.processes.stop(f"argocd-{name}", grace=5)

    def apply(self, application: Object) -> None:
        """Create an Application."""
        self._api.raw("POST", _APPLICATIONS, application)

    def get(self, name: str) -> Object:
        """Return an Application."""
        return self._api.raw("GET", f"{_APPLICATIONS}/{name}")

    def delete(self, name: str) -> None:
        """Delete an Application."""
        self._api.raw("DELETE", f"{_APPLICATIONS}/{name}")

    def refresh(self, name: str) -> Object:
        """Let an Application be compared with its repository anew; return it as it then is."""
        self._look(name, "hard")

        def compared() -> Object | None:
            application = self.get(name)
            waiting = "argocd.argoproj.io/refresh" in application["metadata"].get("annotations", {})
            return None if waiting else application

        return eventually(compared, what=f"a look at {name}{self._logs()}", seconds=_SECONDS)

    def sync(self, name: str) -> Object:
        """Sync an Application as `argocd app sync --prune` does, changed or not; return how it ended."""
        mark = {"name": "mark", "value": uuid.uuid4().hex}
        sync = {"prune": True, "syncStrategy": {"hook": {}}}
        operation = {"initiatedBy": {"username": "tester"}, "info": [mark], "sync": sync}
        self._api.patch(f"{_APPLICATIONS}/{name}", {"operation": operation})

        def ended() -> Object | None:
            state: Object = (self.get(name).get("status") or {}).get("operationState", {})
            assert mark in state.get("operation", {}).get("info", []), f"{state}"
            assert state["phase"] in ("Succeeded", "Failed", "Error"), f"{state}"
            return state

        return eventually(ended, what=f"the end of a sync of {name}", seconds=_SECONDS)

    def wait_synced(self, name: str, revision: str, *, seconds: float = _SECONDS) -> Object:
        """Wait until a commit is what runs, without a difference."""
        self._look(name, "normal")

        def synced() -> Object | None:
            status = self.get(name).get("status") or {}
            found = status.get("sync", {})
            ended = status.get("operationState", {})
            # Where a commit is what runs already, nothing is synced, and the last operation is that of another one.
            of_it = ended.get("operation", {}).get("sync", {}).get("revision") == revision
            assert (found.get("status"), found.get("revision")) == ("Synced", revision), f"{self._told(status)}"
            assert not of_it or ended["phase"] == "Succeeded", f"{ended}"
            return status

        return eventually(synced, what=f"{name} synced{self._logs()}", seconds=seconds)

    def wait_health(self, name: str, resource: str, health: str) -> None:
        """Wait for the health that Argo CD gives to one object of an Application, `kind/name`."""

        def found() -> bool:
            status = self.get(name).get("status") or {}
            told = {f"{one['kind']}/{one['name']}": one.get("health", {}) for one in status.get("resources", [])}
            assert told.get(resource, {}).get("status") == health, f"{told}"
            return True

        eventually(found, what=f"{resource} is {health}", seconds=_SECONDS)

    def wait_failed(self, name: str, words: str) -> None:
        """Wait until a sync has been refused with these words."""
        self._look(name, "normal")

        def told() -> bool:
            state = (self.get(name).get("status") or {}).get("operationState") or {}
            results = state.get("syncResult", {}).get("resources", [])
            messages = [state.get("message", ""), *(one.get("message", "") for one in results)]
            assert any(words in message for message in messages), f"{state}"
            return True

        eventually(told, what=f"a refused sync of {name}", seconds=_SECONDS)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        """Change annotations of an Application."""
        self._api.patch(f"{_APPLICATIONS}/{name}", {"metadata": {"annotations": annotations}})

    def _look(self, name: str, kind: str) -> None:
        self.annotate(name, {"argocd.argoproj.io/refresh": kind})

    def _told(self, status: Object) -> dict[str, Any]:
        chosen = ("sync", "conditions", "operationState")
        return {name: status.get(name) for name in chosen} | {"resources": status.get("resources")}

    def _logs(self) -> str:
        return f" (logs in {self._plane.processes.log('argocd-redis').parent})"

    def _install(self, manifests: Path) -> None:
        self._api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for path in sorted(manifests.glob("*.yaml")):
            install_kind(self._api, yaml.safe_load(path.read_text()))
        labels = {"app.kubernetes.io/part-of": "argocd"}
        settings = {"argocd-cm": {"timeout.reconciliation": "1h", **health_checks()}, "argocd-rbac-cm": {}}
        for name, data in settings.items():
            body = {"metadata": {"name": name, "labels": labels}, "data": data}
            self._api.raw("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", body)
        secret = {"metadata": {"name": "argocd-secret", "labels": labels}, "stringData": {"server.secretkey": "s"}}
        self._api.raw("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        whole = {"sourceRepos": ["*"], "destinations": [{"namespace": "*", "server": "*"}]}
        spec = {**whole, "clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}
        project = {"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": "default"}}
        path = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/appprojects"
        self._api.raw("POST", path, {**project, "spec": spec})

    def _environment(self) -> dict[str, str]:
        folders = {name: self._folder / name for name in ("home", "tls", "ssh", "gpg")}
        for folder in folders.values():
            folder.mkdir(parents=True)
        (folders["ssh"] / "ssh_known_hosts").touch()
        tools = self._folder / "bin"
        tools.mkdir()
        (tools / "helm").symlink_to(build(HELM))
        return {
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_GNUPGHOME": str(folders["gpg"]),
            "ARGOCD_SSH_DATA_PATH": str(folders["ssh"]),
            "ARGOCD_TLS_DATA_PATH": str(folders["tls"]),
            "HOME": str(folders["home"]),
            "KUBECONFIG": str(self._plane.kubeconfig),
            "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(self._folder),
        }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
