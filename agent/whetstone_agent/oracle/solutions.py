"""Which tasks bring a solution, and what a trial of one says."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from whetstone_agent.tasks import AdmittedTask

_SOLUTION_OUTPUTS: Final = ("agent/oracle.txt", "steps/*/agent/oracle.txt")
_VERIFIER_OUTPUTS: Final = ("verifier/test-stdout.txt", "steps/*/verifier/test-stdout.txt")
_READ_BYTES: Final = 4096
_SHOWN_CHARACTERS: Final = 200
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a0-\uffff]+")


def has_solution(task: AdmittedTask) -> bool:
    """Return whether a task brings what Harbor's oracle runs, for each of its steps."""
    from harbor.models.task.task import Task

    one = Task(task.path)
    system = one.config.environment.os
    if one.paths.discovered_solve_path_for(system) is not None:
        return True
    steps = one.config.steps or []
    return bool(steps) and all(
        one.paths.discovered_step_solve_path_for(step.name, system) is not None for step in steps
    )


def last_words(trial: Path) -> str | None:
    """Return the end of what verifier and solution wrote in a trial; None where they wrote nothing.

    Args:
        trial: The trial's folder.
    """
    said = [
        f"{who} wrote: {words}"
        for who, places in (("its verifier", _VERIFIER_OUTPUTS), ("its solution", _SOLUTION_OUTPUTS))
        if (words := _end(trial, places))
    ]
    return "; ".join(said) or None


def _end(trial: Path, places: Sequence[str]) -> str:
    texts = []
    for path in (path for place in places for path in sorted(trial.glob(place))):
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _READ_BYTES))
            texts.append(stream.read().decode(errors="replace"))
    text = " ".join(_UNPRINTABLE.sub(" ", " ".join(texts)).split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"… {text[-_SHOWN_CHARACTERS:]}"
