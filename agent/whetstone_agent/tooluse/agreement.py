"""How well a judge agrees with people: what it says on a small set of answers that they labelled.

A set is a JSON list of `{"question": …, "accepted": […], "answer": …, "right": true}`; without `accepted` the question
could not be answered, and declining is right.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from whetstone_api.wire import WireModel
from whetstone_artifacts.statistics import CONFIDENCE, mean_interval

from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.judges import Judge, JudgeUnclearError


class Labelled(BaseModel):
    """An answer, and what people say of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    accepted: Annotated[list[str], Field(min_length=1)] | None = None
    answer: str
    right: bool


class Agreement(WireModel):
    """What a judge says on a labelled set."""

    rows: int
    agree: int
    wrongly_right: int
    """Answers that it finds right, and people do not."""
    wrongly_wrong: int
    """Answers that people find right, and it does not."""
    unclear: int
    """Rows on which it says neither yes nor no; counted apart."""
    rate: float | None
    """Share of those on which it says something, on which it agrees."""
    low: float | None
    """Lower end of the interval of the rate at 95 %."""
    high: float | None
    kappa: float | None
    """Agreement beyond chance (Cohen, https://doi.org/10.1177/001316446002000104); absent where chance is certain."""


def read_labelled(path: Path) -> list[Labelled]:
    """Read a labelled set.

    Raises:
        EnvironmentDataError: It cannot be used.
    """
    try:
        rows = TypeAdapter(list[Labelled]).validate_json(path.read_bytes())
    except OSError as error:
        raise EnvironmentDataError([f"{path.name}: cannot be read: {error.strerror or error}"]) from error
    except ValidationError as error:
        places = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
        raise EnvironmentDataError([f"{path.name}: {place or 'file'}: {said}" for place, said in places]) from error
    if not rows:
        raise EnvironmentDataError([f"{path.name}: holds no labelled answer: add one"])
    return rows


def agreement(judge: Judge, rows: Sequence[Labelled]) -> Agreement:
    """Ask the judge on every row.

    Raises:
        JudgeFailedError: Its server does not answer.
        ModelRefusedError: Its server refuses the key, or knows no such model.
    """
    said: list[tuple[bool, bool]] = []
    for row in rows:
        try:
            if row.accepted is None:
                verdict = judge.declines(row.question, row.answer)
            else:
                verdict = judge.matches(row.question, row.accepted, row.answer)
        except JudgeUnclearError:
            continue
        said.append((verdict, row.right))
    scores = [float(verdict == right) for verdict, right in said]
    interval = mean_interval(scores, CONFIDENCE)
    return Agreement(
        rows=len(rows),
        agree=int(sum(scores)),
        wrongly_right=said.count((True, False)),
        wrongly_wrong=said.count((False, True)),
        unclear=len(rows) - len(said),
        rate=sum(scores) / len(scores) if scores else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        kappa=_kappa(said),
    )


def _kappa(said: Sequence[tuple[bool, bool]]) -> float | None:
    if not said:
        return None
    count = len(said)
    observed = sum(one == other for one, other in said) / count
    yes = sum(one for one, _ in said) / count, sum(other for _, other in said) / count
    chance = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    return None if math.isclose(chance, 1.0) else (observed - chance) / (1 - chance)
