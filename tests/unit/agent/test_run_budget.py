"""The budget of a whole run, counted in several pods that share a volume."""

import asyncio
import json
from pathlib import Path

import pytest
from whetstone_agent.agents import run_budget
from whetstone_agent.agents.run_budget import EVERY_SECONDS, TOKENS_FILE, RunBudget

pytestmark = pytest.mark.looptime
MOMENT = EVERY_SECONDS / 10


def told(folder: Path) -> int | None:
    file = folder / TOKENS_FILE
    return int(json.loads(file.read_text())["tokens"]) if file.exists() else None


def pods(place: Path, limit: int) -> tuple[RunBudget, RunBudget]:
    """Return the budgets of two pods, with the clock of the loop."""
    first, second = place / "0-of-2", place / "1-of-2"
    clock = asyncio.get_running_loop().time
    return (
        RunBudget(limit, folder=first, others=[second], clock=clock),
        RunBudget(limit, folder=second, others=[first], clock=clock),
    )


async def test_what_the_others_use_counts_soon(tmp_path: Path) -> None:
    one, two = pods(tmp_path, 100)
    one.open()
    two.open()
    assert (one.overspent(), two.overspent()) == (None, None)
    one.spend(60)
    two.spend(39)
    await asyncio.sleep(EVERY_SECONDS + MOMENT)
    assert (one.overspent(), two.overspent()) == (None, None)
    two.spend(1)
    assert two.overspent() == "100 tokens used of 100"
    await asyncio.sleep(2 * (EVERY_SECONDS + MOMENT))
    assert one.overspent() == "100 tokens used of 100"


async def test_many_answers_are_told_at_once_and_the_last_ones_at_the_end(tmp_path: Path) -> None:
    one, _ = pods(tmp_path, 100)
    one.open()
    assert told(tmp_path / "0-of-2") == 0
    one.spend(1)
    one.spend(1)
    assert told(tmp_path / "0-of-2") == 0
    await asyncio.sleep(EVERY_SECONDS + MOMENT)
    assert told(tmp_path / "0-of-2") == 2
    one.spend(5)
    one.close()
    assert told(tmp_path / "0-of-2") == 7


async def test_a_pod_that_starts_again_takes_its_old_count_back(tmp_path: Path) -> None:
    one, two = pods(tmp_path, 100)
    one.spend(90)
    one.close()
    again = RunBudget(100, used=10, folder=tmp_path / "0-of-2", others=[tmp_path / "1-of-2"])
    again.open()
    two.spend(80)
    assert two.overspent() is None


async def test_a_count_that_cannot_be_read_is_none_and_one_that_cannot_be_told_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = pods(tmp_path, 100)
    (tmp_path / "1-of-2").mkdir()
    (tmp_path / "1-of-2" / TOKENS_FILE).write_text("{")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_budget, "replacing", full)
    one.open()
    one.spend(99)
    assert one.overspent() is None
    assert "No space left on device" in caplog.text


def test_a_pod_that_has_the_run_for_itself_writes_nothing(tmp_path: Path) -> None:
    alone = RunBudget(10, used=4)
    alone.open()
    alone.spend(6)
    alone.close()
    assert alone.overspent() == "10 tokens used of 10"
