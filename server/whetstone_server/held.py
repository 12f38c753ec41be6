"""One adapter version as the sidecar holds it, and how it gets into the engine."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import PROBE_FILE, Probe
from whetstone_api.pod_state import AdapterState, DesiredAdapter, DesiredState, Effect, TemplateState
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.preflight import check_adapter
from whetstone_artifacts.rank import read_rank

from whetstone_server import fetching, measures, probe
from whetstone_server.base_parity import BaseCheck
from whetstone_server.engine import Engine, EngineBusyError, EngineRefusedError, EngineUnreachableError
from whetstone_server.settings import Settings
from whetstone_server.template_parity import compare_templates

log = logging.getLogger(__name__)

LONGEST_PATIENCE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 300.0
REST_OF_DIGEST = 16
"""Hex digits that the folder's name adds to the eight in the served name."""


@dataclass(kw_only=True)
class Held:
    """One wanted adapter version and where it stands in this pod."""

    wanted: DesiredAdapter
    rank: int | None = None
    loaded: bool = False
    effect: Effect = Effect.PENDING
    reason: str = ""
    message: str = ""
    template: TemplateState = field(default_factory=TemplateState)
    load_seconds: float | None = None
    probe_seconds: float | None = None
    failed_signature: str | None = None
    """What the source looked like when its content was refused: it is not tried again until that changes."""
    attempts: int = 0
    not_before: float = 0.0
    """Monotonic time of the next attempt."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def decided(self) -> bool:
        """Whether there is a verdict: it works, or it is known why not."""
        return bool(self.reason) or (self.loaded and self.effect is not Effect.PENDING)

    @property
    def effective(self) -> bool:
        """Whether requests may go to it."""
        return self.loaded and self.effect.effective

    @property
    def needs_work(self) -> bool:
        """Whether an attempt would change something."""
        return not (self.loaded and self.effect is not Effect.PENDING)

    def forget_engine(self) -> None:
        """Drop what was true of an engine that is gone."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        self.loaded = False
        self.effect = Effect.PENDING
        self.reason = self.message = ""
        self.failed_signature = None
        self.attempts = 0
        self.not_before = 0.0

    def state(self) -> AdapterState:
        """Return what the operator sees."""
        return AdapterState(
            name=self.wanted.name,
            served_name=self.wanted.served_name,
            digest=self.wanted.digest,
            # Told with what came of it: of itself it would be worth no report.
            rank=self.rank if self.loaded or self.reason else None,
            loaded=self.loaded,
            effect=self.effect,
            reason=self.reason,
            message=self.message,
            template=self.template,
            load_seconds=self.load_seconds,
            probe_seconds=self.probe_seconds,
        )


