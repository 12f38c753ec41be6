"""Engine pods without a node: the fake engine and the real sidecar's process, kept as a kubelet keeps them."""

import base64
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from integration.api import Object, Refused
from integration.operator_process import OperatorProcess
from integration.world import TIME, World
from support.adapters import lineage, lora_tensors, make_adapter, make_model
from support.fake_vllm import BASE, FakeVllm, record_probe
from support.waiting import eventually
from whetstone_api.pod_state import SIDECAR_PORT
from whetstone_api.vocabulary import CLAIMS_ROOT
from whetstone_artifacts.fingerprint import model_fingerprint
from whetstone_dev.places import CHECKOUT

SERVER_LABEL = "whetstone.dev/model-server"
SERVER_SPEC: Object = {
    "model": {"source": {"uri": "pvc://models/base"}, "servedName": BASE},
    "engine": {"dtype": "Float32"},
    "adapterStores": [{"name": "adapters", "claimName": "adapters"}],
}
"""Spec of a server that the fake engine can serve."""
LOOK_SECONDS = 0.05
_MOUNT = f'mount -t tmpfs tmpfs /mnt && mkdir {CLAIMS_ROOT} && mount --bind "$1" {CLAIMS_ROOT} && shift && exec "$@"'


class Claims:
    """The content of a namespace's claims.

    Args:
        folder: Where they lie, a folder each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_model(folder / "models" / "base")
        self._fingerprint = model_fingerprint(folder / "models" / "base")
        (folder / "adapters").mkdir()

    def publish(self, name: str, *, alpha: int = 50, cases: int = 1, rank: int = 4, **options: Any) -> Object:
        """Publish an adapter of an effect of alpha hundredths of a nat; return its source."""
        record = record_probe(effect=alpha / 100, fingerprint=self._fingerprint, cases=cases)
        options = {"probe": record, "history": lineage(fingerprint=self._fingerprint), **options}
        options.setdefault("tensors", lora_tensors(rank=rank))
        config = {"lora_alpha": alpha, "r": rank, **options.pop("config", {})}
        digest = make_adapter(self.folder / "adapters" / name, config=config, **options)
        return {"uri": f"pvc://adapters/{name}", "digest": digest}


class EnginePod:
    """One engine pod.

    Args:
        folder: Its files.
        claims: What it mounts.
        address: Its address.
        portal: Loop of its engine.
    """

    def __init__(self, *, folder: Path, claims: Claims, address: str, portal: BlockingPortal) -> None:
        self.address = address
        self.engine = FakeVllm(folder / "token")
        self._folder = folder
        self._claims = claims
        self._portal = portal
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self.url = ""
        self.started_at = 0.0
        """Monotonic time."""
        self.ready_at: float | None = None
        """Monotonic time at which the kubelet's probe first found it ready."""

    def start(self, *, token: bytes, desired: str, report_url: str, report_token: str, max_rank: str) -> None:
        """Start the engine and the sidecar."""
        self.started_at = time.monotonic()
        (self._folder / "adapters").mkdir(parents=True)
        (self._folder / "token").write_bytes(token)
        (self._folder / "desired.json").write_text(desired)
        (self._folder / "report-token").write_text(report_token)
        self.url = self._stack.enter_context(self._portal.wrap_async_context_manager(self.engine.served()))
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{CHECKOUT / 'operator'}:{CHECKOUT / 'server'}",
            "WHETSTONE_SIDECAR_HOST": self.address,
            "WHETSTONE_ENGINE_URL": self.url,
            "WHETSTONE_DESIRED_FILE": str(self._folder / "desired.json"),
            "WHETSTONE_KEPT_FILE": str(self._folder / "kept.json"),
            "WHETSTONE_ADAPTERS_DIR": str(self._folder / "adapters"),
            "WHETSTONE_TOKEN_FILE": str(self._folder / "token"),
            "WHETSTONE_STALL_LOOK_SECONDS": "0.5",
            "WHETSTONE_STALL_ASK_SECONDS": "2",
            "WHETSTONE_STALL_SECONDS": "20",
            "WHETSTONE_REPORT_URL": report_url,
            "WHETSTONE_REPORT_TOKEN_FILE": str(self._folder / "report-token"),
            "WHETSTONE_MAX_RANK": max_rank,
        }
        self._start_sidecar()

    def _start_sidecar(self) -> None:
        sidecar = [sys.executable, "-m", "whetstone_server", "sidecar"]
        with (self._folder / "sidecar.log").open("ab") as sink:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", str(self._claims.folder), *sidecar],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )

    def stop(self) -> None:
        """End both and remove what they held."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        self._stack.close()
        shutil.rmtree(self._folder)

    def is_ready(self) -> bool:
        """Return what the kubelet's probe of the sidecar finds."""
        try:
            url = f"http://{self.address}:{SIDECAR_PORT}/readyz"
            return httpx.get(url, trust_env=False, timeout=2).is_success
        except httpx.HTTPError:
            return False

    def hold_lists(self) -> None:
        """Let `GET /v1/models` of the engine hang."""
        self._portal.call(self.engine.lists_go_on.clear)

    def let_lists_go_on(self) -> None:
        """Answer them again."""
        self._portal.call(self.engine.lists_go_on.set)

    def renew_token(self, token: bytes) -> None:
        """Give both another token, as a kubelet does some time after its Secret has changed."""
        renewed = self._folder / "token.new"
        renewed.write_bytes(token)
        renewed.rename(self._folder / "token")

    def kill_sidecar(self) -> None:
        """Kill the sidecar without any warning, and start it again as a kubelet does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self._start_sidecar()

    def hang(self) -> None:
        """Let the engine take requests and generate nothing."""
        self._portal.call(self.engine.generates.clear)

    def go_on(self) -> None:
        """Let it generate again."""
        self._portal.call(self.engine.generates.set)

    def loads(self) -> list[str]:
        """Return the served names of all loads that the engine was asked for."""
        calls = [body for _, path, body in self.engine.calls if path == "/v1/load_lora_adapter"]
        return [str(body["lora_name"]) for body in calls]


def crashed_engine(exit_code: int, reason: str) -> Object:
    """Return the status of an engine's container that ends again and again."""
    ended = {"exitCode": exit_code, "reason": reason, "startedAt": TIME, "finishedAt": TIME}
    return {
        "name": "engine",
        "image": "registry.test/engine:1",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": ended},
    }


