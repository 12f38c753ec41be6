"""Turns: of the runs that a queue has let start, one at a time measures a server.

A queue starts Jobs when it likes, and what it has started nobody else may stop. So the pods of such a run ask for their
turn before their first trial. Whose turn it is stands on the Jobs, with the start that it holds for: a Job that its
queue has stopped asks anew when it goes on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.reports import Turn
from whetstone_api.vocabulary import Annotation, Label, Reason

from whetstone_operator.controllers.hold import LOOK_AGAIN_SECONDS, Hold, at_work, measures, shares, turn_of, unshared
from whetstone_operator.kinds import JOB, Key
from whetstone_operator.kube import Kube
from whetstone_operator.runtime.clock import Clock
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.reconcile import Work

STARTING: Final = asyncio.Lock()
"""Two runs do not both find their server free."""


async def take_turn(kube: Kube, clock: Clock, key: Key) -> Turn:
    """Return whether it is a run's turn to measure its server; where nobody else measures it, it becomes so.

    Args:
        kube: Reads and marks Jobs.
        clock: Tells the time.
        key: The run.
    """
    async with STARTING:
        jobs = await kube.list(JOB, key.namespace, {str(Label.BENCHMARK_RUN): key.name})
        job = next((one for one in jobs if at_work(one)), None)
        started = ((job or {}).get("status") or {}).get("startTime")
        if job is None or started is None:
            return Turn(granted=False)
        if measures(job):
            return Turn(granted=True)
        beside = await _jobs_beside(kube, job)
        others = _measuring(beside, job, now=clock.now())
        if others:
            return Turn(granted=False, held_by=[hold.run for hold in others])
        # Starts are told by the second: one that is stopped and started again within it must not find its turn.
        marks = [await _mark(kube, one, "") for one in beside if turn_of(one) and not at_work(one)]
        return Turn(granted=all(marks) and await _mark(kube, job, started))


async def require_turn(work: Work[BenchmarkRun], job: Mapping[str, Any]) -> None:
    """Say so while a run that its queue has let start waits for its turn.

    Raises:
        Waiting: Another run measures the server.
    """
    if not at_work(job) or measures(job):
        return
    others = _measuring(await _jobs_beside(work.context.kube, job), job, now=work.now)
    if others:
        server, names = job["metadata"]["labels"][Label.HOLDS], ", ".join(hold.run for hold in others)
        raise Waiting(
            Reason.SERVER_HELD,
            f"spec.target.modelServerRef.name: ModelServer {server} is held by BenchmarkRun {names}; Job"
            f" {job['metadata']['name']} is admitted, and its pods wait until the server is free (or set"
            " spec.target.shared to true in both)",
            LOOK_AGAIN_SECONDS,
        )


async def _jobs_beside(kube: Kube, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the Jobs of other runs of a Job's server."""
    metadata = job["metadata"]
    jobs = await kube.list(JOB, metadata["namespace"], {str(Label.HOLDS): metadata["labels"][Label.HOLDS]})
    run = metadata["labels"][Label.BENCHMARK_RUN]
    return [one for one in jobs if one["metadata"]["labels"][Label.BENCHMARK_RUN] != run]


def _measuring(beside: Sequence[Mapping[str, Any]], job: Mapping[str, Any], *, now: datetime) -> list[Hold]:
    """Return the runs that measure the server of a Job, and do not share it with that."""
    return [hold for hold in unshared(beside, shared=shares(job), now=now) if hold.measures]


async def _mark(kube: Kube, job: dict[str, Any], turn: str) -> bool:
    """Write down for which start it is a Job's turn; return whether the Job is still the one that was read."""
    change = {"metadata": {"annotations": {str(Annotation.TURN): turn}}}
    return await kube.merge({"apiVersion": "batch/v1", "kind": "Job", **job}, change) is not None
