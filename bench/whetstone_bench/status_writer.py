"""A simulation of kubelet and controller manager: creates the pods of Deployments and Jobs and writes their states.

Nothing runs in these pods. Every Deployment gets one that is ready. Jobs are done or stay at work, as the caller says.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from integration.api import PATHS, Object
from integration.world import TIME
from whetstone_api.reports import Outcome, TerminationReport

WRITERS: Final = 16
_MERGE: Final = "application/merge-patch+json"
_READY: Final = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}


class AsyncApi:
    """The administrator's client for many requests at a time.

    Args:
        session: Trusts the API server, and has the administrator's certificate.
        namespace: Where all is.
    """

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self._session = session
        self._namespace = namespace

    @classmethod
    @asynccontextmanager
    async def connect(cls, server: str, pki: Path, namespace: str) -> AsyncIterator[Self]:
        """Give a client of the API server at a URL."""
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
        async with aiohttp.ClientSession(server, connector=connector, timeout=timeout) as session:
            yield cls(session, namespace)

    async def create(self, obj: Object) -> Object:
        """Create an object."""
        return await self._send("POST", self._path(obj["kind"]), obj, "application/json")

    async def write_status(self, kind: str, name: str, status: Object) -> None:
        """Merge into an object's status."""
        await self._send("PATCH", f"{self._path(kind, name)}/status", {"status": status}, _MERGE)

    async def watch(self, kind: str) -> AsyncIterator[Object]:
        """Yield the objects of a kind as they are and at every change, without end."""
        async with self._session.get(self._path(kind), params={"watch": "true"}, read_bufsize=2**22) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                yield json.loads(line)["object"]

    def _path(self, kind: str, name: str = "") -> str:
        root, plural = PATHS[kind]
        return f"{root}/namespaces/{self._namespace}/{plural}" + (f"/{name}" if name else "")

    async def _send(self, method: str, path: str, body: Object, content_type: str) -> Object:
        headers = {"Content-Type": content_type}
        async with self._session.request(method, path, data=json.dumps(body).encode(), headers=headers) as answer:
            content: Object = json.loads(await answer.read())
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {content.get('message')}")
        return content


@dataclass(frozen=True, kw_only=True)
class StatusWriter:
    """Writes what a cluster would.

    Args:
        api: The client.
        sidecar: Address of the sidecar that answers for every engine pod.
        result: What a Job's pod ends with; None for one that stays at work.
    """

    api: AsyncApi
    sidecar: str
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
            async for obj in self.api.watch(kind):
                if obj["metadata"]["name"] not in seen:
                    seen.add(obj["metadata"]["name"])
                    group.create_task(bounded(obj))
                if len(seen) >= number:
                    break

    async def _start_engine(self, deployment: Object) -> None:
        name = deployment["metadata"]["name"]
        pod = await self._pod(deployment, {})
        place = {"podIP": self.sidecar, "podIPs": [{"ip": self.sidecar}]}
        status = {"phase": "Running", "startTime": TIME, "conditions": [_READY], **place}
        await self.api.write_status("Pod", pod["metadata"]["name"], status)
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        told = {"observedGeneration": deployment["metadata"]["generation"], **counts}
        await self.api.write_status("Deployment", name, told)

    async def _run_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        pod = await self._pod(job, {"batch.kubernetes.io/job-name": name})
        result = self.result(name)
        container = pod["spec"]["containers"][0]
        state: Object = {"running": {"startedAt": TIME}}
        if result is not None:
            report = TerminationReport(outcome=Outcome.SUCCEEDED, reason="Succeeded", message="", result=result)
            ended = {"exitCode": 0, "reason": "Completed", "message": report.to_termination_message()}
            state = {"terminated": {**ended, "startedAt": TIME, "finishedAt": TIME}}
        told = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        await self.api.write_status(
            "Pod",
            pod["metadata"]["name"],
            {
                "phase": "Running" if result is None else "Succeeded",
                "startTime": TIME,
                "conditions": [_READY] if result is None else [],
                "containerStatuses": [{**told, "ready": result is None, "state": state}],
            },
        )
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
