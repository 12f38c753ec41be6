"""The folder that Terminal-Bench 2.0's leaderboard takes, and a check of its rules before anything is sent.

A submission is `submissions/terminal-bench/2.0/<agent>__<model>/` with `metadata.yaml` and whole Harbor job folders, in
a pull request to https://huggingface.co/datasets/harborframework/terminal-bench-2-leaderboard; a program checks it.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whetstone_api.run_artifact import HARBOR_FOLDER
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.report.page import read_results
from whetstone_artifacts.report.untrusted import items, mapping, read_json

PLACE: Final = Path("submissions") / "terminal-bench" / "2.0"
METADATA_FILE: Final = "metadata.yaml"
LEAST_ATTEMPTS: Final = 5
TASKS: Final = 89
"""Tasks of Terminal-Bench 2.0."""
_MULTIPLIERS: Final = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
)
"""How long a sandbox may take to start (`environment_build_timeout_multiplier`) is in no rule: agents gain nothing."""
_TIMEOUTS: Final = ("override_timeout_sec", "max_timeout_sec", "override_setup_timeout_sec")
_RESOURCES: Final = ("override_cpus", "override_memory_mb", "override_storage_mb", "override_gpus")
_OUR_RESOURCES: Final = ("requests", "limits")
"""Options of our own environment: `suite.harbor.trialResources`."""
_ANSWERS: Final = re.compile(
    r"tbench\.ai|github(?:usercontent)?\.com/[\w.-]+/terminal-bench|huggingface\.co/datasets/\S*terminal-bench",
    re.IGNORECASE,
)
"""Where the benchmark's tasks and solutions lie."""


@dataclass(frozen=True, kw_only=True)
class Submitter:
    """What the leaderboard shows beside the score.

    Args:
        agent_url: Page or repository of the agent.
        agent: Its name.
        agent_organization: Who makes it.
        model: Name of the model.
        model_provider: Who serves it.
        model_display_name: Its name for people.
        model_organization: Who made it.
    """

    agent_url: str
    agent: str
    agent_organization: str
    model: str
    model_provider: str
    model_display_name: str
    model_organization: str

    @property
    def folder(self) -> str:
        """Name of the submission's folder."""
        return "__".join(re.sub(r"[^\w.-]+", "-", part).strip("-") for part in (self.agent, self.model))

    def metadata(self) -> dict[str, Any]:
        """Return what `metadata.yaml` holds."""
        model = {
            "model_name": self.model,
            "model_provider": self.model_provider,
            "model_display_name": self.model_display_name,
            "model_org_display_name": self.model_organization,
        }
        return {
            "agent_url": self.agent_url,
            "agent_display_name": self.agent,
            "agent_org_display_name": self.agent_organization,
            "models": [model],
        }


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a check found.

    Args:
        violations: Every rule that is broken, with the place.
        attempts: Trials of each task.
    """

    violations: list[str]
    attempts: dict[str, int]


def require_valid(results: Path) -> None:
    """Refuse the results of a run whose figures are no score.

    Args:
        results: Folder of a run's results.

    Raises:
        ArtifactError: The run is not valid, has not ended, or cannot be read.
    """
    run = read_results(results)
    if run.spoiled is not None:
        name = f"BenchmarkRun {run.namespace}/{run.object_name} ({results})"
        told = f"{name} is not valid: {run.spoiled}; its figures are no score, so send those of another run"
        raise ArtifactError(Reason.INVALID_SPEC, told)


def job_folders(results: Path) -> list[Path]:
    """Return the Harbor job folders of a run's results."""
    return _folders(results / HARBOR_FOLDER)


