"""Runs the trials of a `toolUse` suite: episodes in threads, each kept as soon as it has ended."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from whetstone_api.benchmark_tooluse import ExpertSpec
from whetstone_api.jobs import ToolUseConfig

from whetstone_agent.agents.door import Door, Session
from whetstone_agent.agents.errors import RunBudgetExceededError, TargetChangedError
from whetstone_agent.failure import budget_exceeded, target_changed
from whetstone_agent.tally import Counter
from whetstone_agent.tooluse.agents import Agent
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.episode import EpisodeRecord, run_branches, run_episode
from whetstone_agent.tooluse.expert import ExpertMode, ExpertSettings
from whetstone_agent.tooluse.selection import InstanceTask, Selection, environment_settings
from whetstone_agent.tooluse.services import Services
from whetstone_agent.tooluse.trial_agent import StoppedError, TrialAgent
from whetstone_agent.tooluse.trials import TrialRecord, read_record, trial_name, write_record

log = logging.getLogger(__name__)

PAUSES_SECONDS: Final = (5.0, 30.0)
"""A void trial is run again after each of them."""
MOST_VOIDS: Final = 12
"""How often a trial may be void, over all tries of a run; then it stays so."""

type Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """A trial that is to be there at the end."""

    task: InstanceTask
    attempt: int
    """From 1."""
    folder: Path

    @property
    def name(self) -> str:
        """The trial's name."""
        return self.folder.name


def places(tasks: list[InstanceTask], attempts: int, folder: Path) -> list[Place]:
    """Return the trials of tasks.

    Args:
        tasks: The tasks.
        attempts: Trials of each.
        folder: Folder of the recipe's trials, whatever shard ran them.
    """
    return [
        Place(task=task, attempt=attempt, folder=folder / trial_name(task.name, attempt))
        for task in tasks
        for attempt in range(1, attempts + 1)
    ]


def expert_settings(expert: ExpertSpec, *, seed: int) -> ExpertSettings:
    """Return the settings of the expert in a trial."""
    return ExpertSettings(
        mode=ExpertMode(expert.mode),
        epsilon=float(expert.epsilon),
        seed=seed,
        initial_limit=expert.initial_limit,
        recent_limit=expert.recent_limit,
        alternates=expert.alternates,
        branches=expert.branches,
    )


