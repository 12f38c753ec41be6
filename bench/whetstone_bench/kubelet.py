"""A simulated kubelet for all pods of a namespace: none runs, and each has the state that a real one would have.

Pods come from the real controllers. Those of engines are ready at the address of a sidecar; those of Prepare end at
once; those of trainings and runs are at work until they are told to end.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus

from integration.api import Object, Refused
from integration.world import JOB_NAME, done_status, engine_status, running_status, usual_result
from support.protocol_sidecars import ProtocolSidecar
from whetstone_api.vocabulary import REPORT_AUDIENCE

from whetstone_bench.async_api import AsyncApi

_PREPARE = "prepare"


class SimulatedKubelet:
    """Gives pods their states.

    Args:
        api: The client.
        sidecars: What answers for engine pods; as many as there may be pods at a time.
    """

    def __init__(self, api: AsyncApi, sidecars: Iterable[ProtocolSidecar]) -> None:
        self._api = api
        self._free = list(sidecars)
        self._taken: dict[str, ProtocolSidecar] = {}
        self._seen: set[str] = set()
        self._ended: set[str] = set()
        self._at_work: dict[str, tuple[str, Object]] = {}

    async def run(self) -> None:
        """Follow all pods without end."""
        async with asyncio.TaskGroup() as group:
            async for event in self._api.follow("Pod"):
                pod = event["object"]
                uid = pod["metadata"]["uid"]
                if event["type"] == "DELETED":
                    self._forget(uid)
                elif uid not in self._seen:
                    self._seen.add(uid)
                    group.create_task(self._start(pod))

    async def end(self, owner: str) -> None:
        """Let the work for a training or a run end with its result, now or as soon as its pod is there."""
        self._ended.add(owner)
        found = self._at_work.pop(owner, None)
        if found is not None:
            stage, pod = found
            await self._write(pod, done_status(pod, usual_result(owner, stage)))

    async def token(self, owner: str) -> str | None:
        """Return the token for reports of the pod that works for a training or a run; None while none does."""
        found = self._at_work.get(owner)
        if found is None:
            return None
        metadata = found[1]["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        account = found[1]["spec"].get("serviceAccountName", "default")
        return await self._api.token(account, {"audiences": [REPORT_AUDIENCE], "boundObjectRef": bound})

    def forget(self, owner: str) -> None:
        """Drop what is known of an object that is deleted."""
        self._ended.discard(owner)
        self._at_work.pop(owner, None)

    async def _start(self, pod: Object) -> None:
        job = pod["metadata"]["labels"].get(JOB_NAME)
        if job is None:
            sidecar = self._free.pop()
            sidecar.forget()
            self._taken[pod["metadata"]["uid"]] = sidecar
            await self._write(pod, engine_status(sidecar.address))
            return
        owner, stage, _ = job.rsplit("-", 2)
        if stage == _PREPARE:
            await self._write(pod, done_status(pod, usual_result(owner, stage)))
            return
        await self._write(pod, running_status(pod))
        self._at_work[owner] = stage, pod
        if owner in self._ended:
            await self.end(owner)

    async def _write(self, pod: Object, status: Object) -> None:
        try:
            await self._api.write_status("Pod", pod["metadata"]["name"], status)
        except Refused as refused:
            # It was deleted just now.
            if refused.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def _forget(self, uid: str) -> None:
        self._seen.discard(uid)
        with suppress(KeyError):
            self._free.append(self._taken.pop(uid))
