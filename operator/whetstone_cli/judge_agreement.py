"""`whetstone judge-agreement`: how far a judge's opinions are those of people who rated the same trials."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from whetstone_api.benchmark_judge import JUDGE_FILE, JUDGE_FOLDER, JudgeArtifact
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.agreement import agreement, cohens_kappa
from whetstone_artifacts.errors import ArtifactError

from whetstone_cli.exits import refused

_SCALE: Final = range(1, 6)
_ASPECTS: Final = ("reasoning", "completeness", "solved")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    one = commands.add_parser("judge-agreement", help="compare a judge's opinions with ratings of your own")
    one.add_argument("folder", type=Path, help="folder with the results of a judged run")
    one.add_argument("labels", type=Path, help="your ratings: JSON lines with trial, reasoning, completeness, solved")
    one.set_defaults(command_function=judge_agreement)


def judge_agreement(options: argparse.Namespace) -> int:
    """Print the agreement of each judge of a run.

    Args:
        options: `folder` and `labels` of the command line.

    Returns:
        The exit code: 1 when a file cannot be read or has nothing to compare.
    """
    try:
        labels = read_labels(options.labels)
        for path in _judges(options.folder):
            print("\n".join(compared(_read(path), labels)))
    except ArtifactError as error:
        return refused(error)
    return 0


def compared(judged: JudgeArtifact, labels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the agreement of a judge with somebody's ratings, in lines.

    Args:
        judged: The judge's opinions.
        labels: Ratings by trial.
    """
    lines = [f"judge {judged.judged.model} ({judged.judged.judge})"]
    for aspect in _ASPECTS:
        pairs = [
            (said, labels[one.trial][aspect])
            for one in judged.opinions
            if (said := getattr(one, aspect)) is not None and aspect in labels.get(one.trial, {})
        ]
        share, kappa = agreement(pairs), cohens_kappa(pairs)
        if share is None:
            lines.append(f"  {aspect:<13} no trial that both rated")
            continue
        beyond = "not defined, for both always said the same" if kappa is None else f"{kappa:.3f}"
        lines.append(f"  {aspect:<13} {len(pairs)} trials, agreement {share:.3f}, Cohen's kappa {beyond}")
    return lines


def read_labels(path: Path) -> dict[str, dict[str, Any]]:
    """Read ratings.

    Raises:
        ArtifactError: The file cannot be read, or a line is no rating.
    """
    labels: dict[str, dict[str, Any]] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(Reason.REFERENCE_FAILED, f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        label = _label(line)
        if label is None:
            message = f'{path} line {number} is no rating; write {{"trial": "…", "reasoning": 1 to 5, "solved": true}}'
            raise ArtifactError(Reason.REFERENCE_FAILED, message)
        labels[label["trial"]] = label
    return labels


def _label(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("trial"), str) or not set(_ASPECTS) & set(value):
        return None
    return value if all(_fits(aspect, value[aspect]) for aspect in _ASPECTS if aspect in value) else None


def _fits(aspect: str, value: object) -> bool:
    return isinstance(value, bool) if aspect == "solved" else type(value) is int and value in _SCALE


def _judges(folder: Path) -> list[Path]:
    found = sorted(folder.glob(f"{JUDGE_FOLDER}/*/{JUDGE_FILE}"))
    if not found:
        message = f"{folder} has no {JUDGE_FOLDER}/*/{JUDGE_FILE}; set spec.judge in the run"
        raise ArtifactError(Reason.REFERENCE_FAILED, message)
    return found


def _read(path: Path) -> JudgeArtifact:
    try:
        return JudgeArtifact.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ArtifactError(Reason.REFERENCE_FAILED, f"{path} cannot be read: {error}") from error
