"""Trials of a BenchmarkRun with a `toolUse` suite, on disk.

    <trial>/episode.json               `TrialRecord`: the truth
    <trial>/result.json                its times and tokens, in the form of Harbor's
    <trial>/agent/trajectory.json      its steps, in Harbor's Agent Trajectory Interchange Format
    <trial>/agent/messages.jsonl       the messages, to the character what the model saw
    <trial>/verifier/test-stdout.txt   how it ended

The last four are there for whatever reads runs of Harbor tasks: the page, judges, data tools.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError
from whetstone_api.run_artifact import TrialScore
from whetstone_api.wire import WireModel
from whetstone_artifacts.replacing import replacing

from whetstone_agent.tooluse.episode import EpisodeRecord
from whetstone_agent.tooluse.outcomes import End
from whetstone_agent.trials import Trial

EPISODE_FILE: Final = "episode.json"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9-]+")
_NAME_CHARACTERS: Final = 40


class TrialRecord(WireModel):
    """One trial: an attempt at an instance."""

    trial: str
    """Name of its folder."""
    attempt: int
    """From 1."""
    started_at: str
    """RFC 3339."""
    seconds: float
    model_seconds: float = 0.0
    """Time in model calls."""
    calls: int = 0
    """Model calls that were answered."""
    truncated: bool = False
    """The token limit cut a reply off."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    voids: int = 0
    """How often it was void so far."""
    episode: EpisodeRecord
    branches: list[EpisodeRecord] = Field(default_factory=list)
    """Other ways from steps of it to their end, where they are asked for."""

    @property
    def score(self) -> TrialScore:
        """Return how it is scored."""
        episode = self.episode
        return TrialScore(
            trial=self.trial,
            reward=None if episode.void else float(episode.success),
            error=str(episode.end) if episode.void else None,
            end=str(episode.end),
            timed_out=episode.end is End.TIME_EXCEEDED,
            truncated=self.truncated,
            context_overflow=episode.end is End.CONTEXT_LENGTH,
            turns=self.calls,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            started_at=self.started_at,
            seconds=self.seconds,
            agent_seconds=self.model_seconds,
        )


def trial_name(instance: str, attempt: int) -> str:
    """Return the name of a trial, in which an id may be anything; the same in every layout of shards.

    Args:
        instance: Id of the instance.
        attempt: From 1.
    """
    digest = hashlib.sha256(instance.encode()).hexdigest()[:8]
    return f"{_UNSAFE.sub('-', instance)[:_NAME_CHARACTERS].strip('-') or 'instance'}__{digest}-{attempt}"


def read_record(folder: Path) -> TrialRecord | None:
    """Return a trial; None where its folder holds none that can be read."""
    try:
        return TrialRecord.model_validate_json((folder / EPISODE_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_record(folder: Path, record: TrialRecord) -> None:
    """Write a trial; `episode.json` comes last and means a finished one."""
    agent = folder / "agent"
    for place in (agent, folder / "verifier"):
        place.mkdir(parents=True, exist_ok=True)
    episode = record.episode
    said = {"messages": episode.messages, **({"tools": episode.tools} if episode.tools else {})}
    texts = {
        folder / "result.json": json.dumps(_result(record)),
        agent / "trajectory.json": json.dumps(_trajectory(record), ensure_ascii=False),
        agent / "messages.jsonl": json.dumps(said) + "\n",
        folder / "verifier" / "test-stdout.txt": _verdict(episode),
        folder / EPISODE_FILE: record.to_json(),
    }
    for path, text in texts.items():
        with replacing(path, durable=path.name == EPISODE_FILE) as temporary:
            temporary.write_text(text, encoding="utf-8")


def scored_trials(records: Sequence[TrialRecord]) -> list[Trial]:
    """Return trials as the figures take them."""
    return [Trial(task=one.episode.sample_id, score=one.score) for one in records]


def _verdict(episode: EpisodeRecord) -> str:
    last = f"; the last step was {episode.steps[-1].category}" if episode.steps else ""
    return f"{episode.end}{last}; {'answerable' if episode.answerable else 'not answerable'} with its tools\n"


def _result(record: TrialRecord) -> dict[str, Any]:
    ended = datetime.fromisoformat(record.started_at) + timedelta(seconds=record.seconds)
    times = {"started_at": record.started_at, "finished_at": ended.isoformat()}
    episode = record.episode
    failed = {"exception_type": str(episode.end), "exception_message": episode.error or str(episode.end)}
    return {
        "trial_name": record.trial,
        **times,
        "agent_execution": times,
        "agent_result": {"n_input_tokens": record.prompt_tokens, "n_output_tokens": record.completion_tokens},
        "exception_info": failed if episode.void else None,
    }


def _trajectory(record: TrialRecord) -> dict[str, Any]:
    episode = record.episode
    steps: list[dict[str, Any]] = []
    done = iter(episode.steps)
    for message in episode.messages:
        if message["role"] in ("tool", "user") and steps and steps[-1]["source"] == "agent":
            # What a step gave belongs to the step.
            continue
        if message["role"] != "assistant":
            steps.append({"source": message["role"], "message": message["content"]})
            continue
        step = next(done, None)
        steps.append({"source": "agent", "message": message.get("content") or "", **_calls(message)})
        if step is not None:
            steps[-1]["extra"] = {"actor": str(step.actor), "category": str(step.category), "reward": step.reward}
            if step.observation:
                steps[-1]["observation"] = {"results": [{"content": step.observation}]}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": record.trial,
        "agent": {"name": "whetstone-tool-use", "version": "1", "tool_definitions": episode.tools},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
    }


def _calls(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "tool_call_id": one["id"],
            "function_name": one["function"]["name"],
            "arguments": json.loads(one["function"]["arguments"] or "{}"),
        }
        for one in message.get("tool_calls") or []
    ]
    return {"tool_calls": calls} if calls else {}
