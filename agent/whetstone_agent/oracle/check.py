"""Runs each task's own solution before the first trial of the agent.

A task that its own solution does not solve here (its verifier needs the internet, its image lacks something) says
nothing about a model. Whoever dies meanwhile loses only the solutions that were running: every verdict is kept as soon
as its trial has ended, and a solution that another run is at is waited for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from whetstone_api.benchmark_agent import AgentName, AgentSpec
from whetstone_api.benchmark_oracle import ORACLE_PHASE, OracleVerdict
from whetstone_api.digests import canonical_digest
from whetstone_artifacts.errors import OutputLockedError
from whetstone_artifacts.reporting import Reporter

from whetstone_agent.harness import AbortedError, EnvironmentChoice, job_settings, prepare_job, run_job
from whetstone_agent.oracle.findings import shard_folder, shard_folders, write_findings
from whetstone_agent.oracle.judgement import judge_tasks
from whetstone_agent.oracle.solutions import has_solution, last_words
from whetstone_agent.oracle.verdicts import Verdicts, environment_digest
from whetstone_agent.request import Request
from whetstone_agent.run_end import finished_now
from whetstone_agent.run_start import aborted
from whetstone_agent.scoring import read_trial
from whetstone_agent.tally import PASSING_REWARD, Counter, Tally, progress_of, read_tally, write_tally
from whetstone_agent.tasks import AdmittedTask
from whetstone_agent.trials import Trial
from whetstone_agent.verifier_setup import VERIFIER_SETUP

log = logging.getLogger(__name__)

_ROUNDS: Final = 2
"""How often a solution is run whose trials are void, beside Harbor's own tries."""
_AT_ONCE: Final = 256
"""Most verdicts that a process holds locks on at a time: each is an open file."""
_WAIT_SECONDS: Final = 5.0

type Pause = Callable[[float], Awaitable[None]]


async def check_tasks(
    request: Request, environment: EnvironmentChoice, reporter: Reporter, *, pause: Pause = asyncio.sleep
) -> Request:
    """Return a run without those of this shard's tasks that it is not to run; the same run where it asks for no check.

    Args:
        request: The run.
        environment: The sandbox of its trials.
        reporter: Gets the progress.
        pause: Waits for other runs, by seconds.

    Raises:
        RunFailure: Tasks are refused, and the run says that it fails then.
    """
    oracle, folder = request.config.suite.oracle, request.config.verdicts_path
    if oracle is None or folder is None:
        return request
    verdicts = Verdicts(Path(folder), environment_digest(request.config))
    check = _Check(request, environment, verdicts, minimum=float(oracle.minimum_reward), reporter=reporter)
    await check.run(pause)
    findings = judge_tasks(
        request.config,
        request.own_tasks,
        verdicts=check.found,
        voids=check.voids,
        minimum=float(oracle.minimum_reward),
        reused=len(check.found) - check.ran,
    )
    write_findings(request, findings)
    return request.without(findings.refused)