def check(jobs: Sequence[Path]) -> Checked:
    """Check job folders against the leaderboard's rules.

    Args:
        jobs: Harbor's job folders, each whole.
    """
    violations: list[str] = []
    attempts: dict[str, int] = {}
    for job in jobs:
        settings = read_json(job / "config.json", below=job)
        violations += [] if settings else [f"{job.name}: config.json is missing or no JSON; give whole job folders"]
        agents = [f"agents[{n}]" for n, _ in enumerate(items(settings.get("agents")))]
        parts = {**settings, **dict(zip(agents, items(settings.get("agents")), strict=True))}
        violations += [f"{job.name}: {text}" for text in _overrides(parts, ("verifier", *agents))]
        for trial in _folders(job):
            violations += [f"{job.name}/{trial.name}: {text}" for text in _trial(trial, attempts)]
    violations += [
        f"task {task}: {count} trials; the leaderboard asks for at least {LEAST_ATTEMPTS} (spec.attempts)"
        for task, count in sorted(attempts.items())
        if count < LEAST_ATTEMPTS
    ]
    if not attempts:
        violations.append("there is no trial with a result")
    return Checked(violations=violations, attempts=attempts)


def write_submission(jobs: Sequence[Path], submitter: Submitter, target: Path) -> Path:
    """Write the folder of a submission.

    Args:
        jobs: Harbor's job folders; they are checked first.
        submitter: What the leaderboard shows.
        target: Folder that `submissions/` is made in.

    Returns:
        The submission's folder.

    Raises:
        ArtifactError: A rule is broken, or the submission is there already.
    """
    checked = check(jobs)
    if checked.violations:
        raise ArtifactError(Reason.INVALID_SPEC, "\n".join(["the leaderboard would refuse this:", *checked.violations]))
    folder = target / PLACE / submitter.folder
    if folder.exists():
        raise ArtifactError(Reason.OUTPUT_OCCUPIED, f"{folder} exists; give another -o")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for number, job in enumerate(jobs, start=1):
        name = job.name if [one.name for one in jobs].count(job.name) == 1 else f"{number}-{job.name}"
        shutil.copytree(job, partial / name, ignore=_links)
    (partial / METADATA_FILE).write_text(_yaml(submitter.metadata()))
    partial.rename(folder)
    return folder


def _trial(trial: Path, attempts: dict[str, int]) -> Iterator[str]:
    result = read_json(trial / "result.json", below=trial)
    if not result:
        yield "result.json is missing or no JSON; let the run go on until the trial has ended"
        return
    task = result.get("task_name")
    rewards, failed = mapping(result.get("verifier_result")).get("rewards"), result.get("exception_info")
    if not isinstance(task, str) or not result.get("finished_at") or not (rewards or failed):
        yield "result.json has no task, no end, or neither reward nor exception; run the trial again"
        return
    attempts[task] = attempts.get(task, 0) + 1
    for name in ("config.json", "agent", *(("verifier",) if rewards else ())):
        if not (trial / name).exists() and not (trial / "steps").is_dir():
            yield f"{name} is missing; give whole job folders"
    yield from _overrides(mapping(result.get("config")), ("agent", "verifier"))
    for part in [trial, *_folders(trial / "steps")]:
        trajectory = read_json(part / "agent" / "trajectory.json", below=trial)
        for step in map(mapping, items(trajectory.get("steps"))):
            found = _ANSWERS.search(str(step.get("tool_calls") or ""))
            if found:
                yield f"step {step.get('step_id')} reaches for {found[0]}; agents must not read the benchmark's pages"


def _overrides(settings: Mapping[str, Any], timed: Sequence[str]) -> Iterator[str]:
    """Yield what a configuration of a job or a trial overrides of the tasks' own settings."""
    for name in _MULTIPLIERS:
        if settings.get(name) not in (None, 1, 1.0):
            yield f"{name} is {settings[name]}; it must be 1.0"
    for part in timed:
        for name in _TIMEOUTS:
            if mapping(settings.get(part)).get(name) is not None:
                yield f"{part}.{name} is {settings[part][name]}; time-outs must be the tasks' own"
    environment = mapping(settings.get("environment"))
    for name in _RESOURCES:
        if environment.get(name) is not None:
            yield f"environment.{name} is {environment[name]}; resources must be the tasks' own"
    for name in _OUR_RESOURCES:
        if mapping(environment.get("kwargs")).get(name):
            yield f"environment.kwargs.{name} is set (suite.harbor.trialResources); resources must be the tasks' own"


def _yaml(value: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/") if not path.is_symlink())


def _links(folder: str, names: list[str]) -> list[str]:
    """Name the links of a folder: they would carry files of this machine into the submission."""
    return [name for name in names if (Path(folder) / name).is_symlink()]
