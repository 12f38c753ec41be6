"""A node on which nothing runs: it tells of every pod of a namespace what a kubelet would, and programs end well.

It can be told what happens to the pods of a Job, one after another, before one of them ends well.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import httpx
from integration.api import Object, Refused
from integration.world import JOB_NAME, World, done_status, ended_status, engine_status, running_status, usual_result
from support.protocol_sidecars import ProtocolSidecar
from whetstone_api.vocabulary import Label

WORK_SECONDS: Final = 1.0
_KILLED: Final = 137
_LOOK_SECONDS: Final = 0.1


class Fate(StrEnum):
    """What happens to a pod while its program works."""

    KILLED = "killed"
    DELETED = "deleted"
    EVICTED = "evicted"


class StandInNode:
    """Keeps the pods of a namespace until it is left.

    Args:
        world: The namespace.
        sidecars: Those of its engine pods.
        fates: What happens to the first pods of a Job, by the Job's name without its hash.
    """

    def __init__(
        self, world: World, *, sidecars: Sequence[ProtocolSidecar], fates: Mapping[str, Sequence[Fate]]
    ) -> None:
        self._world = world
        self._free = list(sidecars)
        self._fates = fates
        self._engines: dict[str, ProtocolSidecar] = {}
        self._broken: set[str] = set()
        self._begun: dict[str, float] = {}
        self._order: dict[str, list[str]] = {}
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failed: Exception | None = None

    def __enter__(self) -> "StandInNode":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def restart_engine(self, choose: Callable[[Sequence[str]], str]) -> None:
        """Let the containers of an engine pod end and start again, if there is such a pod."""
        with self._turn:
            if self._engines:
                self._broken.add(choose(sorted(self._engines)))

    def engines(self) -> list[str]:
        """Return the names of the engine pods that run."""
        with self._turn:
            return sorted(self._engines)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                with self._turn:
                    self._look()
            except httpx.HTTPError:
                continue
            except Refused as error:
                # Gone or changed since it was listed; or the API server is starting.
                if error.status < httpx.codes.INTERNAL_SERVER_ERROR and error.status not in (404, 409):
                    self._failed = error
                    return

    def _look(self) -> None:
        listed = self._world.api.list("Pod", namespace=self._world.namespace)
        living = {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}
        for name in self._engines.keys() - living.keys():
            self._free.append(self._engines.pop(name))
            self._broken.discard(name)
        for name, pod in sorted(living.items()):
            labels = pod["metadata"]["labels"]
            if Label.MODEL_SERVER in labels:
                self._keep_engine(name, pod)
            elif JOB_NAME in labels:
                self._keep_program(name, pod)

    def _keep_engine(self, name: str, pod: Object) -> None:
        if name not in self._engines:
            sidecar = self._free.pop()
            sidecar.forget()
            self._engines[name] = sidecar
        ready = name not in self._broken
        if not ready:
            self._engines[name].forget()
        if _is_ready(pod) is not ready:
            started = pod["status"].get("startTime")
            self._world.set_pod_status(pod, engine_status(self._engines[name].address, ready=ready, started=started))
        self._broken.discard(name)

    def _keep_program(self, name: str, pod: Object) -> None:
        phase = pod["status"].get("phase")
        if phase in ("Succeeded", "Failed"):
            return
        job = pod["metadata"]["labels"][JOB_NAME]
        order = self._order.setdefault(job, [])
        if name not in order:
            order.append(name)
        if phase != "Running":
            self._world.set_pod_status(pod, running_status(pod))
            self._begun[name] = time.monotonic()
        elif time.monotonic() - self._begun[name] > WORK_SECONDS:
            self._end(name, pod, job=job, number=order.index(name))

    def _end(self, name: str, pod: Object, *, job: str, number: int) -> None:
        task = job.rpartition("-")[0]
        fates = self._fates.get(task, ())
        fate = fates[number] if number < len(fates) else None
        if fate is Fate.DELETED:
            self._world.api.delete("Pod", name, namespace=self._world.namespace)
        elif fate is not None:
            status = ended_status(pod, None, code=_KILLED, evicted=fate is Fate.EVICTED)
            self._world.set_pod_status(pod, status)
        else:
            owner, _, stage = task.rpartition("-")
            self._world.set_pod_status(pod, done_status(pod, usual_result(owner, stage)))


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
