"""The sidecar's loop: compare the engine with what the pod should hold, and act on the difference."""

import asyncio
import logging
import shutil
import time
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.model_facts import ModelFacts
from whetstone_api.pod_state import DesiredState, Effect, GuardRoutes, PodState
from whetstone_api.reports import ProgressReport
from whetstone_artifacts.model_facts import read_model_facts
from whetstone_artifacts.reporting import Reporter

from whetstone_server import measures
from whetstone_server.base_parity import BaseCheck
from whetstone_server.engine import Engine, EngineRefusedError, EngineUnreachableError
from whetstone_server.held import Held, Loader
from whetstone_server.routing import plan_routes
from whetstone_server.settings import Settings
from whetstone_server.stall import StallWatch

log = logging.getLogger(__name__)

MISSES_ALLOWED = 2
"""Health checks in a row that may go unanswered before the engine counts as unhealthy: a busy CPU misses one."""


class Sidecar:
    """Keeps one engine at its desired state.

    No state of its own outlives it: a new sidecar goes on from the engine's list and the guard's routes.

    Args:
        engine: The engine of this pod.
        settings: Settings.
        reporter: Where changes are told; None for nowhere.
    """

    def __init__(self, *, engine: Engine, settings: Settings, reporter: Reporter | None = None) -> None:
        self._engine = engine
        self._settings = settings
        self._reporter = reporter
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._pass = asyncio.Lock()
        self._base = BaseCheck(engine=engine, settings=settings, done=self._wake.set)
        self._loader = Loader(engine=engine, settings=settings, base=self._base, done=self._wake.set)
        self._stall = StallWatch(engine=engine, settings=settings, done=self._wake.set)
        self._desired: DesiredState | None = None
        self._held: dict[str, Held] = {}
        self._healthy = False
        self._misses = 0
        self._boot = ""
        self._routes = GuardRoutes(open=False, base="")
        self._leaving: dict[str, float] = {}
        self._settled = False
        self._told = ""
        self._model: tuple[str, ModelFacts | None] = ("", None)

    def state(self) -> PodState:
        """Return what the pod holds, as of the last comparison with its engine."""
        adapters = [held.state() for held in self._held.values()]
        healthy = self._healthy and not self._stall.stalled
        if not healthy:
            adapters = [a.model_copy(update={"loaded": False, "effect": Effect.PENDING}) for a in adapters]
        return PodState(
            revision=self._desired.revision if self._desired else 0,
            settled=self._settled and healthy,
            engine_healthy=healthy,
            engine_stalled=self._healthy and self._stall.stalled,
            open=healthy and self._routes.open,
            engine_boot=self._boot,
            base=self._base.state,
            model=self._model[1],
            adapters=adapters,
            aliases=self._routes.aliases,
        )

    def answer(self) -> PodState:
        """Return the state for the operator, which need not be told the same by a report."""
        state = self.state()
        self._told = state.to_json()
        return state

    def set_desired(self, desired: DesiredState) -> bool:
        """Take a newer desired state; return whether it was newer."""
        if self._desired is not None and desired.revision <= self._desired.revision:
            return False
        self._desired = desired
        self._keep(desired)
        self._settled = False
        before, self._held = self._held, {}
        for wanted in desired.adapters:
            held = before.pop(wanted.served_name, None)
            if held is None or (held.wanted.digest, held.wanted.path) != (wanted.digest, wanted.path):
                if held is not None:
                    held.forget_engine()
                held = Held(wanted=wanted)
            held.wanted = wanted
            if held.reason:
                held.not_before = 0.0
                held.failed_signature = None
            self._held[wanted.served_name] = held
        for held in before.values():
            if held.task is not None:
                held.task.cancel()
        self._wake.set()
        return True

    async def wait_settled(self, seconds: float) -> None:
        """Wait until the state is settled, at most so long."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.state().settled)
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Compare for ever: at once when woken, else on the timer."""
        while True:
            self._wake.clear()
            try:
                await self.compare()
            except Exception:
                log.exception("comparison failed; it is repeated")
            busy = not self._healthy or self._leaving or not self._settled
            try:
                async with asyncio.timeout(self._settings.busy_seconds if busy else self._settings.timer_seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def compare(self) -> None:
        """Compare once. Loads and probes run in tasks of their own, so one slow adapter delays nothing else."""
        async with self._pass:
            self._read_desired()
            await self._read_model()
            try:
                if await self._is_healthy() and self._desired is not None:
                    await self._compare(self._desired)
                    await self._stall.look(self._desired.base_name)
            except (EngineUnreachableError, EngineRefusedError) as error:
                log.info("the engine does not answer: %s", error)
                self._settled = False
            await self._tell()

    async def stop(self) -> None:
        """Cancel what is under way."""
        await self._base.stop()
        await self._stall.stop()
        tasks = [held.task for held in self._held.values() if held.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compare(self, desired: DesiredState) -> None:
        guard = await self._engine.guard()
        if guard.boot != self._boot:
            log.info("engine process %s, before it %s", guard.boot, self._boot or "none")
            self._boot = guard.boot
            self._leaving.clear()
            self._base.forget_engine()
            self._stall.forget_engine()
            measures.ENGINE_BOOTS.inc()
            for held in self._held.values():
                held.forget_engine()
        self._base.start(desired)
        listed = await self._engine.adapters()
        for held in self._held.values():
            self._observe(held, listed, desired)
        # Verdicts that come in from here on are not in these routes; they wake the next comparison.
        decided = self._base.judged and all(held.decided for held in self._held.values())
        routes = plan_routes(
            desired,
            before=guard.routes,
            listed=listed,
            effective={name for name, held in self._held.items() if held.effective},
            rejected={name for name, held in self._held.items() if held.decided and not held.effective},
            opened=guard.routes.open or self._may_open(),
        )
        if routes != guard.routes:
            guard = await self._engine.set_routes(routes)
        self._routes = guard.routes
        await self._unload(listed, keep={*self._held, *routes.versions}, in_flight=guard.in_flight)
        self._settled = decided and desired is self._desired and not self._leaving

    def _observe(self, held: Held, listed: dict[str, str], desired: DesiredState) -> None:
        """Take the engine's list as the truth about one adapter, and start an attempt where one is due."""
        if held.task is not None:
            return
        target = str(self._loader.target(held.wanted))
        if held.loaded and listed.get(held.wanted.served_name) != target:
            log.warning("the engine no longer lists %s; it is loaded again", held.wanted.served_name)
            held.forget_engine()
        if held.needs_work and time.monotonic() >= held.not_before:
            held.task = asyncio.create_task(self._loader.attempt(held, desired))

    def _may_open(self) -> bool:
        """Return whether clients may come; asked once an engine, so what is found later shuts nobody out."""
        if not self._base.judged or self._base.state.status == "False":
            return False
        return all(held.effective if held.wanted.required else held.decided for held in self._held.values())

    async def _unload(self, listed: dict[str, str], *, keep: set[str], in_flight: dict[str, int]) -> None:
        """Unload what is neither wanted nor routed, once its last request has its answer."""
        now = time.monotonic()
        self._leaving = {
            name: self._leaving.get(name, now + self._settings.drain_seconds) for name in listed if name not in keep
        }
        for name, deadline in list(self._leaving.items()):
            if in_flight.get(name, 0) and now < deadline:
                continue
            await self._engine.unload(name)
            log.info("unloaded %s", name)
            del self._leaving[name]
            folder = Path(listed[name])
            # Somebody may have loaded the copy of a wanted adapter under a name of their own.
            wanted = {self._loader.target(held.wanted) for held in self._held.values()}
            if folder.parent == self._settings.adapters_dir and folder not in wanted:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _is_healthy(self) -> bool:
        try:
            healthy = await self._engine.healthy()
            self._misses = 0
        except EngineUnreachableError:
            self._misses += 1
            if self._misses > MISSES_ALLOWED:
                self._count_unhealthy()
            return False
        if not healthy:
            self._count_unhealthy()
        self._healthy = healthy
        return healthy

    def _count_unhealthy(self) -> None:
        """Forget the routes too: what comes back healthy may be a new process whose guard is closed."""
        self._healthy = False
        self._routes = GuardRoutes(open=False, base="")

    def _read_desired(self) -> None:
        """Take the newest of what this pod kept and what its ConfigMap says.

        The kubelet renews the ConfigMap while the operator is down, too, but only after a minute: a sidecar that starts
        again meanwhile would take adapters away.
        """
        kept = [self._settings.kept_file] if self._desired is None else []
        for path in (*kept, self._settings.desired_file):
            try:
                desired = DesiredState.model_validate_json(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValidationError) as error:
                log.warning("%s cannot be read: %s", path, error)
                continue
            if self.set_desired(desired):
                log.info("desired state %d of %s", desired.revision, path)

    def _keep(self, desired: DesiredState) -> None:
        """Write down what is desired, whole or not at all, for the sidecar that comes after this one."""
        place = self._settings.kept_file
        try:
            place.with_suffix(".new").write_text(desired.to_json())
            place.with_suffix(".new").replace(place)
        except OSError as error:
            log.warning("%s cannot be written: %s", place, error)

    async def _read_model(self) -> None:
        """Read the base model's sizes, once a place; also of an engine that never starts."""
        path = self._desired.model_path if self._desired else ""
        if path != self._model[0]:
            self._model = (path, await asyncio.to_thread(read_model_facts, Path(path)))

    async def _tell(self) -> None:
        state = self.state()
        standings = [_standing(held) for held in self._held.values()]
        for standing in ("effective", "failed", "loading"):
            measures.ADAPTERS.labels(standing).set(standings.count(standing) if state.engine_healthy else 0)
        measures.ENGINE_HEALTHY.set(state.engine_healthy)
        measures.GUARD_OPEN.set(state.open)
        async with self._changed:
            self._changed.notify_all()
        text = state.to_json()
        if text != self._told:
            self._told = text
            if self._reporter is not None:
                self._reporter.send(ProgressReport(phase="Changed"), at_once=state.settled)


def _standing(held: Held) -> str:
    if held.effective:
        return "effective"
    return "failed" if held.decided else "loading"