class Trials:
    """Runs what is not finished yet.

    Args:
        config: What to do.
        selection: World and instances.
        services: API, Elasticsearch and models that judge.
        door: The way to the model; None where nobody asks it.
        counter: Counts the trials.
        progress: Told whenever the count changes.
        pause: Waits for seconds.
    """

    def __init__(
        self,
        config: ToolUseConfig,
        selection: Selection,
        services: Services,
        *,
        door: Door | None,
        counter: Counter,
        progress: Callable[[Counter], None],
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._config = config
        self._selection = selection
        self._services = services
        self._door = door
        self._counter = counter
        self._progress = progress
        self._pause = pause
        self._stopped = threading.Event()
        self._own = threading.local()

    async def run(self, wanted: list[Place], *, at_once: int) -> None:
        """Run trials; those that are there are kept.

        Args:
            wanted: All that must be there at the end.
            at_once: Trials at a time.

        Raises:
            RunFailure: `TARGET_CHANGED` or `BUDGET_EXCEEDED`: no other trial could be worth anything, or may run.
        """
        left = [one for one in wanted if not self._keep(one)]
        self._progress(self._counter)
        free, pool = asyncio.Semaphore(at_once), ThreadPoolExecutor(at_once, thread_name_prefix="trial")
        try:
            async with asyncio.TaskGroup() as group:
                for one in left:
                    group.create_task(self._trial(one, free, pool))
        except BaseExceptionGroup as group:
            raise _ended(group) from None
        finally:
            # Threads that are in a call see it at their next one; the door that closes ends calls of the model.
            self._stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _keep(self, place: Place) -> bool:
        record = read_record(place.folder)
        if record is None or (record.episode.void and record.voids < MOST_VOIDS):
            return False
        self._counter.found(place.name, record.score.reward)
        return True

    async def _trial(self, place: Place, free: asyncio.Semaphore, pool: ThreadPoolExecutor) -> None:
        async with free:
            self._counter.started(place.name)
            self._progress(self._counter)
            try:
                record = await self._until_scored(place, pool)
            except BaseException:
                self._counter.stopped(place.name)
                raise
            self._counter.ended(place.name, record.score.reward)
            self._progress(self._counter)

    async def _until_scored(self, place: Place, pool: ThreadPoolExecutor) -> TrialRecord:
        for seconds in (*PAUSES_SECONDS, None):
            if self._door is not None:
                await self._door.until_there()
            session = self._enter(place)
            try:
                run = partial(self._run, place, session)
                record = await asyncio.get_running_loop().run_in_executor(pool, run)
            finally:
                if self._door is not None and session is not None:
                    self._door.leave(session)
            if not record.episode.void or record.voids >= MOST_VOIDS or seconds is None:
                break
            log.warning("trial %s is void (%s), and is run again", place.name, record.episode.end)
            await self._pause(seconds)
        return record

    def _enter(self, place: Place) -> Session | None:
        if self._door is None:
            return None
        budget = self._config.agent.budget
        return self._door.enter(seed=self._seed(place), token_limit=budget.tokens if budget else None)

    def _seed(self, place: Place) -> int:
        return self._config.sampling.seed + place.attempt - 1

    def _run(self, place: Place, session: Session | None) -> TrialRecord:
        """Run a trial to its end and keep it; in a thread."""
        before = read_record(place.folder)
        started, began = datetime.now(UTC), time.monotonic()
        if session is None:
            episode, branches = self._episode(place, None)
        else:
            with TrialAgent(self._config, session, stopped=self._stopped) as agent:
                episode, branches = self._episode(place, agent)
        if self._stopped.is_set():
            raise StoppedError
        usage = session.usage if session is not None else None
        record = TrialRecord(
            trial=place.name,
            attempt=place.attempt,
            started_at=started.isoformat(),
            seconds=time.monotonic() - began,
            model_seconds=usage.seconds if usage else 0.0,
            calls=usage.calls if usage else 0,
            truncated=bool(usage and usage.truncated),
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            voids=(before.voids if before else 0) + episode.void,
            episode=episode,
            branches=branches,
        )
        write_record(place.folder, record)
        return record

    def _episode(self, place: Place, agent: Agent | None) -> tuple[EpisodeRecord, list[EpisodeRecord]]:
        suite, env = self._config.tool_use, self._env()
        expert = expert_settings(suite.expert, seed=self._seed(place))
        overseer = self._services.overseer
        protocol = Protocol(suite.protocol)
        episode = run_episode(env, place.task.name, agent=agent, expert=expert, protocol=protocol, overseer=overseer)
        if episode.void or not expert.branches:
            return episode, []
        return episode, run_branches(env, episode, agent=agent, limit=expert.branches, overseer=overseer)

    def _env(self) -> ToolUseEnv:
        """Return the environment of this thread."""
        if not hasattr(self._own, "env"):
            self._own.env = ToolUseEnv(
                [task.instance for task in self._selection.tasks],
                self._selection.world,
                api=self._services.api,
                settings=environment_settings(self._config.tool_use),
                judge=self._services.judge,
                retriever=self._services.search,
                witness=self._services.witness,
            )
        env: ToolUseEnv = self._own.env
        return env


def _ended(group: BaseExceptionGroup) -> BaseException:
    """Return what a run ends with whose trials raised: the first error that is no consequence of another."""
    errors = [error for error in _each(group) if not isinstance(error, StoppedError)]
    error = next((one for one in errors if isinstance(one, TargetChangedError | RunBudgetExceededError)), None)
    if error is None:
        return errors[0] if errors else group
    if isinstance(error, RunBudgetExceededError):
        return budget_exceeded(str(error))
    return target_changed(str(error))


def _each(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _each(one)
    else:
        yield error