class Kubelet:
    """Starts and ends the engine pods of a namespace, and tells their state, until it is stopped.

    Args:
        world: The namespace.
        operator: Where the pods report.
        folder: Files of pods and claims.
        claims: What the pods mount; by default new ones.
    """

    def __init__(self, world: World, operator: OperatorProcess, folder: Path, *, claims: Claims | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.claims = claims or Claims(folder / "claims")
        self.pods: dict[str, EnginePod] = {}
        """Pods that run, by name."""
        self._world = world
        self._operator = operator
        self._folder = folder
        self._network = f"127.{random.randint(2, 250)}.{random.randint(0, 250)}"
        self._numbers = count(1)
        self._told: dict[str, bool] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._failed: Exception | None = None
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())

    def __enter__(self) -> "Kubelet":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        for pod in self.pods.values():
            pod.stop()
        self._stack.close()
        if self._failed is not None:
            raise self._failed

    def running(self, number: int, *, server: str = "server") -> list[EnginePod]:
        """Wait until so many pods of a server are Ready, and return them."""

        def found() -> list[EnginePod] | None:
            if self._failed is not None:
                raise RuntimeError("the kubelet failed") from self._failed
            ready = [name for name, is_ready in self._told.items() if is_ready and name.startswith(f"{server}-engine")]
            assert len(ready) == number, f"ready: {ready}, running: {list(self.pods)}"
            return [self.pods[name] for name in sorted(ready)]

        return eventually(found, what=f"{number} ready pods of {server}")

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:
                self._failed = error
                return

    def _look(self) -> None:
        listed = self._world.api.list("Pod", namespace=self._world.namespace, labels=SERVER_LABEL)
        living = {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}
        for name in self.pods.keys() - living.keys():
            self._told.pop(name, None)
            self.pods.pop(name).stop()
        for name, pod in living.items():
            try:
                if name not in self.pods and not self._start(pod):
                    continue
                ready = self.pods[name].is_ready()
                if self._told.get(name) is not ready:
                    self._tell(pod, ready)
            except Refused as error:
                # Gone since it was listed.
                if error.status != httpx.codes.NOT_FOUND:
                    raise

    def _start(self, pod: Object) -> bool:
        """Start a pod whose volumes are there; without them it waits, as on a node."""
        server = pod["metadata"]["labels"][SERVER_LABEL]
        secret = self._world.api.get("Secret", f"{server}-access", namespace=self._world.namespace)
        desired = self._world.api.get("ConfigMap", f"{server}-desired", namespace=self._world.namespace)
        if secret is None or desired is None:
            return False
        number = next(self._numbers)
        started = EnginePod(
            folder=self._folder / f"pod-{number}",
            claims=self.claims,
            address=f"{self._network}.{number}",
            portal=self._portal,
        )
        started.start(
            token=base64.b64decode(secret["data"]["token"]),
            desired=desired["data"]["desired.json"],
            report_url=self._operator.report_url(f"modelservers/{self._world.namespace}/{server}"),
            report_token=self._world.pod_token(pod),
            max_rank=_variable(pod, "sidecar", "WHETSTONE_MAX_RANK"),
        )
        self.pods[pod["metadata"]["name"]] = started
        return True

    def _tell(self, pod: Object, ready: bool) -> None:
        name = pod["metadata"]["name"]
        address = self.pods[name].address
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": TIME}
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": pod["metadata"]["creationTimestamp"],
            "conditions": [condition],
        }
        if ready and self.pods[name].ready_at is None:
            self.pods[name].ready_at = time.monotonic()
        self._world.set_pod_status(pod, status)
        self._told[name] = ready


def _variable(pod: Object, container: str, name: str) -> str:
    """Return the value of a container's environment variable."""
    found = next(one for one in pod["spec"]["containers"] if one["name"] == container)
    return str(next(one["value"] for one in found["env"] if one["name"] == name))
