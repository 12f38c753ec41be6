"""A run: all instances of a set, each to its end, with its files.

    run.json                        what was asked for
    episodes/<number>.json          a finished episode, `EpisodeRecord`; the number is its place in the set
    branches/<number>-<step>.json   the other way from a step of it, where branches are asked for
    results.json                    figures, `RunSummary`
    collect/*.jsonl                 training rows

Run again, it goes on: finished episodes are kept, void ones are tried again. A folder that holds another run is
refused.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from whetstone_api.wire import WireModel
from whetstone_artifacts.data.ladder import Rung
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.statistics import CONFIDENCE, mean_interval

from whetstone_agent.tooluse import training_rows
from whetstone_agent.tooluse.agents import Agent
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.env import ToolUseEnv
from whetstone_agent.tooluse.episode import EpisodeRecord, run_branches, run_episode
from whetstone_agent.tooluse.expert import ExpertSettings
from whetstone_agent.tooluse.instances import Instance
from whetstone_agent.tooluse.judges import Judge

RUN_FILE: Final = "run.json"
RESULTS_FILE: Final = "results.json"
EPISODES: Final = "episodes"
BRANCHES: Final = "branches"
COLLECT: Final = "collect"


class AnotherRunError(Exception):
    """The folder holds a run that was asked for differently; the message names the difference."""


class Rate(WireModel):
    """A share of successes."""

    scored: int
    """Episodes that say something."""
    successes: int
    rate: float | None
    """Absent where none says anything."""
    low: float | None
    """Lower end of the interval at 95 %."""
    high: float | None


class RunSummary(WireModel):
    """Figures of a run."""

    instances: int
    void: int
    """Episodes that say nothing about the agent."""
    success: Rate
    by_scenario: dict[str, Rate]
    """By tool availability, and whether the instance can be answered with it."""
    by_rung: dict[str, Rate]
    """By the rung of tool use that the instance is tagged with; those without one are in none."""
    ends: dict[str, int]
    """Episodes by how they ended."""
    steps: dict[str, int]
    """Steps by what they were."""
    expert_steps: int
    prompt_tokens: int
    completion_tokens: int


def run_set(
    instances: Sequence[Instance],
    folder: Path,
    *,
    make_env: Callable[[], ToolUseEnv],
    agent: Agent | None,
    asked: Mapping[str, Any],
    expert: ExpertSettings | None = None,
    protocol: Protocol = Protocol.NATIVE,
    concurrency: int = 1,
    overseer: Judge | None = None,
) -> RunSummary:
    """Run what is not finished yet, and write figures and training rows.

    Args:
        instances: The set.
        folder: Where files go; it may hold a part of the same run.
        make_env: Makes an environment with the set; one for each thread.
        agent: Who acts; threads share it.
        asked: What decides the outcome, as JSON: it names the run.
        expert: When the expert acts.
        protocol: How tools are called.
        concurrency: Episodes at a time.
        overseer: Ends hopeless episodes; threads share it.

    Raises:
        AnotherRunError: The folder holds another run.
        ModelRefusedError: The model's server refuses every call.
    """
    for name in (EPISODES, BRANCHES, COLLECT):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _claim(folder / RUN_FILE, asked)
    places = [folder / EPISODES / f"{number:05d}.json" for number in range(len(instances))]
    own, stop = threading.local(), threading.Event()

    def one(instance: Instance, place: Path) -> EpisodeRecord | None:
        if stop.is_set():
            return None
        kept = _read(place)
        if kept is not None and not kept.void:
            return kept
        if not hasattr(own, "env"):
            own.env = make_env()
        try:
            record = run_episode(own.env, instance.id, agent=agent, expert=expert, protocol=protocol, overseer=overseer)
            many = 0 if expert is None or record.void else expert.branches
            for other in run_branches(own.env, record, agent=agent, limit=many, overseer=overseer):
                _write(folder / BRANCHES / f"{place.stem}-{other.branch_at}.json", other)
        except BaseException:
            # What would end every other episode too ends the run; those that run meanwhile are finished and kept.
            stop.set()
            raise
        # Its file says that the episode is finished, so it comes last.
        _write(place, record)
        return record

    with ThreadPoolExecutor(concurrency) as pool:
        jobs = [pool.submit(one, instance, place) for instance, place in zip(instances, places, strict=True)]
    for job in jobs:
        if (error := job.exception()) is not None:
            raise error
    episodes = [record for job in jobs if (record := job.result()) is not None]
    summary = summarize(episodes)
    _write_rows(folder / COLLECT / "sft.jsonl", list(training_rows.sft_rows(episodes)))
    _write_rows(folder / COLLECT / "preference-step.jsonl", list(training_rows.step_preferences(episodes)))
    pairs = [
        row
        for place, record in zip(places, episodes, strict=True)
        for other in read_branches(folder, place.stem)
        for row in training_rows.trajectory_preferences([[record], [other]])
    ]
    _write_rows(folder / COLLECT / "preference-trajectory.jsonl", pairs)
    with replacing(folder / RESULTS_FILE) as temporary:
        temporary.write_text(summary.to_json(), encoding="utf-8")
    return summary


def read_run(folder: Path) -> list[EpisodeRecord]:
    """Return the finished episodes of a run, in the order of its set; unreadable files are left out."""
    found = (_read(place) for place in sorted((folder / EPISODES).glob("*.json")))
    return [one for one in found if one is not None]


def read_branches(folder: Path, number: str) -> list[EpisodeRecord]:
    """Return the branches of an episode, by its number in the run."""
    found = (_read(place) for place in sorted((folder / BRANCHES).glob(f"{number}-*.json")))
    return [one for one in found if one is not None]


def summarize(episodes: Sequence[EpisodeRecord]) -> RunSummary:
    """Return the figures of finished episodes; void ones are counted apart."""
    scored = [one for one in episodes if not one.void]
    scenarios: dict[str, list[EpisodeRecord]] = {}
    for one in scored:
        name = f"{one.tool_availability}, {'answerable' if one.answerable else 'not answerable'}"
        scenarios.setdefault(name, []).append(one)
    return RunSummary(
        instances=len(episodes),
        void=len(episodes) - len(scored),
        success=_rate(scored),
        by_scenario={name: _rate(some) for name, some in sorted(scenarios.items())},
        by_rung={rung.value: _rate(some) for rung in Rung if (some := [one for one in scored if rung in one.tags])},
        ends=dict(sorted(Counter(str(one.end) for one in episodes).items())),
        steps=dict(sorted(Counter(str(step.category) for one in episodes for step in one.steps).items())),
        expert_steps=sum(sum(one.expert_assistance.tracker) for one in episodes),
        prompt_tokens=sum(one.prompt_tokens for one in episodes),
        completion_tokens=sum(one.completion_tokens for one in episodes),
    )


def _rate(episodes: Sequence[EpisodeRecord]) -> Rate:
    scores = [float(one.success) for one in episodes]
    interval = mean_interval(scores, CONFIDENCE)
    return Rate(
        scored=len(scores),
        successes=int(sum(scores)),
        rate=sum(scores) / len(scores) if scores else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
    )


def _claim(path: Path, asked: Mapping[str, Any]) -> None:
    text = json.dumps(asked, sort_keys=True, indent=1)
    if not path.is_file():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return
    held = json.loads(path.read_text(encoding="utf-8"))
    wanted = json.loads(text)
    differing = sorted(name for name in held.keys() | wanted.keys() if held.get(name) != wanted.get(name))
    if differing:
        told = "; ".join(f"{name} is {held.get(name)!r} there and {wanted.get(name)!r} here" for name in differing)
        raise AnotherRunError(f"{path.parent} holds another run: {told}; choose another folder")


def _read(place: Path) -> EpisodeRecord | None:
    with suppress(OSError, ValidationError):
        return EpisodeRecord.model_validate_json(place.read_bytes())
    return None


def _write(place: Path, record: EpisodeRecord) -> None:
    with replacing(place) as temporary:
        temporary.write_text(record.to_json(), encoding="utf-8")


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
