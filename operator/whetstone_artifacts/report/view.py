"""What a page shows, from `results.json` and the trials' folders: plain values, no HTML."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from whetstone_api.benchmark_judge import JudgeArtifact
from whetstone_api.run_artifact import EngineUse, RunArtifact, TrialScore

from whetstone_artifacts.report.failures import Pattern, grouped, pattern_of
from whetstone_artifacts.report.judges import judge_figures, opinions, read_judges
from whetstone_artifacts.report.trials import PHASES, TrialDetail, find_trials, read_detail
from whetstone_artifacts.report.words import run_sentence

PAGE_CHARACTERS: Final = 12_000_000
"""Characters of trajectories in a page, shared by its trials."""
TRIAL_CHARACTERS: Final = 200_000
"""Of one trial at most."""
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_FIGURES: Final = frozenset({"interval", "uri"})


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """One trial in the matrix and in the list."""

    anchor: str
    number: int
    """Attempt, from 1."""
    score: TrialScore
    state: str
    """solved, partial, failed or void."""
    detail: TrialDetail | None
    pattern: str

    @property
    def sign(self) -> str:
        """The state without colour."""
        return {"solved": "✓", "partial": "◐", "failed": "✗", "void": "∅"}[self.state]


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One task of one run."""

    name: str
    digest: str
    trials: list[TrialView]

    @property
    def mean(self) -> float | None:
        """Mean reward over scored trials."""
        rewards = [trial.score.reward for trial in self.trials if trial.score.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run."""

    number: int
    artifact: RunArtifact
    tasks: dict[str, TaskView]
    judges: list[JudgeArtifact] = field(default_factory=list)
    figures: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Label and value of every figure, by its name in `results.json`."""
    identity: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.artifact.object_name

    @property
    def sentence(self) -> str:
        """Its result in words."""
        return run_sentence(self.artifact)

    def opinions(self, trial: TrialView) -> list[str]:
        """What judges said of a trial."""
        return opinions(self.judges, trial.score.trial)

    @property
    def trials(self) -> list[TrialView]:
        """All its trials by task."""
        return [trial for task in self.tasks.values() for trial in task.trials]

    @property
    def patterns(self) -> list[Pattern]:
        """Its failures by kind."""
        failures = [
            (trial.pattern, trial.anchor, f"{task.name} #{trial.number}")
            for task in self.tasks.values()
            for trial in task.trials
            if trial.state != "solved"
        ]
        return grouped(failures)

    @property
    def timing(self) -> dict[str, tuple[float, float, int]]:
        """Median and longest seconds, and number of trials, by phase."""
        details = [trial.detail for trial in self.trials if trial.detail is not None]
        found = {words: [d.seconds[name] for d in details if name in d.seconds] for name, words in PHASES.items()}
        found["whole trial"] = [d.total_seconds for d in details if d.total_seconds is not None]
        return {words: (median(values), max(values), len(values)) for words, values in found.items() if values}


def read_view(folder: Path, artifact: RunArtifact, *, number: int, runs: int) -> RunView:
    """Return what is shown of a run.

    Args:
        folder: Folder of its results.
        artifact: What `results.json` says, or what it will say.
        number: Its place on the page, from 1.
        runs: Runs on the page, which share the room.
    """
    names = {trial.trial for task in artifact.tasks for trial in task.trials}
    room = min(TRIAL_CHARACTERS, PAGE_CHARACTERS // runs // max(1, len(names)))
    places = find_trials(folder, names)
    tasks: dict[str, TaskView] = {}
    for index, task in enumerate(artifact.tasks):
        views = []
        for attempt, score in enumerate(task.trials, start=1):
            place = places.get(score.trial)
            detail = None if place is None else read_detail(place, results=folder, room=room)
            anchor = f"r{number}-{index + 1}-{attempt}"
            views.append(_trial(score, detail, anchor=anchor, number=attempt))
        tasks[task.task] = TaskView(name=task.task, digest=task.digest, trials=views)
    judges = read_judges(folder)
    wire = artifact.model_dump(mode="json", by_alias=True, exclude_none=True)
    return RunView(
        number=number,
        artifact=artifact,
        tasks=tasks,
        judges=judges,
        figures={key: (words(key), str(value)) for key, value in _flat(wire["results"]).items()}
        | {f"engine.{use.name}": (f"engine: {words(use.name)}", _use_text(use)) for use in artifact.engine_use}
        | judge_figures(judges),
        identity={words(key): str(value) for key, value in _identity(wire).items()},
    )


def _use_text(use: EngineUse) -> str:
    if use.samples == 1:
        return f"{use.mean:g}"
    return f"{use.mean:g} ({use.minimum:g} to {use.maximum:g}, {use.samples} samples)"


def words(key: str) -> str:
    """Return a field's name as words: `promptTokens` is `prompt tokens`."""
    return _WORDS.sub(" ", key).replace(".", ": ").lower()


def all_tasks(runs: Sequence[RunView]) -> list[str]:
    """Return every task that one of the runs has, in order."""
    return list(dict.fromkeys(name for run in runs for name in run.tasks))


def _trial(score: TrialScore, detail: TrialDetail | None, *, anchor: str, number: int) -> TrialView:
    state = _state(score.reward)
    pattern = "" if state == "solved" else pattern_of(score, detail)
    return TrialView(anchor=anchor, number=number, score=score, state=state, detail=detail, pattern=pattern)


def _state(reward: float | None) -> str:
    if reward is None:
        return "void"
    return "solved" if reward >= 1 else "failed" if reward <= 0 else "partial"


def _flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return figures with those of figures in them; lists are left out."""
    flat: dict[str, Any] = {}
    for key, value in figures.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        elif not isinstance(value, list) and key not in _NO_FIGURES:
            flat[f"{prefix}{key}"] = value
    return flat


def _identity(wire: Mapping[str, Any]) -> dict[str, Any]:
    named = {"run": f"{wire['namespace']}/{wire['objectName']}", "finished": wire["finishedAt"]}
    parts = {**wire["target"], **_flat(wire["comparability"]), "recipe": wire["recipeDigest"]}
    place = wire["results"].get("uri")
    return {**named, **parts, **({"results": place} if place else {})}
