"""Sidecars that only speak the protocol: for an operator with more pods than a machine can run."""

import asyncio
import itertools
import random
from contextlib import ExitStack
from typing import Any

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal
from whetstone_api.pod_state import SIDECAR_PORT, AdapterState, DesiredState, Effect, PodState
from whetstone_api.reports import ProgressReport

WORK_SECONDS = 0.05
"""Time that a pod seems to take to load and probe what is new."""


class ProtocolSidecar:
    """One pod: takes a desired state, is busy for a moment, holds it, and reports."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked = 0
        self.report: tuple[str, str] | None = None
        """Where to report, and the token; None for nowhere."""
        self._desired: DesiredState | None = None
        self._held = 0
        self._lead = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def application(self) -> web.Application:
        """Return the HTTP application."""
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_put("/v1/desired", self._put)
        return app

    @property
    def revision(self) -> int:
        """Revision of what it has been told to hold; 0 for nothing."""
        return self._desired.revision if self._desired else 0

    def hold(self, revision: int) -> None:
        """Take what it holds for that of another revision."""
        assert self._desired is not None
        self._desired = self._desired.model_copy(update={"revision": revision})

    def run_ahead(self) -> None:
        """From now on, take what it holds for newer than it is, whatever it is told."""
        self._lead = 1

    def forget(self) -> None:
        """Begin anew, as another process would."""
        self._desired, self._held = None, 0

    async def _put(self, request: web.Request) -> web.Response:
        self.asked += 1
        desired = DesiredState.model_validate_json(await request.read())
        if self._desired is None or desired.revision > self._desired.revision:
            self._desired = desired
            task = asyncio.create_task(self._work(desired.revision))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.Response(text=self._state().to_json(), content_type="application/json")

    def _state(self) -> PodState:
        desired = self._desired
        done = desired is not None and self._held == desired.revision
        return PodState(
            revision=desired.revision + self._lead if desired else 0,
            settled=done,
            engine_healthy=True,
            open=True,
            adapters=[
                AdapterState(
                    name=one.name,
                    served_name=one.served_name,
                    digest=one.digest,
                    loaded=done,
                    effect=Effect.VERIFIED if done else Effect.PENDING,
                )
                for one in (desired.adapters if desired else [])
            ],
            aliases=dict(desired.aliases) if desired else {},
        )

    async def _work(self, revision: int) -> None:
        await asyncio.sleep(WORK_SECONDS)
        self._held = revision
        if self.report is None:
            return
        url, token = self.report
        headers: dict[str, Any] = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=ProgressReport(phase="Changed").to_json(), headers=headers) as response,
        ):
            await response.read()


class ProtocolSidecars:
    """As many pods as wanted, each at an address of its own on the loopback."""

    def __init__(self, number: int) -> None:
        network = f"127.{random.randint(2, 250)}"
        places = itertools.product(range(1, 250), range(1, 250))
        self.pods = [ProtocolSidecar(f"{network}.{high}.{low}") for high, low in itertools.islice(places, number)]
        self._stack = ExitStack()

    def __enter__(self) -> "ProtocolSidecars":
        portal = self._stack.enter_context(start_blocking_portal())
        self._runners = portal.call(self._serve)
        self._stack.callback(portal.call, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def _serve(self) -> list[web.AppRunner]:
        runners = []
        for pod in self.pods:
            runner = web.AppRunner(pod.application(), access_log=None)
            await runner.setup()
            await web.TCPSite(runner, host=pod.address, port=SIDECAR_PORT).start()
            runners.append(runner)
        return runners

    async def _stop(self) -> None:
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