class _Check:
    def __init__(
        self,
        request: Request,
        environment: EnvironmentChoice,
        verdicts: Verdicts,
        *,
        minimum: float,
        reporter: Reporter,
    ) -> None:
        self._request = request
        self._minimum = minimum
        self._environment = environment
        self._verdicts = verdicts
        self._reporter = reporter
        self._folder = shard_folder(request, request.shard)
        self._solvable = {task.name for task in request.tasks if has_solution(task)}
        self._kept: set[Path] = set()
        self.found: dict[str, OracleVerdict] = {}
        """Verdicts by the name of the task."""
        self.voids: dict[str, str] = {}
        """Error of the last try of a solution that has no verdict, by the name of the task."""
        self.ran = 0
        """Verdicts of this process."""

    async def run(self, pause: Pause) -> None:
        """Get a verdict on every task, from its place or by running the solution."""
        tasks = [task for task in self._request.own_tasks if task.name in self._solvable]
        open_tasks = self._look(tasks)
        self._report(None)
        while open_tasks:
            with ExitStack() as held:
                mine = self._take(open_tasks, held)
                # Who held the lock until now may have left the verdict.
                for _ in range(_ROUNDS):
                    if batch := self._look(mine):
                        await self._run_solutions(batch)
            open_tasks = [task for task in self._look(open_tasks) if task.name not in self.voids]
            if open_tasks and not mine:
                await pause(_WAIT_SECONDS)
        self._report(None)

    def _look(self, tasks: Sequence[AdmittedTask]) -> list[AdmittedTask]:
        """Take over the verdicts that are there, and return the tasks without one."""
        for task in tasks:
            if task.name not in self.found and (verdict := self._verdicts.find(task)) is not None:
                self.found[task.name] = verdict
        return [task for task in tasks if task.name not in self.found]

    def _take(self, tasks: Sequence[AdmittedTask], held: ExitStack) -> list[AdmittedTask]:
        mine = []
        for task in tasks[:_AT_ONCE]:
            try:
                held.enter_context(self._verdicts.lock(task))
            except OutputLockedError:
                continue
            mine.append(task)
        return mine

    async def _run_solutions(self, batch: Sequence[AdmittedTask]) -> None:
        """Run the solutions of some tasks, and keep what they scored."""
        names = canonical_digest({"tasks": sorted(task.name for task in batch)}).removeprefix("sha256:")
        folder = self._folder / names[:8]
        settings = self._settings(batch)
        await prepare_job(folder, settings, "")
        by_name = {task.name: task for task in batch}

        def progress(counter: Counter) -> None:
            self._keep(folder, by_name)
            self._report(counter)

        try:
            await run_job(folder, settings, progress)
        except AbortedError as error:
            raise aborted(error, self._request.config) from error
        self._keep(folder, by_name, last=True)

    def _settings(self, batch: Sequence[AdmittedTask]) -> dict[str, Any]:
        request = self._request
        config = request.config.model_copy(update={"agent": AgentSpec(name=AgentName.ORACLE), "attempts": 1})
        return {
            **job_settings(config, batch, self._environment),
            "n_concurrent_trials": request.shard.concurrency(config.concurrency),
        }

    def _keep(self, folder: Path, tasks: dict[str, AdmittedTask], *, last: bool = False) -> None:
        """Keep the verdicts of trials that have ended; with `last`, what spoiled the others too."""
        places = {path.parent for path in folder.glob("*/result.json")}
        for place in sorted(places - self._kept):
            trial = read_trial(place)
            if trial is None or (task := tasks.get(trial.task)) is None or task.name in self.found:
                continue
            # A verifier that cannot install what it needs will not tomorrow either, where there is no internet.
            ungraded = last and trial.error == VERIFIER_SETUP
            if trial.reward is None and not ungraded:
                if last:
                    self.voids[task.name] = trial.error or "no reward"
                continue
            verdict = self._verdict(task, trial, place)
            self._verdicts.keep(task, verdict)
            self.found[task.name] = verdict
            self._kept.add(place)
            self.voids.pop(task.name, None)
            self.ran += 1

    def _verdict(self, task: AdmittedTask, trial: Trial, place: Path) -> OracleVerdict:
        config = self._request.config
        reward = trial.reward if trial.reward is not None else 0.0
        return OracleVerdict(
            task=task.name,
            digest=task.digest,
            images=dict(task.images),
            environment=self._verdicts.environment,
            reward=reward,
            error=trial.error,
            said=last_words(place) if reward < PASSING_REWARD else None,
            trial=f"{config.output_uri}/{place.relative_to(self._request.output)}",
            object_name=config.object.name,
            finished_at=finished_now(),
        )

    def _report(self, counter: Counter | None) -> None:
        now = counter.tally() if counter is not None else Tally()
        total = len(self._solvable)
        solved = sum(one.reward >= self._minimum for one in self.found.values())
        told = now.model_copy(
            update={
                "total": total,
                "passed": solved,
                "failed": len(self.found) - solved,
                "void": len(self.voids),
            }
        )
        write_tally(self._folder, told)
        tallies = [read_tally(folder) for folder in shard_folders(self._request)]
        report = progress_of(tallies, total=total)
        self._reporter.send(report.model_copy(update={"phase": ORACLE_PHASE}))
