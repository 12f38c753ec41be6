"""Under steady change the operator holds no more than before: in a minute, and in two hours in the long run."""

import asyncio
from pathlib import Path

import pytest
from whetstone_bench.census import Census
from whetstone_bench.churn import STEPS, Churn
from whetstone_bench.soak import Ground, Observer, Record, ground, settle, soak

pytestmark = pytest.mark.integration
SLOTS = 6
FEWEST = 4
"""Of six objects of a kind: more of a type after each of two lives than after the one before is no chance."""
LOOKS = 5
LONG_SECONDS = 7200.0
LONG_GROWTH_MEBIBYTES = 3.0
KEY = "whetstone_operator.kinds.Key"
BOUNDED = {"yarl.URL", "builtins.tuple"}
"""yarl keeps a fixed number of the last URLs, with tuples: in hours of change there come no more."""


@pytest.mark.long
def test_objects_that_are_gone_leave_nothing_in_the_operator(tmp_path: Path) -> None:
    with ground(tmp_path) as place:
        left = asyncio.run(_left_by_lives(place))
        assert not left, f"after each life of {SLOTS} objects of a kind there is more of these types: {left}"
        assert "Traceback" not in place.operator.log


async def _left_by_lives(place: Ground) -> dict[str, int]:
    """Return of which types there is more after each of two lives, and how much more at least."""
    async with place.fleet(SLOTS) as churn:
        await _live(churn)
        grown = []
        for _ in range(2):
            before, reports = await place.observer.census(), churn.done["reports of pods"]
            await _live(churn)
            more = await _least_growth(place.observer, before)
            # Whose token it was is known for five minutes.
            more[KEY] = more.get(KEY, 0) - (churn.done["reports of pods"] - reports)
            grown.append(more)
        least = {name: min(number, grown[1].get(name, 0)) for name, number in grown[0].items()}
        return {name: number for name, number in least.items() if number >= FEWEST and name not in BOUNDED}


async def _least_growth(observer: Observer, before: Census) -> dict[str, int]:
    """Return what there is more of at any time: connections and tasks come and go."""
    found = (await observer.census()).growth(before)
    for _ in range(LOOKS):
        await asyncio.sleep(1)
        again = (await observer.census()).growth(before)
        found = {name: min(number, again.get(name, 0)) for name, number in found.items()}
    return found


async def _live(churn: Churn) -> None:
    """Take all objects to the same step of another life, each step once the one before has come to its end."""
    for _ in range(STEPS):
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
