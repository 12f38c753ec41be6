"""A simulation of kubelet and controller manager: creates the pods of Deployments and Jobs and writes their states.

Nothing runs in these pods. Every Deployment gets one that is ready. Jobs are done or stay at work, as the caller says.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from integration.api import Object
from integration.world import JOB_NAME, TIME, done_status, engine_status, running_status

from whetstone_bench.async_api import AsyncApi

WRITERS: Final = 16


@dataclass(frozen=True, kw_only=True)
class StatusWriter:
    """Writes what a cluster would.

    Args:
        api: The client.
        sidecars: Addresses of the sidecars that answer for engine pods, one for each Deployment.
        result: What a Job's pod ends with; None for one that stays at work.
    """

    api: AsyncApi
    sidecars: Iterator[str]
    result: Callable[[str], Object | None]

    async def run(self, *, deployments: int, jobs: int) -> None:
        """Write until so many Deployments and Jobs have their states."""
        writing = asyncio.Semaphore(WRITERS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow("Deployment", deployments, self._start_engine, writing))
            group.create_task(self._follow("Job", jobs, self._run_job, writing))

    async def _follow(self, kind: str, number: int, write: Callable[[Object], Any], writing: asyncio.Semaphore) -> None:
        seen: set[str] = set()

        async def bounded(obj: Object) -> None:
            async with writing:
                await write(obj)

        async with asyncio.TaskGroup() as group:
            async for event in self.api.watch(kind):
                obj = event["object"]
                if obj["metadata"]["name"] not in seen:
                    seen.add(obj["metadata"]["name"])
                    group.create_task(bounded(obj))
                if len(seen) >= number:
                    break

    async def _start_engine(self, deployment: Object) -> None:
        name = deployment["metadata"]["name"]
        pod = await self._pod(deployment, {})
        await self.api.write_status("Pod", pod["metadata"]["name"], engine_status(next(self.sidecars)))
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        told = {"observedGeneration": deployment["metadata"]["generation"], **counts}
        await self.api.write_status("Deployment", name, told)

    async def _run_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        pod = await self._pod(job, {JOB_NAME: name})
        result = self.result(name)
        status = running_status(pod) if result is None else done_status(pod, result)
        await self.api.write_status("Pod", pod["metadata"]["name"], status)
        await self.api.write_status("Job", name, _job_status(at_work=result is None))

    async def _pod(self, owner: Object, labels: dict[str, str]) -> Object:
        metadata, template = owner["metadata"], owner["spec"]["template"]
        reference = {name: owner[name] for name in ("apiVersion", "kind")} | {
            name: metadata[name] for name in ("name", "uid")
        }
        return await self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{metadata['name']}-0",
                    "labels": {**template["metadata"]["labels"], **labels},
                    "ownerReferences": [{**reference, "controller": True}],
                },
                "spec": template["spec"],
            }
        )


def _job_status(*, at_work: bool) -> Object:
    if at_work:
        return {"startTime": TIME, "active": 1, "ready": 1}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": TIME, "lastProbeTime": TIME}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    return {"startTime": TIME, "completionTime": TIME, "succeeded": 1, "ready": 0, "conditions": conditions}
