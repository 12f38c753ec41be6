"""Harbor in this process: its configuration as a pure function, its run with progress, its resumption."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whetstone_api.benchmark_suite import EnvironmentKind
from whetstone_api.jobs import BenchmarkConfig

from whetstone_agent.agents.catalog import agent_entries, needs_tmux
from whetstone_agent.environment.errors import NOT_TRIED_AGAIN, TRIED_AGAIN
from whetstone_agent.kept_trials import keep_trials
from whetstone_agent.scoring import read_trial, read_trials
from whetstone_agent.tally import Counter
from whetstone_agent.tasks import AdmittedTask, pulled_images

ENVIRONMENT: Final = "whetstone_agent.environment.pod:PodEnvironment"
PROCESS_ENVIRONMENT: Final = "whetstone_agent.environment.process:ProcessEnvironment"
VOID_RETRIES: Final = 2
"""Tries that a void trial gets beyond its first."""
_ABORTING: Final = frozenset({"TargetChangedError", "TrialsForbiddenError", "RunBudgetExceededError"})
"""Errors of one trial after which no other can be worth anything."""
_RETRIED: Final = (
    *TRIED_AGAIN,
    "ModelUnavailableError",
    "ModelSlowError",
    "AgentHostLostError",
    "EnvironmentStartTimeoutError",
    "AddTestsDirError",
    "DownloadVerifierDirError",
)
_VOID: Final = (*_RETRIED, *NOT_TRIED_AGAIN, *sorted(_ABORTING), "ModelRefusedError")
_START_MULTIPLIER: Final = 1e6
"""Harbor's limit on the start of a sandbox includes the wait for a node; ours do not, so its must never be reached."""
_OWN_ENDS: Final = ("BudgetExceededError", "AgentFailedError")
"""Errors of ours that are the agent's own doing."""
_SETUP_SECONDS: Final = 360.0 + 300.0
"""Harbor's agent set-up timeout, and room for copying."""

Progress = Callable[[Counter], None]
"""Called with the count whenever a trial starts or ends."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentChoice:
    """The sandbox that trials run in."""

    import_path: str = ENVIRONMENT
    options: dict[str, Any] | None = None
    """Options of another environment than ours."""


def choose_environment(config: BenchmarkConfig) -> EnvironmentChoice | None:
    """Return the sandbox that a run asks for; None for the default, pods."""
    asked = config.suite.environment
    if asked is not None and asked.kind is EnvironmentKind.PROCESS:
        return EnvironmentChoice(import_path=PROCESS_ENVIRONMENT, options={})
    return None


class AbortedError(Exception):
    """A trial ended in a way that makes all others worthless.

    Args:
        error: Type of its exception.
        message: Its message.
    """

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error
        self.message = message


def prepare_process() -> None:
    """Set what Harbor and its libraries read from the environment: no telemetry, no look-ups on the internet."""
    os.environ["HARBOR_TELEMETRY"] = "off"
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


def job_settings(
    config: BenchmarkConfig, tasks: Sequence[AdmittedTask], environment: EnvironmentChoice
) -> dict[str, Any]:
    """Return Harbor's job configuration without name and place."""
    agents, attempts = agent_entries(config)
    void = {"should_grade": False, "has_valid_reward": False}
    options = environment.options if environment.options is not None else _pod_options(config, tasks)
    return {
        "n_attempts": attempts,
        "n_concurrent_trials": config.concurrency,
        "quiet": True,
        "environment_build_timeout_multiplier": _START_MULTIPLIER,
        "retry": {"max_retries": VOID_RETRIES, "include_exceptions": list(_RETRIED), "min_wait_sec": 2.0},
        "override_error_policy": {
            **{name: {**void, "should_retry": name in _RETRIED} for name in _VOID},
            **{name: {"should_grade": True, "has_valid_reward": True, "should_retry": False} for name in _OWN_ENDS},
        },
        "environment": {"import_path": environment.import_path, "kwargs": options},
        "agents": agents,
        "tasks": [{"path": str(task.path)} for task in tasks],
    }


async def prepare_job(folder: Path, settings: dict[str, Any], prefix: str) -> None:
    """Bring the finished trials of a recipe into a job's folder.

    Args:
        folder: The job's folder.
        settings: From `job_settings`.
        prefix: What the names of all job folders of the recipe begin with.
    """
    from harbor.models.job.config import JobConfig

    await keep_trials(folder, JobConfig.model_validate(_placed(folder, settings)), prefix)


async def run_job(
    folder: Path,
    settings: dict[str, Any],
    progress: Progress,
    *,
    may_begin: Callable[[], Awaitable[None]] | None = None,
) -> Counter:
    """Run all trials that have no result yet.

    Args:
        folder: The job's folder, as `prepare_job` left it; the trials in it are kept.
        settings: From `job_settings`.
        progress: Called at the start, and when a trial starts or ends.
        may_begin: Waited for before each try of a trial, which holds no pod until then.

    Returns:
        The count of the trials.

    Raises:
        AbortedError: A trial showed that the run is worthless; the others were cancelled.
    """
    from harbor.job import Job
    from harbor.models.job.config import JobConfig

    job = await Job.create(JobConfig.model_validate(_placed(folder, settings)))
    counter = Counter(folder, len(job))
    for trial in read_trials(folder):
        counter.found(trial.name, trial.reward)
    progress(counter)
    if may_begin is not None:
        job.on_trial_started(lambda _: may_begin())
    _count_trials(job, folder, counter, progress)
    try:
        await job.run()
    except* AbortedError as group:
        raise _first(group) from None
    return counter


def _placed(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "jobs_dir": folder.parent, "job_name": folder.name}


def _count_trials(job: Any, folder: Path, counter: Counter, progress: Progress) -> None:
    async def started(event: Any) -> None:
        counter.started(event.trial_name)
        progress(counter)

    async def stopped(event: Any) -> None:
        counter.stopped(event.trial_name)

    async def ended(event: Any) -> None:
        trial = read_trial(folder / event.trial_name)
        counter.ended(event.trial_name, trial.reward if trial is not None else None)
        progress(counter)
        exception = event.result.exception_info
        if exception is not None and exception.exception_type in _ABORTING:
            raise AbortedError(exception.exception_type, exception.exception_message)

    job.on_trial_started(started)
    job.on_trial_cancelled(stopped)
    job.on_trial_ended(ended)


def _first(group: BaseExceptionGroup[AbortedError]) -> AbortedError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _pod_options(config: BenchmarkConfig, tasks: Sequence[AdmittedTask]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "benchmark_run": config.object.name,
        "deadline_seconds": round(max(task.seconds for task in tasks) + _SETUP_SECONDS),
        "images": pulled_images(tasks),
    }
    if needs_tmux(config.agent):
        options["tmux"] = True
    asked = config.suite.environment
    if asked is not None:
        options |= {"queue_seconds": asked.queue_seconds, "start_seconds": asked.start_seconds}
    resources = config.suite.trial_resources
    if resources is not None:
        options["requests"] = dict(resources.requests or {})
        options["limits"] = dict(resources.limits or {})
    return options
