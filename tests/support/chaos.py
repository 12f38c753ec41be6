"""Disturbances by a schedule that a seed decides: the same seed, the same ones in the same order, as far apart."""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from whetstone_api.vocabulary import Label

SEED: Final = "WHETSTONE_CHAOS_SEED"
"""Environment variable with the seed; without it each test has one of its own."""
_OWNERS: Final = (Label.MODEL_SERVER, Label.TRAINING_JOB, Label.BENCHMARK_RUN)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One thing that is done.

    Args:
        pause: Seconds that pass before.
        what: Its name.
        pick: Which of those that are there it is done to, as a part of 1.
    """

    pause: float
    what: str
    pick: float

    def choose[T](self, candidates: Sequence[T]) -> T:
        """Return the one of some candidates that is hit; there is at least one."""
        return candidates[int(self.pick * len(candidates))]

    def __str__(self) -> str:
        return f"after {self.pause:.1f} s: {self.what} ({self.pick:.2f})"


class Dice:
    """What a seed decides.

    Args:
        seed: The seed, where none is in the environment.
    """

    def __init__(self, seed: int) -> None:
        self.seed = int(os.environ.get(SEED) or seed)
        self._random = random.Random(self.seed)

    def shuffled[T](self, items: Sequence[T]) -> list[T]:
        """Return the items in another order."""
        return self._random.sample(items, len(items))

    def turns(self, names: Sequence[str], *, pauses: tuple[float, float]) -> list[Turn]:
        """Return a turn for each name, in the names' order, with pauses between two bounds."""
        return [Turn(pause=self._random.uniform(*pauses), what=name, pick=self._random.random()) for name in names]

    def rounds(self, names: Sequence[str], *, pauses: tuple[float, float], seconds: float) -> list[Turn]:
        """Return turns for so many seconds: all names in some order, then again in another one."""
        found: list[Turn] = []
        while sum(turn.pause for turn in found) < seconds:
            found += self.turns(self.shuffled(names), pauses=pauses)
        while sum(turn.pause for turn in found) > seconds:
            found.pop()
        return found

    def merged(self, stories: Sequence[Sequence[str]]) -> list[str]:
        """Return the parts of all stories mixed, each story's in their order."""
        order = self.shuffled([number for number, story in enumerate(stories) for _ in story])
        parts = [iter(story) for story in stories]
        return [next(parts[number]) for number in order]


def told(dice: Dice, turns: Sequence[Turn], *more: str) -> str:
    """Return the schedule for people, and how it is had again."""
    lines = [f"{SEED}={dice.seed}", *more, *map(str, turns)]
    return "\n  ".join(lines)


def lost(objects: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the objects whose owner is gone, and of those of Whetstone's that have none.

    Args:
        objects: All objects of a namespace, by a name for people.
    """
    living = {obj["metadata"]["uid"] for obj in objects.values()}
    found = []
    for name, obj in objects.items():
        owners = obj["metadata"].get("ownerReferences") or []
        ours = any(label in (obj["metadata"].get("labels") or {}) for label in _OWNERS)
        if any(owner["uid"] not in living for owner in owners) or (ours and not owners):
            found.append(name)
    return sorted(found)
