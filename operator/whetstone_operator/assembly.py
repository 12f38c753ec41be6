"""The whole operator as one object: client, queue, watches, HTTP server. `__main__` runs it, tests run it too."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import aiohttp
import kopf
from aiohttp import web

from whetstone_operator.controllers.engine_check import check_engines
from whetstone_operator.handlers import build_registry, kopf_settings
from whetstone_operator.http import OperatorHttp, Reporters
from whetstone_operator.kinds import Key
from whetstone_operator.kube import KubeAio
from whetstone_operator.metrics import RECONCILE_SECONDS, RECONCILES
from whetstone_operator.runtime.clock import SystemClock
from whetstone_operator.runtime.events import EventRecorder
from whetstone_operator.runtime.progress import ProgressBoard
from whetstone_operator.runtime.queue import Result, WorkQueue
from whetstone_operator.runtime.reconcile import Context
from whetstone_operator.settings import Settings
from whetstone_operator.sidecars import HttpSidecars

logger = logging.getLogger(__name__)
Reconcile = Callable[[Context, Key], Awaitable[Result]]
_PROGRESS_SECONDS = 600.0


class Operator:
    """Reconciles the given kinds until it is stopped.

    Args:
        settings: What the administrator decided.
        controllers: Reconcile function of each kind, by plural.
    """

    def __init__(self, settings: Settings, controllers: Mapping[str, Reconcile]) -> None:
        self._settings = settings
        self._controllers = controllers
        self._queue: WorkQueue[Key] = WorkQueue(self._process, workers=settings.workers)
        self._ready = asyncio.Event()
        self._context: Context | None = None
        self._progress = (0, time.monotonic())

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Run until SIGTERM or `stop`. Fails when the API server cannot be reached or a watch breaks for good."""
        kube = await KubeAio.connect()
        clock = SystemClock()
        async with aiohttp.ClientSession() as session:
            self._context = Context(
                kube=kube,
                settings=self._settings,
                clock=clock,
                board=ProgressBoard(clock),
                recorder=EventRecorder(kube, clock=clock),
                sidecars=HttpSidecars(session),
            )
            runner = await self._serve(self._context)
            self._queue.start()
            try:
                await self._watch(self._context, stop)
            finally:
                self._ready.clear()
                await self._queue.stop()
                await runner.cleanup()
                await kube.close()

    async def _serve(self, context: Context) -> web.AppRunner:
        http = OperatorHttp(
            reporters=Reporters(context.kube, clock=context.clock),
            board=context.board,
            mark=self._queue.add,
            check_engines=partial(check_engines, context.kube, context.clock),
            healthy=self.healthy,
            ready=self._ready.is_set,
        )
        runner = web.AppRunner(http.application(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, port=self._settings.http_port).start()
        return runner

    async def _watch(self, context: Context, stop: asyncio.Event | None) -> None:
        await kopf.operator(
            registry=build_registry(self._queue.add, context.references),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
            stop_flag=stop,
            ready_flag=self._ready,
        )

    def healthy(self) -> bool:
        """Return whether all workers live and, when work is due, some of it ended within the last ten minutes."""
        finished, since = self._progress
        if self._queue.idle or self._queue.finished != finished:
            self._progress = (self._queue.finished, time.monotonic())
            return not self._queue.stuck
        return not self._queue.stuck and time.monotonic() - since < _PROGRESS_SECONDS

    async def _process(self, key: Key) -> Result:
        reconcile = self._controllers.get(key.plural)
        if self._context is None or reconcile is None:
            return Result()
        with RECONCILE_SECONDS.labels(controller=key.plural).time():
            result = await reconcile(self._context, key)
        RECONCILES.labels(controller=key.plural, result="retry" if result.failed else "ok").inc()
        return result