class Loader:
    """Brings adapter versions into the engine: fetch, preflight, load, probe.

    Args:
        engine: The engine.
        settings: Settings of the sidecar.
        base: The engine's base model.
        done: Called after every attempt.
    """

    def __init__(self, *, engine: Engine, settings: Settings, base: BaseCheck, done: Callable[[], None]) -> None:
        self._engine = engine
        self._settings = settings
        self._base = base
        self._done = done
        self._one_at_a_time = asyncio.Lock()

    def target(self, wanted: DesiredAdapter) -> Path:
        """Return the folder that the engine loads a version from; it is never used for another content."""
        digest = wanted.digest.removeprefix("sha256:")
        return self._settings.adapters_dir / f"{wanted.served_name}-{digest[8 : 8 + REST_OF_DIGEST]}"

    async def attempt(self, held: Held, desired: DesiredState) -> None:
        """Try once to make a version effective; the outcome is in `held`. Never raises but for cancellation."""
        try:
            await self._bring(held, desired)
        except ArtifactError as error:
            if fetching.judges_content(error):
                held.failed_signature = await asyncio.to_thread(self._signature, held.wanted)
            # A look into a folder costs nothing, a request to somebody's server does.
            remote = fetching.is_remote(held.wanted)
            message = fetching.located(held.wanted, error)
            self._failed(held, error.reason, message, pause=None if remote else self._settings.timer_seconds)
        except EngineRefusedError as error:
            self._failed(held, Reason.LOAD_FAILED, f"the engine refused {held.wanted.served_name}: {error}")
        except EngineUnreachableError as error:
            log.info("%s is tried again: %s", held.wanted.served_name, error)
            held.not_before = time.monotonic() + self._settings.busy_seconds
        except EngineBusyError as error:
            # Clients get as much time as they were held back for, and are held back longer the next time.
            held.attempts += 1
            pause = self._patience(held)
            held.not_before = time.monotonic() + pause
            log.info("%s is probed in %.0f s: %s", held.wanted.served_name, pause, error)
        except OSError as error:
            self._failed(held, Reason.LOAD_FAILED, f"{held.wanted.source} could not be copied: {error}")
        except Exception as error:
            log.exception("attempt on %s failed", held.wanted.served_name)
            self._failed(held, Reason.INTERNAL_ERROR, f"unexpected {type(error).__name__}: {error}")
        finally:
            # A cancelled attempt may end after its successor has started.
            if held.task is asyncio.current_task():
                held.task = None
            self._done()

    async def _bring(self, held: Held, desired: DesiredState) -> None:
        wanted, target = held.wanted, self.target(held.wanted)
        if held.failed_signature is not None:
            if await asyncio.to_thread(self._signature, wanted) == held.failed_signature:
                pause = self._settings.timer_seconds
                if fetching.is_remote(wanted):
                    held.attempts += 1
                    pause = self._pause(held)
                held.not_before = time.monotonic() + pause
                return
            held.failed_signature = None
        await asyncio.to_thread(fetching.fetch, wanted, target, secrets_dir=self._settings.secrets_dir)
        held.rank = await asyncio.to_thread(read_rank, target)
        record = await asyncio.to_thread(read_probe, target)
        # The base's part needs no adapter: it is judged even if this one is refused, and measured while it loads.
        base = asyncio.create_task(self._compare_base(held, desired, record))
        try:
            await self._preflight(target, desired)
            async with self._one_at_a_time:
                await self._load(held, target)
                started = time.monotonic()
                verdict = await self._probe(held, desired, record=record, base=base)
        except ArtifactError:
            await asyncio.wait([base])
            raise
        finally:
            base.cancel()
            await asyncio.gather(base, return_exceptions=True)
        held.probe_seconds = round(time.monotonic() - started, 3)
        measures.PROBE_SECONDS.observe(held.probe_seconds)
        held.template = await compare_templates(self._engine, desired.base_name, record)
        held.effect, held.reason, held.message = verdict.effect, verdict.reason, verdict.message
        held.attempts = 0

    async def _preflight(self, target: Path, desired: DesiredState) -> None:
        model = await self._base.model(Path(desired.model_path))
        await asyncio.to_thread(
            check_adapter,
            target,
            base_fingerprint=model.fingerprint,
            max_rank=self._settings.max_rank or desired.max_rank,
            model_config=model.config,
        )

    async def _compare_base(self, held: Held, desired: DesiredState, record: Probe | None) -> list[float]:
        if record is None or not record.cases:
            return []
        return await self._base.compare(desired, record, adapter=held.wanted.served_name, patience=self._patience(held))

    async def _load(self, held: Held, target: Path) -> None:
        name = held.wanted.served_name
        root = (await self._engine.adapters()).get(name)
        if root != str(target):
            if root is not None:
                await self._engine.unload(name)
            started = time.monotonic()
            await self._engine.load(name, str(target))
            held.load_seconds = round(time.monotonic() - started, 3)
            measures.LOAD_SECONDS.observe(held.load_seconds)
        held.loaded = True
        held.reason = held.message = ""

    async def _probe(
        self, held: Held, desired: DesiredState, *, record: Probe | None, base: asyncio.Task[list[float]]
    ) -> probe.Verdict:
        try:
            if record is None or not record.cases:
                return await self._probe_foreign(held, desired.base_name)
            cases = [case.token_ids for case in record.cases]
            measured = await self._engine.prompt_logprobs(held.wanted.served_name, cases, patience=self._patience(held))
            adapter = probe.answer_logprobs(record, measured)
            effects = [with_it - without for with_it, without in zip(adapter, await base, strict=True)]
        except EngineRefusedError as error:
            if error.not_finite:
                return probe.Verdict(effect=Effect.DIVERGENT, message=probe.NOT_FINITE)
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            return probe.Verdict(effect=Effect.UNKNOWN, message=f"the engine does not take the probe: {error}")
        model = await self._base.model(Path(desired.model_path))
        return probe.judge_effect(record, measured=effects, dtype=probe.engine_dtype(desired.dtype, model.config))

    async def _probe_foreign(self, held: Held, base_name: str) -> probe.Verdict:
        patience = self._patience(held)
        tokens = await self._engine.tokenize(base_name, probe.FOREIGN_TEXT)
        [first] = await self._base.logprobs(base_name, [tokens], patience=patience)
        [again] = await self._engine.prompt_logprobs(base_name, [tokens], patience=patience)
        [adapter] = await self._engine.prompt_logprobs(held.wanted.served_name, [tokens], patience=patience)
        return probe.judge_foreign(first, again, adapter)

    def _signature(self, wanted: DesiredAdapter) -> str:
        return fetching.signature(wanted, secrets_dir=self._settings.secrets_dir)

    def _patience(self, held: Held) -> float:
        """Return for how many seconds clients may be held back while requests in flight end."""
        return min(self._settings.patience_seconds * 2.0 ** min(held.attempts, 10), LONGEST_PATIENCE_SECONDS)

    def _pause(self, held: Held) -> float:
        return min(self._settings.retry_seconds * 2.0 ** min(held.attempts - 1, 10), LONGEST_PAUSE_SECONDS)

    def _failed(self, held: Held, reason: str, message: str, *, pause: float | None = None) -> None:
        held.attempts += 1
        if pause is None:
            pause = self._pause(held)
        held.not_before = time.monotonic() + pause
        if (held.reason, held.message) != (reason, message):
            log.warning("adapter %s: %s: %s", held.wanted.served_name, reason, message)
        held.reason, held.message = reason, message[:1000]


def read_probe(folder: Path) -> Probe | None:
    """Return the probe of an adapter, None without one.

    Raises:
        ArtifactError: `ADAPTER_INVALID` when the file is not a probe.
    """
    path = folder / PROBE_FILE
    if not path.is_file():
        return None
    try:
        record = Probe.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ArtifactError(Reason.ADAPTER_INVALID, f"{path} is not a probe ({error.error_count()} errors)") from error
    for index, case in enumerate(record.cases):
        answer = len(case.token_ids) - case.answer_start
        if not case.answer_start >= 1 or not 0 < answer == len(case.base_logprobs) == len(case.adapter_logprobs):
            raise ArtifactError(
                Reason.ADAPTER_INVALID, f"{path}: cases[{index}] does not hold one log-probability per answer token"
            )
    return record
