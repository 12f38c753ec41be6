"""Does the engine compute the base model as it should? Judged once an engine's start, before clients are let in.

Two things are looked at. By itself, a base must give log-probabilities that are finite and not all the same. Where a
wanted adapter brings a record of the same base in the engine's precision, the base must give what was recorded; for
that the adapter need not be loaded, and not even be one that could be. One record that the engine agrees with outweighs
any that it does not: what is computed right cannot be wrong, what is recorded can.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import Probe
from whetstone_api.pod_state import BaseState, DesiredState
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.fingerprint import model_fingerprint

from whetstone_server import probe
from whetstone_server.engine import Engine, EngineBusyError, EngineRefusedError, EngineUnreachableError
from whetstone_server.settings import Settings

log = logging.getLogger(__name__)

SANITY_ATTEMPTS = 3
"""Errors of the engine's own after which its base counts as not judged: that alone never keeps a pod from clients."""


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """What the sidecar knows of the base model from its folder; empty where it cannot be read."""

    fingerprint: str | None
    config: dict[str, Any]


def read_base_model(folder: Path) -> BaseModel:
    """Read a base model's identity. A folder that cannot be read is the engine's failure to report, not ours."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        return BaseModel(fingerprint=model_fingerprint(folder), config=config if isinstance(config, dict) else {})
    except (ArtifactError, OSError, ValueError) as error:
        log.warning("base model at %s cannot be identified: %s", folder, error)
        return BaseModel(fingerprint=None, config={})


class BaseCheck:
    """The base model of the current engine: what it is, what was measured of it, and the verdict.

    Args:
        engine: The engine.
        settings: Settings of the sidecar.
        done: Called when the base has been judged by itself.
    """

    def __init__(self, *, engine: Engine, settings: Settings, done: Callable[[], None]) -> None:
        self._engine = engine
        self._settings = settings
        self._done = done
        self._one_at_a_time = asyncio.Lock()
        self._models: dict[str, BaseModel] = {}
        self._task: asyncio.Task[None] | None = None
        self.forget_engine()

    def forget_engine(self) -> None:
        """Drop what was measured on an engine that is gone."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        # Anew, not emptied: a measurement under way may still write into the old one.
        self._logprobs: dict[tuple[int, ...], list[float]] = {}
        self._alone: BaseState | None = None
        self._compared: dict[str, BaseState] = {}

    @property
    def judged(self) -> bool:
        """Whether the base was judged by itself; comparisons come with the adapters."""
        return self._alone is not None

    @property
    def state(self) -> BaseState:
        """The verdict, whatever the order in which records came."""
        alone = self._alone or BaseState()
        compared = [self._compared[name] for name in sorted(self._compared)]
        if alone.status == "False":
            return alone
        for status in ("True", "False", "Unknown"):
            found = next((state for state in compared if state.status == status), None)
            if found is not None:
                return found
        return alone

    def start(self, desired: DesiredState) -> None:
        """Judge the base by itself, in a task of its own, unless that was done or is under way."""
        if self._alone is None and self._task is None:
            self._task = asyncio.create_task(self._judge_alone(desired.base_name))

    async def stop(self) -> None:
        """Cancel what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def model(self, folder: Path) -> BaseModel:
        """Return the base model's identity."""
        key = str(folder)
        if key not in self._models or self._models[key].fingerprint is None:
            self._models[key] = await asyncio.to_thread(read_base_model, folder)
        return self._models[key]

    async def logprobs(self, name: str, sequences: Sequence[list[int]], *, patience: float) -> list[list[float]]:
        """Return the base's log-probabilities, nats; measured once an engine, as they do not change while it lives.

        Args:
            name: Served name of the base.
            sequences: Token ids.
            patience: Seconds that clients may be held back for.
        """
        known = self._logprobs
        # Adapters of one recipe share their sequences: who comes second finds them measured.
        async with self._one_at_a_time:
            missing = [tokens for tokens in sequences if tuple(tokens) not in known]
            if missing:
                measured = await self._engine.prompt_logprobs(name, missing, patience=patience)
                known.update(zip(map(tuple, missing), measured, strict=True))
        return [known[tuple(tokens)] for tokens in sequences]

    async def compare(self, desired: DesiredState, record: Probe, *, adapter: str, patience: float) -> list[float]:
        """Judge the base by a record; return its log-probabilities of all answer tokens, nats.

        Args:
            desired: What the pod should hold.
            record: The record.
            adapter: Served name of the adapter that brings it, for the message.
            patience: Seconds that clients may be held back for.
        """
        model = await self.model(Path(desired.model_path))
        compared = self._compared
        measured = await self.logprobs(desired.base_name, [case.token_ids for case in record.cases], patience=patience)
        answers = probe.answer_logprobs(record, measured)
        if model.fingerprint == record.base_fingerprint:
            dtype = probe.engine_dtype(desired.dtype, model.config)
            state = probe.judge_base(record, measured=answers, dtype=dtype)
            compared[adapter] = state.model_copy(update={"message": f"{state.message} (record of {adapter})"})
        return answers

    async def _judge_alone(self, name: str) -> None:
        try:
            await self._ask_until_judged(name)
        finally:
            if self._task is asyncio.current_task():
                self._task = None
        if self._alone is not None and self._alone.status == "False":
            log.error("%s: %s", name, self._alone.message)
        self._done()

    async def _ask_until_judged(self, name: str) -> None:
        for attempt in range(SANITY_ATTEMPTS):
            try:
                self._alone = await self._look(name, attempt)
                break
            except EngineRefusedError as error:
                self._alone = _refused(error, last=attempt + 1 == SANITY_ATTEMPTS)
                if self._alone is not None:
                    break
            except (EngineUnreachableError, EngineBusyError) as error:
                log.info("the base is judged later: %s", error)
                break
            await asyncio.sleep(self._settings.retry_seconds)

    async def _look(self, name: str, attempt: int) -> BaseState:
        tokens = await self._engine.tokenize(name, probe.FOREIGN_TEXT)
        patience = self._settings.patience_seconds * 2.0**attempt
        [values] = await self.logprobs(name, [tokens], patience=patience)
        return probe.judge_base_alone(values)


def _refused(error: EngineRefusedError, *, last: bool) -> BaseState | None:
    """Return the verdict where an engine does not answer the question; None where it is asked again."""
    if error.not_finite:
        return probe.judge_base_alone([float("nan")])
    if error.status < 500 or last:
        return BaseState(message=f"the engine does not take the probe: {error}")
    return None
