"""What is done on the node to what runs there: kill -9 of containers, and pods that vanish."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from support.chaos import Turn
from support.chaos_loops import SERVER, Loops
from support.node import kill
from support.obedient_runs import is_trial
from support.waiting import eventually
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo.install import SYSTEM_NAMESPACE
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.watch import is_true

Pod = dict[str, Any]
FAULTS: Final = (
    *("kill an operator", "kill an operator", "delete an operator's pod", "kill the sidecar", "kill the engine"),
    *("delete the engine's pod", "kill a trainer", "kill a trainer", "kill a runner", "delete a trial's pod"),
)
_OPERATOR: Final = "whetstone-operator"
_NOBODY: Final = "nobody is there"
_PATIENCE_SECONDS: Final = 60.0
"""How long a turn waits for somebody to hit: a trial's pod is there for some seconds in each loop."""
_LOOK_SECONDS: Final = 0.5


class Disturber:
    """Does what is due to what is there.

    Args:
        loops: What runs.
        over: Nobody is waited for once it is set.
    """

    def __init__(self, loops: Loops, *, over: threading.Event) -> None:
        self._loops = loops
        self._over = over
        self.kills: Counter[str] = Counter()
        """Kills of an operator's container by the uid of its pod."""
        self.hits: Counter[str] = Counter()

    def disturb(self, turn: Turn) -> str:
        """Do it, and return the name of the pod that was hit."""
        what, _, whom = turn.what.partition(" ")
        candidates = self._await(whom)
        if not candidates:
            return _NOBODY
        pod = turn.choose(candidates)
        name = str(pod["metadata"]["name"])
        if what == "delete":
            place = ("--namespace", pod["metadata"]["namespace"], "--grace-period=0", "--force", "--wait=false")
            Cluster().kubectl("delete", "pod", name, "--ignore-not-found", *place)
        else:
            try:
                kill(pod, _container(whom))
            except (AssertionError, ProcessLookupError) as error:
                return f"{name} ended by itself: {error}"
            self.kills[pod["metadata"]["uid"]] += 1
        self.hits[turn.what] += 1
        return name

    def _await(self, whom: str) -> list[Pod]:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = [pod for pod in self._candidates(whom) if _runs(pod)]
            if found or time.monotonic() > deadline or self._over.wait(_LOOK_SECONDS):
                return found

    def _candidates(self, whom: str) -> list[Pod]:
        loops = self._loops
        if "operator" in whom:
            return operator_pods(loops.kube)
        if "engine" in whom or "sidecar" in whom:
            return loops.pods("model-server", SERVER)
        if "trainer" in whom:
            return [pod for name in loops.trainings for pod in loops.training_pods(name)]
        pods = [pod for name in loops.runs for pod in loops.pods("benchmark-run", name)]
        return [pod for pod in pods if is_trial(pod) is ("trial" in whom)]


def operator_pods(kube: Kube) -> list[Pod]:
    """Return the operators' pods, by name."""
    pods = kube.list("v1", "Pod", namespace=SYSTEM_NAMESPACE, labels="app.kubernetes.io/component=operator")
    living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return sorted(living, key=lambda pod: str(pod["metadata"]["name"]))


@contextmanager
def scaled_operator(kube: Kube, number: int) -> Iterator[None]:
    """Let so many operators run for a while."""
    _scale(kube, number)
    try:
        yield
    finally:
        _scale(kube, 1)


def require_explained(pods: Sequence[Pod], kills: Counter[str], kube: Kube) -> None:
    """Check that no operator ended but by a kill, or by the loss of its Lease, which it tells, and that none is left
    behind."""
    for pod in pods:
        [container] = pod["status"]["containerStatuses"]
        name, restarts = pod["metadata"]["name"], container["restartCount"]
        assert container["ready"], f"{name} is not ready"
        words = kube.logs(namespace=SYSTEM_NAMESPACE, pod=name, container="operator", lines=5000)
        assert "Traceback" not in words, words[-4000:]
        if restarts > kills[pod["metadata"]["uid"]]:
            before = Cluster().kubectl("logs", name, "--namespace", SYSTEM_NAMESPACE, "--previous", "--tail=20")
            assert "stopped: " in before, f"{name} started {restarts} times again: {before}"


def _scale(kube: Kube, number: int) -> None:
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _OPERATOR},
        "spec": {"replicas": number},
    }
    kube.apply(patch, namespace=SYSTEM_NAMESPACE)

    def scaled() -> bool:
        deployment = kube.get("apps/v1", "Deployment", name=_OPERATOR, namespace=SYSTEM_NAMESPACE)
        assert deployment is not None
        status = deployment["status"]
        return bool(status.get("replicas", 0) == number == status.get("readyReplicas", 0)) and is_true(
            deployment, "Available"
        )

    eventually(scaled, what=f"{number} operators", seconds=180)


def _runs(pod: Pod) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _container(whom: str) -> str:
    return next((name for name in ("operator", "sidecar", "engine") if name in whom), "main")
