"""Under steady change the operator holds no more than before: in a minute, and in two hours in the long run."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from whetstone_bench.churn import STEPS, Churn
from whetstone_bench.soak import Ground, Record, ground, settle, soak

pytestmark = pytest.mark.integration
SLOTS = 4
LIVES = 2
LOOKS = 30
LONG_SECONDS = 7200.0
LONG_GROWTH_MEBIBYTES = 3.0
KEY = "whetstone_operator.kinds.Key"
RESTLESS = {"builtins.builtin_function_or_method", "weakref.ReferenceType", "yarl.URL"}
"""What connections and caches of libraries hold more or less of at any time."""


def test_objects_that_are_gone_leave_nothing_in_the_operator(tmp_path: Path) -> None:
    with ground(tmp_path) as place:
        left = asyncio.run(_left_by_lives(place))
    assert not left, f"{LIVES * SLOTS} objects of each kind came and went, and of so many types there are more: {left}"
    assert "Traceback" not in place.operator.log


async def _left_by_lives(place: Ground) -> Counter[str]:
    """Return what there is more of, by type, as if half the objects that came and went had left one behind."""
    async with place.fleet(SLOTS) as churn:
        await _live(churn, lives=1)
        before, reports = await place.observer.census(), churn.done["reports of pods"]
        await _live(churn, lives=LIVES)
        # Whose token it was is known for five minutes.
        expected = {KEY: churn.done["reports of pods"] - reports}
        left: Counter[str] = Counter()
        # Connections and tasks go a little later.
        for _ in range(LOOKS):
            more = Counter((await place.observer.census()).growth(before))
            more.subtract(expected)
            some = {name: number for name, number in more.items() if number >= LIVES * SLOTS // 2}
            left = Counter({name: number for name, number in some.items() if name not in RESTLESS})
            if not left:
                break
            await asyncio.sleep(1)
        return left


async def _live(churn: Churn, *, lives: int) -> None:
    """Take all objects to the same step of another life, each step once the one before has come to its end."""
    for _ in range(lives * STEPS):
        await settle(churn)
        await churn.sweep()
    await settle(churn)


@pytest.mark.long
def test_memory_is_flat_over_two_hours_of_change(tmp_path: Path) -> None:
    def ignore(_: Record) -> None:
        """Nobody looks before the end."""

    record = soak(tmp_path, seconds=LONG_SECONDS, tell=ignore)
    assert record.slope() < LONG_GROWTH_MEBIBYTES, record.samples
    assert record.errors == 0
