"""Hours of steady change: does the operator's memory stay as it is, and all else that it holds.

API server, etcd and controllers are real, and the kubelet is simulated. A fleet of as many objects as ever is created,
changed, finished and deleted, one operation after another at a moderate pace.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from typing import Any, Final

import aiohttp
from integration.operator_process import USER, OperatorProcess
from support.protocol_sidecars import ProtocolSidecars

from whetstone_bench.async_api import AsyncApi
from whetstone_bench.audit import Audit
from whetstone_bench.census import Census, CountedProcess
from whetstone_bench.churn import SIDECARS_A_SLOT, Churn
from whetstone_bench.figures import Figure, once, spread
from whetstone_bench.kubelet import SimulatedKubelet
from whetstone_bench.stage import Stage, cpu_seconds, open_files, peak_mebibytes, resident_mebibytes, threads

SLOTS: Final = 30
PACE_SECONDS: Final = 1.0
SAMPLE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 600.0
WARM_SHARE: Final = 0.25
"""Of the time: what the operator holds then is compared with what it holds at the end."""
SHOWN_TYPES: Final = 20


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was seen at a moment.

    Args:
        seconds: Since the beginning.
        operations: Since then.
        resident: Resident memory of the operator, in MiB.
        files: Its open files and connections.
        threads: Its threads.
        series: Series of its metrics.
        processor: Seconds of processor time that it has used.
        requests: What it has asked the API server for, its Lease aside.
    """

    seconds: float
    operations: int
    resident: float
    files: int
    threads: int
    series: int
    processor: float
    requests: int


@dataclass(kw_only=True)
class Record:
    """What a soak has found so far.

    Args:
        objects: How many objects there are at a time.
        samples: What was seen, in its order.
        warm: What the operator held once it was warm.
        end: What it held at the end.
        done: Operations, by what was done.
        settled: Seconds from the last operation until all was as it should be; None before that.
        peak: Largest resident memory, in MiB.
        errors: Unexpected errors in its log.
    """

    objects: int
    samples: list[Sample] = field(default_factory=list)
    warm: Census | None = None
    end: Census | None = None
    done: dict[str, int] = field(default_factory=dict)
    settled: float | None = None
    peak: float = 0.0
    errors: int = 0

    def second_half(self) -> list[Sample]:
        """Return the samples of the second half of the time."""
        middle = self.samples[-1].seconds / 2
        return [one for one in self.samples if one.seconds >= middle]

    def slope(self) -> float:
        """Return by how many MiB an hour the resident memory grew in the second half."""
        half = self.second_half()
        return linear_regression([one.seconds / 3600 for one in half], [one.resident for one in half]).slope

    def growth(self) -> dict[str, int]:
        """Return what the operator held more of at the end than when it was warm, by type."""
        if self.warm is None or self.end is None:
            return {}
        return self.end.growth(self.warm)

    def figures(self) -> list[Figure]:
        """Return the figures; some need two samples in the second half."""
        last, half = self.samples[-1], self.second_half()
        begin = [one.resident for one in self.samples if one.seconds <= last.seconds * WARM_SHARE]
        found = [
            once("time", last.seconds / 60, "min"),
            once("objects of the three kinds at a time", self.objects, ""),
            *(once(what, number, "") for what, number in sorted(self.done.items())),
            once("resident memory, median of the first quarter", median(begin or [last.resident]), "MiB"),
            once("resident memory, median of the second half", median(one.resident for one in half), "MiB"),
            once("resident memory, largest", self.peak, "MiB"),
        ]
        if len(half) > 1:
            found.append(once("resident memory, growth in the second half", self.slope(), "MiB an hour"))
        for what, values in {
            "open files and connections": [one.files for one in half],
            "threads": [one.threads for one in half],
            "series of metrics": [one.series for one in half],
        }.items():
            found.append(spread(f"{what}, second half", values, ""))
        if self.end is not None:
            grown = {name: more for name, more in self.growth().items() if more >= 100}
            found += [
                once("tasks at the end", self.end.tasks, ""),
                once("Python objects that hold others, at the end", sum(self.end.types.values()), ""),
                once("types of which there are a hundred more than after a quarter of the time", len(grown), ""),
            ]
        found += [
            once("processor time of the operator", 60 * last.processor / last.seconds, "s a minute"),
            once("requests to the API server an operation", last.requests / max(1, last.operations), ""),
            once("unexpected errors in the operator's log", self.errors, ""),
        ]
        if self.settled is not None:
            found.append(once("all as it should be, and nothing left of what was deleted, after", self.settled, "s"))
        return found

    def details(self) -> dict[str, Any]:
        """Return what the figures come from."""
        return {
            "samples": [asdict(one) for one in self.samples],
            "growth": dict(list(self.growth().items())[:SHOWN_TYPES]),
        }


class Observer:
    """Looks at an operator from outside and, at a signal, from inside.

    Args:
        stage: The control plane.
        operator: The operator, started by `counted`.
        counted: Takes its census.
    """

    def __init__(self, stage: Stage, operator: OperatorProcess, counted: CountedProcess) -> None:
        self._operator, self._counted = operator, counted
        self._audit = Audit(stage.plane.audit_log, USER)
        self.begin()

    def begin(self) -> None:
        """Count requests and processor time from now on."""
        self._asked, self._used = self._audit.total(), cpu_seconds(self._operator.pid)

    def sample(self, churn: Churn, seconds: float) -> Sample:
        """Return what is to be seen now."""
        pid = self._operator.pid
        return Sample(
            seconds=round(seconds, 1),
            operations=churn.done.total(),
            resident=resident_mebibytes(pid),
            files=open_files(pid),
            threads=threads(pid),
            series=sum(not line.startswith("#") for line in self._operator.exposition().splitlines()),
            processor=round(cpu_seconds(pid) - self._used, 2),
            requests=self._audit.total() - self._asked,
        )

    def update(self, record: Record, churn: Churn) -> None:
        """Write into a record what is counted from the start."""
        record.done = dict(churn.done)
        record.peak = peak_mebibytes(self._operator.pid)
        record.errors = self._operator.log.count("Traceback")

    async def census(self) -> Census:
        """Return what is alive in it."""
        answer = self._counted.ask(self._operator.pid)
        async with asyncio.timeout(60):
            while (found := answer()) is None:  # noqa: ASYNC110 - what it waits for is a file
                await asyncio.sleep(LOOK_SECONDS / 10)
        return found


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where a fleet is kept in change.

    Args:
        stage: The control plane.
        namespace: The namespace that the operator serves.
        operator: The operator.
        observer: Looks at it.
    """

    stage: Stage
    namespace: str
    operator: OperatorProcess
    observer: Observer

    @asynccontextmanager
    async def fleet(self, slots: int) -> AsyncIterator[Churn]:
        """Give a fleet whose pods have their states.

        Args:
            slots: Objects of each kind that change.
        """
        plane = self.stage.plane
        with ProtocolSidecars(SIDECARS_A_SLOT * slots) as sidecars:
            async with (
                AsyncApi.connect(plane.server, plane.pki.folder, self.namespace) as api,
                aiohttp.ClientSession() as session,
                asyncio.TaskGroup() as group,
            ):
                kubelet = SimulatedKubelet(api, sidecars.pods)
                running = group.create_task(kubelet.run())
                churn = Churn(api, kubelet, self.operator, session, slots=slots)
                await churn.fill()
                yield churn
                running.cancel()


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Start a control plane, and an operator whose census can be taken.

    Args:
        folder: For their files.
    """
    counted = CountedProcess(folder / "census.json")
    with (
        Stage(folder) as stage,
        stage.world() as world,
        stage.operator(world, launcher=counted.launcher) as operator,
    ):
        world.account()
        observer = Observer(stage, operator, counted)
        yield Ground(stage=stage, namespace=world.namespace, operator=operator, observer=observer)


async def settle(churn: Churn) -> float:
    """Wait until all is as it should be; return the seconds that it took.

    Raises:
        TimeoutError: It takes too long; the message says what is not as it should be.
    """
    begin = time.monotonic()
    while unsettled := await churn.unsettled():
        if time.monotonic() - begin > LONGEST_SECONDS:
            raise TimeoutError("; ".join(unsettled))
        await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic() - begin


async def _soak(place: Ground, *, seconds: float, slots: int, tell: Callable[[Record], None]) -> Record:
    observer = place.observer
    async with place.fleet(slots) as churn:
        await settle(churn)
        record = Record(objects=churn.objects)
        observer.begin()
        churn.done.clear()
        begin = time.monotonic()
        due = {"sample": SAMPLE_SECONDS, "turn": PACE_SECONDS}
        while (now := time.monotonic() - begin) < seconds:
            if now >= due["turn"]:
                due["turn"] += PACE_SECONDS
                await churn.turn()
            if now >= due["sample"]:
                due["sample"] += SAMPLE_SECONDS
                record.samples.append(observer.sample(churn, now))
                if record.warm is None and now >= seconds * WARM_SHARE:
                    record.warm = await observer.census()
                observer.update(record, churn)
                tell(record)
            await asyncio.sleep(max(0.0, min(due.values()) - (time.monotonic() - begin)))
        record.samples.append(observer.sample(churn, time.monotonic() - begin))
        record.end = await observer.census()
        record.settled = await settle(churn)
        observer.update(record, churn)
        tell(record)
        return record


def soak(folder: Path, *, seconds: float, slots: int = SLOTS, tell: Callable[[Record], None]) -> Record:
    """Keep a fleet in change.

    Args:
        folder: For the control plane's files.
        seconds: For how long.
        slots: Objects of each kind that change.
        tell: Hears the record at every sample, so that a soak that is ended early has its figures, too.
    """
    with ground(folder) as place:
        return asyncio.run(_soak(place, seconds=seconds, slots=slots, tell=tell))
