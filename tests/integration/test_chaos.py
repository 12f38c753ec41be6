"""Whatever dies while objects come, change and go: what is wanted comes about, once, and nothing else is left.

The order of what is done, and to whom, follows from a seed, always the same one unless `WHETSTONE_CHAOS_SEED=…` gives
another; it is printed with the schedule.
Asserted is only what holds in every order.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from integration.api import Api, Object, Refused, accepted
from integration.conftest import equipped
from integration.keeper import Keeper
from integration.operator_process import (
    SYSTEM_NAMESPACE,
    USER,
    OperatorProcess,
    account_kubeconfig,
    operators_entries,
)
from integration.stand_in_node import Fate, StandInNode
from integration.world import World
from support.chaos import Dice, Turn, lost, told
from support.protocol_sidecars import ProtocolSidecars
from support.waiting import eventually, eventually_none
from whetstone_dev.controlplane import ControlPlane

pytestmark = pytest.mark.integration
SEED: Final = 8
STORIES: Final = (
    ("create server-0",),
    ("create server-1", "change server-1"),
    ("create server-2", "delete server-2"),
    ("create training-0",),
    ("create training-1",),
    ("create training-2", "delete training-2"),
    ("create run-0",),
    ("create run-1",),
    ("create run-2", "delete run-2"),
)
"""What users do; each story's parts come in their order."""
FAULTS: Final = (
    *("kill the leader", "kill the other operator", "lose the leader with its pod", "restart kube-apiserver"),
    *("restart etcd", "restart an engine", "restart an engine", "delete an engine pod"),
)
LATE_FAULTS: Final = ("kill the leader", "kill both operators")
"""What waits for a Job: an operator that starts more slowly than users act would have made none before the others."""
FATED: Final = ("training-0-train", "training-1-prepare", "run-0-run", "run-1-run")
"""Jobs, of each of which one pod is lost. Kubernetes waits ten seconds or more before it makes another one."""
KINDS: Final = {"server": "ModelServer", "training": "LoRATrainingJob", "run": "BenchmarkRun"}
LASTING: Final = ("server-0", "server-1", "training-0", "training-1", "run-0", "run-1")
JOBS: Final = {"training-0-prepare", "training-0-train", "training-1-prepare", "training-1-train"} | {
    f"run-{number}-run" for number in range(2)
}
PAUSES: Final = (0.2, 2.0)
SETTLE_SECONDS: Final = 120.0
WRITES: Final = ("create", "update", "patch", "delete", "deletecollection")
CHILDREN: Final = {
    "v1": ("pods", "configmaps", "secrets", "services"),
    "apps/v1": ("deployments", "replicasets"),
    "batch/v1": ("jobs",),
    "policy/v1": ("poddisruptionbudgets",),
    "networking.k8s.io/v1": ("networkpolicies",),
    "coordination.k8s.io/v1": ("leases",),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this test's own: it stops parts of it."""
    with ControlPlane(tmp_path_factory.mktemp("chaos"), audited=[USER]) as plane:
        yield plane


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with equipped(plane) as client:
        yield client


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What is disturbed.

    Args:
        plane: The control plane.
        world: The namespace.
        node: Where its pods seem to run.
        operators: Replicas of one operator, and what keeps each of them.
    """

    plane: ControlPlane
    world: World
    node: StandInNode
    operators: Mapping[OperatorProcess, Keeper]

    def play(self, turn: Turn) -> None:
        """Do what is due."""
        threading.Event().wait(turn.pause)
        what, _, who = turn.what.partition(" ")
        if what in ("create", "change", "delete") and who.partition("-")[0] in KINDS:
            accepted(lambda: getattr(self, f"_{what}")(who))
        else:
            self._disturb(turn)

    def _disturb(self, turn: Turn) -> None:
        leader, *others = sorted(self.operators, key=lambda one: one.identity != self.holder())
        if turn.what == "restart an engine":
            self.node.restart_engine(turn.choose)
        elif turn.what == "delete an engine pod":
            if engines := self.node.engines():
                accepted(lambda: self._remove("Pod", turn.choose(engines)))
        elif turn.what.startswith("restart "):
            self.plane.processes.stop(turn.what.removeprefix("restart "), grace=0.1)
            self.plane.start()
        elif turn.what == "kill the other operator":
            self.operators[others[0]].kill()
        else:
            self.operators[leader].kill(pod="pod" in turn.what)
            if "both" in turn.what:
                self.operators[others[0]].kill()

    def holder(self) -> str:
        """Return the identity of the operator that leads, or did last."""
        lease = next(iter(self.operators)).lease
        found = self.world.api.get("Lease", lease, namespace=SYSTEM_NAMESPACE)
        return str(found["spec"].get("holderIdentity")) if found else ""

    def leader(self) -> OperatorProcess:
        """Return the one operator that says that it leads."""
        found = []
        for one in self.operators:
            try:
                leads = one.metric("whetstone_leader") == 1
            except httpx.HTTPError:
                # It is being started again.
                continue
            found += [one] if leads else []
        assert len(found) == 1, f"{len(found)} operators lead"
        return found[0]

    def _create(self, name: str) -> None:
        kind, _, number = name.partition("-")
        if kind == "server":
            adapters: Object = {"adapters": [{"name": "a", "trainingJobRef": {"name": f"training-{number}"}}]}
            stores = {"adapterStores": [{"name": "adapters", "claimName": "adapters"}]}
            self.world.serve(name, **stores, **adapters)
        elif kind == "training":
            self.world.train(name, output={"adapter": {"uri": f"pvc://adapters/{name}"}})
        else:
            self.world.benchmark(name, target={"modelServerRef": {"name": f"server-{number}"}})

    def _change(self, name: str) -> None:
        self.world.api.merge(KINDS["server"], name, {"spec": {"replicas": 2}}, namespace=self.world.namespace)

    def _delete(self, name: str) -> None:
        self._remove(KINDS[name.partition("-")[0]], name)

    def _remove(self, kind: str, name: str) -> None:
        try:
            self.world.api.delete(kind, name, namespace=self.world.namespace)
        except Refused as error:
            # The try before this one may have had no answer.
            if error.status != httpx.codes.NOT_FOUND:
                raise


@pytest.fixture
def dice() -> Dice:
    return Dice(SEED)


@pytest.fixture
def fates(dice: Dice) -> dict[str, list[Fate]]:
    """What happens to one pod of each Job that is hit."""
    kinds = [*Fate, *Fate][: len(FATED)]
    return {job: [fate] for job, fate in zip(FATED, dice.shuffled(kinds), strict=True)}


@pytest.fixture
def stage(plane: ControlPlane, api: Api, world: World, fates: dict[str, list[Fate]], tmp_path: Path) -> Iterator[Stage]:
    """A namespace without objects, and two operators, one of which leads."""
    world.claims()
    world.account()
    kubeconfig = account_kubeconfig(plane, api, tmp_path)
    logs = [tmp_path / f"{name}.log" for name in ("first", "second")]
    both = [OperatorProcess(kubeconfig=kubeconfig, namespace=world.namespace, log=log) for log in logs]
    with ExitStack() as stack:
        sidecars = stack.enter_context(ProtocolSidecars(12))
        node = stack.enter_context(StandInNode(world, sidecars=sidecars.pods, fates=fates))
        operators = {one: stack.enter_context(Keeper(one)) for one in both}
        yield Stage(plane=plane, world=world, node=node, operators=operators)
    for log in logs:
        assert "Traceback" not in log.read_text(), f"{log}: {log.read_text()[-6000:]}"


def test_what_is_wanted_comes_about_once_whatever_dies(
    stage: Stage, dice: Dice, fates: dict[str, list[Fate]], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = dice.merged([*STORIES, *((fault,) for fault in dice.shuffled(FAULTS))])
    turns = dice.turns(parts, pauses=PAUSES)
    late = dice.turns(dice.shuffled(LATE_FAULTS), pauses=PAUSES)
    schedule = told(dice, [*turns, *late], *(f"a pod of {job} is {fate[0]}" for job, fate in fates.items()))
    with capsys.disabled():
        print(f"\n{schedule}")  # noqa: T201 - it is what a person needs to see the same again
    for turn in turns:
        stage.play(turn)
    world = stage.world
    eventually(lambda: lasting_jobs(world), what="there is a Job", seconds=SETTLE_SECONDS)
    for turn in late:
        stage.play(turn)
    for name in LASTING:
        eventually(lambda name=name: has_come_about(world, name), what=f"{name} after all", seconds=SETTLE_SECONDS)
    require_each_job_once(stage)
    eventually_none(lambda: orphans(world), what="no child without its owner", seconds=SETTLE_SECONDS)
    eventually(lambda: is_at_rest(stage), what="nothing is written any more", seconds=SETTLE_SECONDS)
    eventually(lambda: stage.leader().identity == stage.holder(), what="the one that leads has the Lease")


def has_come_about(world: World, name: str) -> bool:
    """Check that an object is what its spec asks for."""
    obj = world.get(KINDS[name.partition("-")[0]], name)
    status = obj["status"]
    ready = next((one for one in status.get("conditions") or [] if one["type"] == "Ready"), {})
    assert ready.get("status") == "True", f"{ready}"
    assert status["observedGeneration"] == obj["metadata"]["generation"]
    if obj["kind"] == "ModelServer":
        wanted = obj["spec"].get("replicas", 1)
        assert (status["replicas"], status["readyReplicas"]) == (wanted, wanted)
        [adapter] = status["adapters"]
        assert adapter["effectiveReplicas"] == wanted, f"{adapter}"
    return True


def lasting_jobs(world: World) -> list[str]:
    """Return the Jobs of the lasting objects, without their hash."""
    jobs = [_stage_of(job["metadata"]["name"]) for job in world.api.list("Job", namespace=world.namespace)]
    return sorted(name for name in jobs if name in JOBS)


def require_each_job_once(stage: Stage) -> None:
    """Check all that the operators have ever asked to create, and what is there: whatever the hash in its name."""
    namespace = stage.world.namespace
    there: dict[str, int] = defaultdict(int)
    for entry in operators_entries(stage.plane):
        place = entry.get("objectRef") or {}
        if place.get("resource") != "jobs" or place.get("namespace") != namespace:
            continue
        code, name = (entry.get("responseStatus") or {}).get("code"), _stage_of(place.get("name", ""))
        if entry["verb"] == "create" and code == httpx.codes.CREATED:
            there[name] += 1
            assert there[name] == 1, f"Job {place['name']} was created while there was one"
        elif entry["verb"] == "delete" and code == httpx.codes.OK:
            there[name] = 0
    assert lasting_jobs(stage.world) == sorted(JOBS)


def _stage_of(job: str) -> str:
    return job.rpartition("-")[0]


def orphans(world: World) -> list[str]:
    """Return the children whose owner is gone."""
    objects = {
        f"{kind}/{obj['metadata']['name']}": obj
        for kind in KINDS.values()
        for obj in world.api.list(kind, namespace=world.namespace)
    }
    for version, plurals in CHILDREN.items():
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        for plural in plurals:
            items = world.api.raw("GET", f"{root}/namespaces/{world.namespace}/{plural}")["items"]
            objects |= {f"{plural}/{obj['metadata']['name']}": obj for obj in items}
    return lost(objects)


def is_at_rest(stage: Stage) -> bool:
    """Make every object be looked at again, and check that this writes nothing but the Lease."""
    world = stage.world
    before = len(operators_entries(stage.plane))
    leader = stage.leader()
    looked = leader.metric("whetstone_reconcile_total")
    for name in LASTING:
        note = {"metadata": {"annotations": {"example.com/look": str(before)}}}
        world.api.merge(KINDS[name.partition("-")[0]], name, note, namespace=world.namespace)
    eventually(lambda: leader.metric("whetstone_reconcile_total") >= looked + len(LASTING), what="all looked at")
    entries = operators_entries(stage.plane)[before:]
    written = [one for one in entries if one["verb"] in WRITES and not _is_aside(one)]
    assert not written, f"{[(one['verb'], one['requestURI']) for one in written]}"
    return True


def _is_aside(entry: Mapping[str, Any]) -> bool:
    return (entry.get("objectRef") or {}).get("resource") in ("leases", "tokenreviews")
