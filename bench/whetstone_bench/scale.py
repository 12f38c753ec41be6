"""Three kinds, many objects of each: burst, convergence, rest and restart, beside a minimal operator in Go.

API server and etcd are real and both operators are processes. What a cluster would answer is simulated
(`status_writer`). Requests are counted in the API server's audit log, by the user that sent them.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
from integration.api import Object
from integration.operator_process import USER, OperatorProcess, account_kubeconfig
from integration.world import RUN_SPEC, SERVER_SPEC, TRAINING_SPEC, World, usual_result
from support.protocol_sidecars import ProtocolSidecars
from whetstone_api.vocabulary import API_VERSION

from whetstone_bench.async_api import AsyncApi
from whetstone_bench.audit import Audit
from whetstone_bench.figures import Figure, once, spread
from whetstone_bench.operator_image import operator_of_image
from whetstone_bench.peer import PeerProcess, build_peer
from whetstone_bench.stage import LETTERS, Stage, cpu_seconds, pause, peak_mebibytes, resident_mebibytes
from whetstone_bench.status_writer import StatusWriter

PEER_ACCOUNT: Final = "peer"
PEER_USER: Final = f"system:serviceaccount:whetstone-system:{PEER_ACCOUNT}"
BURST: Final = 200
RESTARTS: Final = 3
CREATORS: Final = 32
LOOK_SECONDS: Final = 0.1
QUIET_SECONDS: Final = 10.0
REST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 1200.0


class Contestant(Protocol):
    """An operator under measurement."""

    @property
    def pid(self) -> int:
        """Number of its process."""

    def start(self) -> None:
        """Start it, and wait until it answers."""

    def kill(self) -> None:
        """End it as kill -9 does."""

    def reconciled(self) -> float:
        """Return how many reconciles it has done, less than 0 while keys are due."""


class Arena:
    """One contestant with its objects.

    Args:
        stage: The control plane.
        world: Its namespace.
        contestant: The operator.
        user: The user whose name its requests carry.
        sidecars: Addresses of those that answer for engine pods; a server each, which counts revisions of its own.
        name: Its name in the figures.
        quiet: Seconds without a request after which it is at rest.
    """

    def __init__(
        self,
        stage: Stage,
        world: World,
        contestant: Contestant,
        *,
        user: str,
        sidecars: Sequence[str],
        name: str,
        quiet: float = QUIET_SECONDS,
    ) -> None:
        self._stage, self._world, self._contestant, self._name = stage, world, contestant, name
        self._sidecars, self._quiet_seconds = sidecars, quiet
        self._audit = Audit(stage.plane.audit_log, user)
        self._cpu = cpu_seconds(contestant.pid)
        self._counts: Counter[str] = Counter(dict.fromkeys(LETTERS, 0))

    def empty(self) -> list[Figure]:
        """Measure what it takes without objects."""
        return [self._once("resident memory, no object", resident_mebibytes(self._contestant.pid), "MiB")]

    def burst(self, counts: Mapping[str, int]) -> list[Figure]:
        """Create more objects of each kind at once; measure until each has a status, which comes after its children."""
        what = " + ".join(f"{number} {kind}s" for kind, number in counts.items()) + " at once"
        first = self._counts.copy()
        self._counts.update(counts)
        with ThreadPoolExecutor(len(counts)) as pool:
            begin = time.monotonic()
            told = [pool.submit(self._told, kind, self._counts[kind]) for kind in counts]
            asyncio.run(self._create(counts, first))
            created = time.monotonic() - begin
            done = max(one.result() for one in told) - begin
        return [
            self._once(f"{what}: created after", created, "s"),
            self._once(f"{what}: all children and statuses after", done, "s"),
            *self._cost(what, sum(counts.values())),
        ]

    def converge(self, objects: int) -> list[Figure]:
        """Let pods run and Jobs end; measure until nothing is due any more."""
        what = "pods start, Jobs end"
        begin = time.monotonic()
        asyncio.run(self._simulate(objects))
        done = until(lambda: self._contestant.reconciled() >= 0) - begin
        self.wait_quiet()
        return [
            self._once(f"{what}: nothing due after", done, "s"),
            *self._cost(what, 3 * objects),
            *self._memory(what),
        ]

    def rest(self) -> list[Figure]:
        """Measure a minute in which nothing happens."""
        self.wait_quiet()
        self._audit.take()
        used = cpu_seconds(self._contestant.pid)
        pause(REST_SECONDS)
        asked = self._audit.take()
        return [
            self._once("at rest: watches that ended and were opened again, a minute", asked.pop("watch", 0), ""),
            self._once("at rest: other requests a minute", asked.total(), ""),
            self._once("at rest: processor time a minute", cpu_seconds(self._contestant.pid) - used, "s"),
        ]

    def restarts(self, objects: int, *, times: int) -> list[Figure]:
        """Restart it some times, each time from rest."""
        samples: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for _ in range(times):
            self.wait_quiet()
            for one in self.restart(objects):
                samples[one.what, one.unit].append(one.median)
        return [spread(what, values, unit) for (what, unit), values in samples.items()]

    def restart(self, objects: int) -> list[Figure]:
        """Kill and start it; measure until each object was reconciled once and none is due."""
        what = f"restart with {objects} objects of each kind"
        self._contestant.kill()
        self._audit.take()
        self._cpu = 0.0
        begin = time.monotonic()
        self._contestant.start()
        done = until(lambda: self._contestant.reconciled() >= 3 * objects) - begin
        figures = [self._once(f"{what}: all reconciled after", done, "s")]
        return [*figures, *self._cost(what, 3 * objects), *self._memory(what)]

    def _once(self, what: str, value: float, unit: str) -> Figure:
        return once(f"{self._name}: {what}", value, unit)

    def _memory(self, what: str) -> list[Figure]:
        pid = self._contestant.pid
        return [
            self._once(f"{what}: resident memory then", resident_mebibytes(pid), "MiB"),
            self._once(f"{what}: largest resident memory", peak_mebibytes(pid), "MiB"),
        ]

    def _cost(self, what: str, objects: int) -> list[Figure]:
        """Return what the operator has used since the last call."""
        asked, used = self._audit.take(), cpu_seconds(self._contestant.pid)
        figures = [self._once(f"{what}: processor time", used - self._cpu, "s")]
        self._cpu = used
        figures += [self._once(f"{what}: requests, {verb}", number, "") for verb, number in sorted(asked.items())]
        return [*figures, self._once(f"{what}: requests an object", round(asked.total() / objects, 1), "")]

    def wait_quiet(self) -> None:
        """Wait until the operator asks for nothing any more."""
        count = -1
        while count != (count := self._audit.total()):
            pause(self._quiet_seconds)

    def _told(self, kind: str, number: int) -> float:
        names: set[str] = set()
        # The API server ends the watches of a kind that it was taught just now.
        while len(names) < number:
            for obj in self._world.api.watch(kind, namespace=self._world.namespace):
                if (obj.get("status") or {}).get("conditions"):
                    names.add(obj["metadata"]["name"])
                if len(names) >= number:
                    break
        return time.monotonic()

    def _api(self) -> AbstractAsyncContextManager[AsyncApi]:
        plane = self._stage.plane
        return AsyncApi.connect(plane.server, plane.pki.folder, self._world.namespace)

    async def _create(self, counts: Mapping[str, int], first: Mapping[str, int]) -> None:
        free = asyncio.Semaphore(CREATORS)
        numbers = [(n, kind) for kind, count in counts.items() for n in range(first[kind], first[kind] + count)]
        wanted = [fleet_object(kind, n) for n, kind in sorted(numbers)]
        async with self._api() as api, asyncio.TaskGroup() as group:

            async def create(obj: Object) -> None:
                async with free:
                    await api.create(obj)

            for obj in wanted:
                group.create_task(create(obj))

    async def _simulate(self, objects: int) -> None:
        async with self._api() as api, asyncio.timeout(LONGEST_SECONDS):
            writer = StatusWriter(api=api, sidecars=iter(self._sidecars), result=result_of)
            await writer.run(deployments=objects, jobs=3 * objects)


class Whetstone:
    """The operator as a contestant.

    Args:
        process: Its process.
    """

    def __init__(self, process: OperatorProcess) -> None:
        self._process = process
        self.start, self.kill = process.start, process.kill

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._process.pid

    def reconciled(self) -> float:
        """Return how many reconciles it has done, less than 0 while keys are due."""
        due = self._process.metric("whetstone_workqueue_depth")
        return -1 if due else self._process.metric("whetstone_reconcile_total")


def scale(folder: Path, *, objects: int) -> list[Figure]:
    """Measure Whetstone, then the peer, on a control plane of each one's own; the ratios come last.

    Args:
        folder: For the files of both.
        objects: How many of each kind.
    """
    ours = _measure(folder / "whetstone", objects=objects, peer=None)
    theirs = _measure(folder / "peer", objects=objects, peer=build_peer())
    return [*ours, *theirs, *ratios(ours, theirs)]


def ratios(ours: list[Figure], theirs: list[Figure]) -> list[Figure]:
    """Return each figure of ours divided by that of the peer, where both have it."""
    of_peer = {one.what.partition(": ")[2]: one.median for one in theirs}
    pairs = [(one.what.partition(": ")[2], one.median) for one in ours if ": requests, " not in one.what]
    return [once(f"Whetstone / peer: {what}", value / of_peer[what], "") for what, value in pairs if of_peer.get(what)]


def _measure(folder: Path, *, objects: int, peer: Path | None) -> list[Figure]:
    folder.mkdir(parents=True)
    user, name = (PEER_USER, "peer") if peer else (USER, "Whetstone")
    with (
        Stage(folder, controllers=False, audited=[PEER_USER]) as stage,
        stage.world() as world,
        ProtocolSidecars(objects) as sidecars,
        _running(stage, world, peer) as contestant,
    ):
        for account in ("default", "whetstone-runner"):
            world.account(account)
        addresses = [one.address for one in sidecars.pods]
        arena = Arena(stage, world, contestant, user=user, sidecars=addresses, name=name)
        burst = min(BURST, objects)
        figures = [*arena.empty(), *arena.burst({"ModelServer": burst})]
        rest = {"ModelServer": objects - burst, "LoRATrainingJob": objects, "BenchmarkRun": objects}
        figures += arena.burst({kind: number for kind, number in rest.items() if number})
        return [*figures, *arena.converge(objects), *arena.rest(), *arena.restarts(objects, times=RESTARTS)]


@contextmanager
def _running(stage: Stage, world: World, peer: Path | None) -> Iterator[Contestant]:
    if peer is None:
        with operator_of_image(stage.folder) as launcher, stage.operator(world, launcher=launcher) as process:
            yield Whetstone(process)
        return
    stage.admit(PEER_ACCOUNT)
    kubeconfig = account_kubeconfig(stage.plane, stage.api, stage.folder, account=PEER_ACCOUNT)
    other = PeerProcess(peer, kubeconfig=kubeconfig, namespace=world.namespace, folder=stage.folder)
    other.start()
    try:
        yield other
    finally:
        other.stop()


def fleet_object(kind: str, number: int) -> Object:
    """Return an object of the fleet: server, training and run of a number belong together."""
    name = f"{LETTERS[kind]}{number}"
    specs: dict[str, Mapping[str, Any]] = {
        "ModelServer": SERVER_SPEC,
        "LoRATrainingJob": {**TRAINING_SPEC, "output": {"adapter": {"uri": f"pvc://adapters/{name}"}}},
        "BenchmarkRun": {
            **RUN_SPEC,
            "target": {"modelServerRef": {"name": f"s{number}"}},
            "output": {"uri": f"pvc://results/{name}"},
        },
    }
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(specs[kind])}


def result_of(job: str) -> Object | None:
    """Return what a Job's pod ends with: every Prepare ends, every second training and run stays at work."""
    owner, stage, _ = job.rsplit("-", 2)
    return None if stage != "prepare" and int(owner[1:]) % 2 else usual_result(owner, stage)


def until(done: Callable[[], bool]) -> float:
    """Wait for a condition; return the monotonic time at which it was seen."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        try:
            if done():
                return time.monotonic()
        except httpx.TimeoutException:
            continue
        pause(LOOK_SECONDS)
    raise TimeoutError("a measurement did not come to its end")
