"""What the folders of trials say, in Harbor's form, about each trial: its times, and step by step what was done."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from whetstone_api.run_artifact import TRIAL_FOLDERS

from whetstone_artifacts.report.untrusted import NOTHING, Shown, items, mapping, read_json, read_text, shown

PHASES: Final = {
    "environment_setup": "sandbox",
    "agent_setup": "agent set-up",
    "agent_execution": "agent",
    "verifier": "verifier",
}
"""Harbor's phases of a trial and what they are called."""
_DEEPEST: Final = 4
"""Folders between a run's `harbor`, or `episodes`, and its trials, at most."""
EXIT_CODE: Final = re.compile(r"\AExit code: (-?\d+)")
"""How the output of a command begins that tells its end."""
_LOGS: Final = ("oracle.txt", "terminus_2.pane", "trial.log")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a trajectory."""

    number: int
    source: str
    """system, user or agent."""
    message: Shown
    reasoning: Shown
    commands: list[Shown]
    outputs: list[Shown]
    tokens: str = ""
    note: str = ""
    """Who did it and what it was worth, in runs of the tool-use gym."""

    @property
    def size(self) -> int:
        """Characters that are shown."""
        return sum(part.size for part in (self.message, self.reasoning, *self.commands, *self.outputs))


@dataclass(frozen=True, kw_only=True)
class TrialDetail:
    """A trial's folder, read."""

    folder: str
    """Its path below the results."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase."""
    total_seconds: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""
    error_text: Shown = NOTHING
    steps: list[Step] = field(default_factory=list)
    left_out: int = 0
    """Steps that are not shown for want of room."""
    log: Shown = NOTHING
    """The agent's log where there is no trajectory."""
    verdict: Shown = NOTHING
    """What the verifier wrote."""


def find_trials(results: Path, names: Collection[str]) -> dict[str, Path]:
    """Return the folders of trials by name.

    Args:
        results: Folder of the results; links are not followed.
        names: The trials.
    """
    found: dict[str, Path] = {}
    level = [results / name for name in TRIAL_FOLDERS]
    for _ in range(_DEEPEST):
        below = [path for folder in level for path in folders(folder)]
        found.update({path.name: path for path in below if path.name in names})
        level = [path for path in below if path.name not in names]
    return found


def read_detail(folder: Path, *, results: Path, room: int) -> TrialDetail:
    """Read a trial's folder, whatever is in it.

    Args:
        folder: The trial's folder.
        results: Folder of the results.
        room: Characters of its steps that may be shown.
    """
    data = read_json(folder / "result.json", below=folder)
    usage = mapping(data.get("agent_result"))
    parts = [folder, *folders(folder / "steps")]
    steps, left_out = _fitting([step for part in parts for step in _steps(part, folder)], room)
    recorded = (mapping(one.get("exception_info")) for one in map(mapping, (data, *items(data.get("step_results")))))
    failed = next(filter(None, recorded), {})
    return TrialDetail(
        folder=str(folder.relative_to(results)),
        seconds={name: taken for name in PHASES if (taken := _seconds(mapping(data.get(name)))) is not None},
        total_seconds=_seconds(data),
        prompt_tokens=_count(usage.get("n_input_tokens")),
        completion_tokens=_count(usage.get("n_output_tokens")),
        error=shown(failed.get("exception_type"), limit=200).head,
        error_text=shown(failed.get("exception_message")),
        steps=steps,
        left_out=left_out,
        log=NOTHING if steps or left_out else _log(folder),
        verdict=shown("\n".join(filter(None, (_verifier(part, folder) for part in parts)))),
    )


def _steps(part: Path, folder: Path) -> Iterator[Step]:
    trajectory = read_json(part / "agent" / "trajectory.json", below=folder)
    for number, step in enumerate(map(mapping, items(trajectory.get("steps"))), start=1):
        metrics = mapping(step.get("metrics"))
        counts = [(_count(metrics.get(f"{kind}_tokens")), kind) for kind in ("prompt", "completion")]
        yield Step(
            number=number,
            source=shown(step.get("source"), limit=20).head,
            message=shown(_content(step.get("message"))),
            reasoning=shown(step.get("reasoning_content")),
            commands=[shown(_command(mapping(call))) for call in items(step.get("tool_calls"))],
            outputs=[
                shown(_content(mapping(result).get("content")))
                for result in items(mapping(step.get("observation")).get("results"))
            ],
            tokens=", ".join(f"{count} {kind}" for count, kind in counts if count),
            note=_note(mapping(step.get("extra"))),
        )


def _note(extra: dict[str, Any]) -> str:
    parts = (extra.get("actor"), extra.get("category"))
    return ": ".join(shown(part, limit=40).head for part in parts if isinstance(part, str))


def _command(call: dict[str, Any]) -> object:
    """Return the text that was run, where the call is of an agent that runs texts; else the whole call."""
    arguments = mapping(call.get("arguments"))
    for name in ("command", "keystrokes", "cmd"):
        if isinstance(arguments.get(name), str):
            return arguments[name]
    return {str(call.get("function_name")): call.get("arguments")}


def _content(value: object) -> object:
    """Return the text of a message; parts that are no text are named."""
    if not isinstance(value, list):
        return value
    parts = [mapping(part) for part in value]
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _fitting(steps: list[Step], room: int) -> tuple[list[Step], int]:
    """Return the first steps that fit, and how many do not."""
    used = 0
    for number, step in enumerate(steps):
        used += step.size
        if used > room:
            return steps[:number], len(steps) - number
    return steps, 0


def _log(folder: Path) -> Shown:
    places = [folder / "agent" / name for name in _LOGS] + [folder / "trial.log"]
    texts = (read_text(place, below=folder) for place in places)
    return shown(next((text for text in texts if text), ""))


def _verifier(part: Path, folder: Path) -> str | None:
    return read_text(part / "verifier" / "test-stdout.txt", below=folder)


def _seconds(timing: dict[str, Any]) -> float | None:
    try:
        begin, end = (datetime.fromisoformat(timing[name]) for name in ("started_at", "finished_at"))
        return round((end - begin).total_seconds(), 3)
    except (KeyError, TypeError, ValueError):
        return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def folders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name, without links; none where it is none itself."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []
