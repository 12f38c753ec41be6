"""The whole operator as one object: client, queue, watches, HTTP server. `__main__` runs it, tests run it too."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import aiohttp
import kopf
from aiohttp import web

from whetstone_operator.children import CHILDREN, wake_owners
from whetstone_operator.controllers.engine_check import check_engines
from whetstone_operator.controllers.turns import take_turn
from whetstone_operator.forwarding import forward_to_leader
from whetstone_operator.handlers import Listener, build_registry, kopf_settings
from whetstone_operator.http import OperatorHttp, Reporters
from whetstone_operator.informed_kube import InformedKube
from whetstone_operator.kinds import OUR_KINDS, Key, Kind
from whetstone_operator.kube import KubeError
from whetstone_operator.metrics import RECONCILE_SECONDS, RECONCILES
from whetstone_operator.runtime.claims import Claims
from whetstone_operator.runtime.clock import ClusterClock
from whetstone_operator.runtime.definitions import DefinitionsGoneError, missing_definitions, wait_for_definitions
from whetstone_operator.runtime.events import EventRecorder
from whetstone_operator.runtime.first import first_of
from whetstone_operator.runtime.informer import Informer
from whetstone_operator.runtime.leadership import Candidate, Leadership
from whetstone_operator.runtime.leaps import Leaps
from whetstone_operator.runtime.progress import ProgressBoard
from whetstone_operator.runtime.queue import Result, WorkQueue
from whetstone_operator.runtime.reconcile import Context
from whetstone_operator.runtime.upgrades import Upgrades
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
        self._informed = asyncio.Event()
        self._ready = asyncio.Event()
        self._context: Context | None = None
        self._claims: Claims | None = None
        self._progress = (0, time.monotonic())

    async def run(self) -> None:
        """Stand by until this operator leads, then work until SIGTERM.

        Raises:
            LeadershipLostError: Another operator may be at work by now.
            DefinitionsGoneError: Somebody has deleted the definitions of our kinds.
        """
        stop = asyncio.Event()
        _on_signals(stop)
        clock = ClusterClock()
        kube = await InformedKube.connect(hear=clock.hear)
        leadership = Leadership(kube.prompt(), candidate=_candidate(self._settings), clock=clock)
        async with aiohttp.ClientSession() as session:
            self._context = Context(
                kube=kube,
                settings=self._settings,
                clock=clock,
                board=ProgressBoard(clock),
                recorder=EventRecorder(kube, clock=clock),
                sidecars=HttpSidecars(session),
                upgrades=Upgrades(self._settings.engine_upgrades, self._queue.add),
                leaps=Leaps(clock),
            )
            self._claims = Claims(
                kube.prompt(),
                installation=self._settings.installation,
                mark=self._queue.add,
                answer_seconds=self._settings.answer_seconds,
            )
            runner = await self._serve(self._context, leadership, session)
            try:
                if await first_of(leadership.gain(), stop.wait()) == 0:
                    await leadership.lead(self._work(self._context, kube, self._claims, stop))
            finally:
                await leadership.release()
                await runner.cleanup()
                await kube.close()

    async def _work(self, context: Context, kube: InformedKube, claims: Claims, stop: asyncio.Event) -> None:
        context.board.begin()
        listener = Listener(mark=self._queue.add, references=context.references, store=kube.store)
        informing = self._inform(context, kube, claims, listener)
        try:
            await first_of(self._watch(kube, listener, stop), informing, stop.wait())
        finally:
            self._ready.clear()
            await self._queue.stop()

    async def _inform(self, context: Context, kube: InformedKube, claims: Claims, listener: Listener) -> None:
        """Follow all children; work begins once the store holds those that are there."""
        wake = wake_owners(self._queue.add)

        def changed(kind: Kind, event: Mapping[str, Any]) -> None:
            claims.heard(kind, event)
            context.upgrades.heard(kind, event)
            wake(kind, event)

        informers = [
            Informer(kube, kube.store, watched=watched, namespace=namespace, changed=changed)
            for watched in CHILDREN
            for namespace in self._settings.namespaces or (None,)
        ]

        async def begin() -> None:
            await asyncio.gather(*(informer.synced.wait() for informer in informers))
            kube.rely_on(CHILDREN)
            await self._read_ours(kube, listener)
            await self._claim_all(claims)
            self._queue.start()
            self._informed.set()

        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
            group.create_task(claims.run())
            group.create_task(begin())

    async def _claim_all(self, claims: Claims) -> None:
        """Claim the namespaces of the settings; with the whole cluster, each is claimed with its first object."""
        try:
            for namespace in self._settings.namespaces:
                await claims.claim(namespace)
        except KubeError as error:
            logger.warning("namespaces are claimed with their first objects: %s", error)

    async def _serve(self, context: Context, leadership: Leadership, session: aiohttp.ClientSession) -> web.AppRunner:
        http = OperatorHttp(
            reporters=Reporters(context.kube, clock=context.clock),
            board=context.board,
            mark=self._queue.add,
            check_engines=partial(check_engines, context.kube, context.clock),
            take_turn=partial(take_turn, context.kube, context.clock),
            healthy=self.healthy,
            ready=lambda: leadership.standing_by or (self._ready.is_set() and not self._refused()),
        )
        application = http.application(forward_to_leader(leadership, session))
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, port=self._settings.http_port).start()
        return runner

    async def _read_ours(self, kube: InformedKube, listener: Listener) -> None:
        """Read the objects and make them due: kopf may tell of them only when children have already made them so."""
        try:
            for kind, namespace in product(OUR_KINDS, self._settings.namespaces or (None,)):
                async for page, _ in kube.pages(kind, namespace):
                    for obj in page:
                        listener.read(kind.plural, obj)
        except KubeError as error:
            logger.warning("objects are asked for one by one: %s", error)

    async def _watch(self, kube: InformedKube, listener: Listener, stop: asyncio.Event) -> None:
        await wait_for_definitions(kube)
        try:
            await self._watch_kinds(listener, stop)
        except Exception as error:
            if missing := await missing_definitions(kube):
                raise DefinitionsGoneError(f"the API server does not know {', '.join(missing)} any more") from error
            raise

    async def _watch_kinds(self, listener: Listener, stop: asyncio.Event) -> None:
        watching = asyncio.Event()
        telling = asyncio.create_task(self._tell_ready(watching, stop))
        try:
            await kopf.operator(
                registry=build_registry(listener),
                settings=kopf_settings(),
                standalone=True,
                clusterwide=not self._settings.namespaces,
                namespaces=self._settings.namespaces,
                ready_flag=watching,
            )
        finally:
            telling.cancel()

    async def _tell_ready(self, watching: asyncio.Event, stop: asyncio.Event) -> None:
        """Say that all watches run; and take back the signals that kopf took at its start.

        At a signal kopf would wait five seconds for tasks that are not its own.
        """
        await watching.wait()
        _on_signals(stop)
        await self._informed.wait()
        self._ready.set()

    def healthy(self) -> bool:
        """Return whether all workers live and, when work is due, some of it ended within the last ten minutes."""
        finished, since = self._progress
        if self._queue.idle or self._queue.finished != finished:
            self._progress = (self._queue.finished, time.monotonic())
            return not self._queue.stuck
        return not self._queue.stuck and time.monotonic() - since < _PROGRESS_SECONDS

    def _refused(self) -> bool:
        """Return whether every namespace that this operator is to work on is another installation's."""
        claims, namespaces = self._claims, self._settings.namespaces
        return claims is not None and bool(namespaces) and all(map(claims.refuses, namespaces))

    async def _process(self, key: Key) -> Result:
        reconcile = self._controllers.get(key.plural)
        if self._context is None or self._claims is None or reconcile is None:
            return Result()
        with RECONCILE_SECONDS.labels(controller=key.plural).time():
            try:
                if not await self._claims.admits(key):
                    return Result()
                result = await reconcile(self._context, key)
            except KubeError as error:
                # No status could be read or written to tell it in.
                logger.warning("%s: %s; the next try comes soon", key, error)
                result = Result(failed=True)
        RECONCILES.labels(controller=key.plural, result="retry" if result.failed else "ok").inc()
        return result


def _candidate(settings: Settings) -> Candidate:
    return Candidate(
        namespace=settings.own_namespace, lease=settings.lease, identity=settings.identity, url=settings.own_url
    )


def _on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
