"""A fleet in steady change: as many objects as ever, each of which is created, changed, finished and replaced.

Every object has a name of its own, so that whatever is kept by name of one that is gone adds up.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import aiohttp
from integration.api import Object
from integration.engine_pods import SERVER_SPEC
from integration.operator_process import OperatorProcess
from integration.world import DIGEST, RUN_SPEC, TRAINING_SPEC
from whetstone_api.vocabulary import API_VERSION

from whetstone_bench.async_api import AsyncApi
from whetstone_bench.kubelet import SimulatedKubelet
from whetstone_bench.stage import LETTERS

PLURALS: Final = {"LoRATrainingJob": "loratrainingjobs", "BenchmarkRun": "benchmarkruns"}
STEPS: Final = 4
"""Of a life: created, changed or told of, changed again, finished."""
SIDECARS_A_SLOT: Final = 6
"""Engine pods at a time: one of the server that stays, two of the one that changes, and those that go or come."""


@dataclass
class Slot:
    """A place in the fleet that one object after another takes.

    Args:
        kind: Their kind.
        number: The slot's.
        generation: Objects that came before.
        step: The last step of the present one's life.
    """

    kind: str
    number: int
    generation: int = 0
    step: int = 0

    @property
    def name(self) -> str:
        """Name of the present object."""
        return f"{LETTERS[self.kind]}{self.number}-{self.generation}"


class Churn:
    """Changes one object after another.

    Args:
        api: The client.
        kubelet: Has the pods.
        operator: The operator that pods report to.
        session: Their connections.
        slots: Objects of each kind that change; as many servers more are measured by the runs and stay.
    """

    def __init__(
        self,
        api: AsyncApi,
        kubelet: SimulatedKubelet,
        operator: OperatorProcess,
        session: aiohttp.ClientSession,
        *,
        slots: int,
    ) -> None:
        self._api, self._kubelet, self._operator, self._session = api, kubelet, operator, session
        self._slots = [Slot(kind, number) for number in range(slots) for kind in LETTERS]
        self._turns: Iterator[Slot] = cycle(self._slots)
        self.done: Counter[str] = Counter()
        """Operations so far, by what was done."""

    @property
    def objects(self) -> int:
        """How many objects there are."""
        return len(self._slots) + len(self._slots) // len(LETTERS)

    async def fill(self) -> None:
        """Create the fleet, its objects at different steps of their lives."""
        for slot in self._slots:
            if slot.kind == "ModelServer":
                await self._create("ModelServer", f"home{slot.number}", SERVER_SPEC)
            await self._create(slot.kind, slot.name, _spec(slot))
        for slot in self._slots:
            for _ in range(slot.number % STEPS):
                await self._step(slot)

    async def turn(self) -> None:
        """Take the next object a step further; one at its end is replaced."""
        await self._step(next(self._turns))

    async def sweep(self) -> None:
        """Take every object a step further."""
        for _ in self._slots:
            await self.turn()

    async def unsettled(self) -> list[str]:
        """Return what is not as it should be once all has been done, and what is left of objects that are gone."""
        wanted = {(slot.kind, slot.name): _reason(slot) for slot in self._slots}
        wanted |= {("ModelServer", f"home{slot.number}"): "Serving" for slot in self._slots if slot.kind in PLURALS}
        found: dict[tuple[str, str], str | None] = {}
        uids = set()
        for kind in LETTERS:
            for obj in await self._api.list(kind):
                conditions = (obj.get("status") or {}).get("conditions") or []
                uids.add(obj["metadata"]["uid"])
                found[kind, obj["metadata"]["name"]] = {one["type"]: one["reason"] for one in conditions}.get("Ready")
        different = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
        told = [f"{name} is {found.get((kind, name))}, not {wanted.get((kind, name))}" for kind, name in different]
        return [*told, *await self._orphans(uids)]

    async def _orphans(self, owners: set[str]) -> list[str]:
        """Return the children whose owners are none of these."""
        return [
            f"{kind} {obj['metadata']['name']} is left"
            for kind in ("Deployment", "Job", "ConfigMap", "Secret", "Service", "PodDisruptionBudget")
            for obj in await self._api.list(kind, "app.kubernetes.io/managed-by=whetstone")
            if (references := obj["metadata"].get("ownerReferences"))
            and owners.isdisjoint(one["uid"] for one in references)
        ]

    async def _step(self, slot: Slot) -> None:
        slot.step = (slot.step + 1) % STEPS
        if slot.step == 0:
            await self._replace(slot)
        elif slot.kind == "ModelServer":
            await self._change_server(slot)
        elif slot.step == 1:
            await self._report(slot)
        elif slot.step == 2:
            await self._merge(slot, {"activeDeadlineSeconds": 100_000})
        else:
            await self._kubelet.end(slot.name)
            self.done["trainings and runs ended"] += 1

    async def _replace(self, slot: Slot) -> None:
        await self._api.delete(slot.kind, slot.name)
        self.done["objects deleted"] += 1
        self._kubelet.forget(slot.name)
        slot.generation += 1
        await self._create(slot.kind, slot.name, _spec(slot))

    async def _create(self, kind: str, name: str, spec: Object) -> None:
        obj = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        await self._api.create(obj)
        self.done["objects created"] += 1

    async def _change_server(self, slot: Slot) -> None:
        """Let a server load two adapters, one of them of a training; then run twice; then be as it was."""
        trained = next(one for one in self._slots if one.kind == "LoRATrainingJob" and one.number == slot.number)
        adapters = [
            {"name": "a", "source": {"uri": f"pvc://adapters/{slot.name}", "digest": DIGEST}},
            {"name": "b", "trainingJobRef": {"name": trained.name}},
        ]
        changes: dict[int, Object] = {
            1: {"adapters": adapters, "aliases": [{"name": "live", "targets": [{"adapter": "a"}]}]},
            2: {"replicas": 2},
            3: {"replicas": 1, "adapters": None, "aliases": None},
        }
        await self._merge(slot, changes[slot.step])

    async def _merge(self, slot: Slot, change: Object) -> None:
        await self._api.merge(slot.kind, slot.name, {"spec": change})
        self.done["specs changed"] += 1

    async def _report(self, slot: Slot) -> None:
        """Let the object's pod say where it stands, if it has one by now."""
        token = await self._kubelet.token(slot.name)
        if token is None:
            return
        body = {"phase": "Train", "step": 1, "maxSteps": 10, "loss": 1.5}
        if slot.kind == "BenchmarkRun":
            body = {"phase": "Trials", "step": 1, "maxSteps": 8, "passed": 1, "failed": 0, "void": 0, "running": 1}
        url = self._operator.report_url(f"{PLURALS[slot.kind]}/{self._api.namespace}/{slot.name}")
        async with self._session.post(url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer:
            answer.raise_for_status()
        self.done["reports of pods"] += 1


def _spec(slot: Slot) -> Object:
    if slot.kind == "ModelServer":
        return dict(SERVER_SPEC)
    if slot.kind == "LoRATrainingJob":
        return {**TRAINING_SPEC, "output": {"adapter": {"uri": f"pvc://adapters/{slot.name}"}}}
    target = {"modelServerRef": {"name": f"home{slot.number}"}}
    return {**RUN_SPEC, "target": target, "output": {"uri": f"pvc://results/{slot.name}"}}


def _reason(slot: Slot) -> str:
    """Return the reason of its Ready condition once all has been done."""
    if slot.kind == "ModelServer":
        return "Serving"
    if slot.step == STEPS - 1:
        return "Succeeded"
    return "Training" if slot.kind == "LoRATrainingJob" else "Running"
