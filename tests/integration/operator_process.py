"""The operator as its own process, with the rights that the chart gives it and no more."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from integration.api import Api
from support.waiting import eventually
from whetstone_dev.commands import run
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.places import CHECKOUT
from whetstone_dev.rbac_page import SERVED_NAMESPACE, SYSTEM_NAMESPACE, render

ACCOUNT = "whetstone-operator"
USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}"
_TOKEN_SECONDS = 86400
_IMAGES = ("operator", "server", "trainer", "benchmark", "engine")
_RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def install_rights(plane: ControlPlane, api: Api) -> None:
    """Create the accounts and rights exactly as the chart renders them, the runner's in `SERVED_NAMESPACE`."""
    for name in (SYSTEM_NAMESPACE, SERVED_NAMESPACE):
        api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    apply_rights(plane)


def apply_rights(plane: ControlPlane, *values: str) -> None:
    """Apply the accounts and rights of the chart with further values, as `name=value`."""
    chosen = [one for one in yaml.safe_load_all(render(*values)) if one and one["kind"] in _RIGHTS]
    command: list[str | Path] = [plane.kubectl, "--kubeconfig", plane.kubeconfig, "apply", "-f", "-"]
    run(command, feed=yaml.safe_dump_all(chosen))


def operators_entries(plane: ControlPlane) -> list[Any]:
    """Return the entries of the API server's audit log; it may be in the middle of writing the next one."""
    whole, _, _ = plane.audit_log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def account_kubeconfig(
    plane: ControlPlane, api: Api, folder: Path, *, namespace: str = SYSTEM_NAMESPACE, account: str = ACCOUNT
) -> Path:
    """Write a kubeconfig that authenticates as a service account, the operator's by default; return its path."""
    token = account_token(api, namespace=namespace, account=account)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": plane.server, "certificate-authority": str(plane.pki.folder / "ca.crt")},
            }
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / f"{account}.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def account_token(
    api: Api, *, namespace: str = SYSTEM_NAMESPACE, account: str = ACCOUNT, bound_to: Mapping[str, str] | None = None
) -> str:
    """Return a token of a service account, by default the operator's; bound to an object, it ends with that."""
    spec = {"expirationSeconds": _TOKEN_SECONDS, **({"boundObjectRef": dict(bound_to)} if bound_to else {})}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(api.raw("POST", path, {"spec": spec})["status"]["token"])


class OperatorProcess:
    """One operator.

    Args:
        kubeconfig: Its credentials; None for those of a pod.
        namespace: The namespace that it serves; of several, their names with commas. Operators that serve the same
            are replicas of one.
        log: File for its output.
        environment: Further variables.
        launcher: What its command is an argument of.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None,
        namespace: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        self.lease = f"whetstone-{hashlib.sha256(namespace.encode()).hexdigest()[:16]}"
        """Name of the Lease that its replicas share."""
        self._log = log
        self._launcher = list(launcher)
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "PYTHONPATH")},
            "PYTHONPATH": str(CHECKOUT / "operator"),
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}),
            "POD_NAMESPACE": SYSTEM_NAMESPACE,
            # As a container that is started again in its pod.
            "POD_UID": str(uuid.uuid4()),
            "POD_IP": "127.0.0.1",
            "WHETSTONE_LEASE": self.lease,
            "WHETSTONE_NAMESPACES": namespace,
            "WHETSTONE_HTTP_PORT": str(self._port),
            **{f"WHETSTONE_{name.upper()}_IMAGE": f"registry.test/{name}:1" for name in _IMAGES},
            **(environment or {}),
        }

    def start(self) -> None:
        """Start the process and wait until its watches run."""
        self.launch()
        eventually(self.ready, what=f"the operator is ready; its log is {self._log}", seconds=60)

    def launch(self) -> None:
        """Start the process."""
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*self._launcher, sys.executable, "-m", "whetstone_operator"],
                env=self._environment,
                cwd=self._log.parent,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    def ready(self) -> bool:
        """Whether it says that it is ready; an AssertionError when it has ended."""
        process = self._process
        if process is None or process.poll() is not None:
            raise RuntimeError(f"the operator ended:\n{self._log.read_text()[-4000:]}")
        try:
            return httpx.get(self.url("readyz"), trust_env=False, timeout=5).is_success
        except httpx.HTTPError:
            return False

    def exit_code(self) -> int | None:
        """Return how it ended by itself; None while it runs."""
        return self._process.poll() if self._process else None

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as Kubernetes does; return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(number)
        self._process = None
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def wait_end(self) -> int:
        """Return its exit code once it has ended by itself."""
        assert self._process is not None, "the operator does not run"
        return self._process.wait(60)

    def exposition(self) -> str:
        """Return all of its metrics as Prometheus reads them."""
        return httpx.get(self.url("metrics"), trust_env=False, timeout=10).text

    def metric(self, name: str, /, **labels: str) -> float:
        """Return the sum of a metric's samples that carry the labels."""
        text = httpx.get(self.url("metrics"), params={"name[]": name}, trust_env=False, timeout=10).text
        total = 0.0
        for line in text.splitlines():
            found = re.fullmatch(rf"{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def report(self, path: str, *, token: str, body: dict[str, Any], base: str = "v1/reports/") -> int:
        """Send a progress report as a pod does; return the HTTP status."""
        return self.post(f"{base}{path}", token=token, body=body)[0]

    def post(self, path: str, *, token: str, body: dict[str, Any]) -> tuple[int, str]:
        """Send something as a pod does; return the HTTP status and the answer."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = httpx.post(self.url(path), json=body, headers=headers, trust_env=False, timeout=10)
        return answer.status_code, answer.text

    @property
    def identity(self) -> str:
        """By what its Lease names it: the uid of its pod."""
        return self._environment["POD_UID"]

    def move_to_another_pod(self) -> None:
        """Be another pod's container from the next start on."""
        self._environment["POD_UID"] = str(uuid.uuid4())

    @property
    def pid(self) -> int:
        """Number of its process."""
        assert self._process is not None, "the operator does not run"
        return self._process.pid

    def report_url(self, path: str) -> str:
        """Return the URL to which the pods of an object report."""
        return self.url(f"v1/reports/{path}")

    def url(self, path: str) -> str:
        """Return an address of its HTTP server."""
        return f"http://127.0.0.1:{self._port}/{path}"


@contextmanager
def running_operator(kubeconfig: Path, namespace: str, log: Path) -> Iterator[OperatorProcess]:
    """Run the operator for one namespace; it must not have logged an unexpected error by its end.

    Args:
        kubeconfig: Credentials of its account.
        namespace: The one that it serves.
        log: Where its output goes.
    """
    process = OperatorProcess(kubeconfig=kubeconfig, namespace=namespace, log=log)
    process.start()
    yield process
    process.stop()
    assert "Traceback" not in log.read_text(), log.read_text()[-6000:]
