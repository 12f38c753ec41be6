"""When a training that makes no step hangs."""

from datetime import UTC, datetime
from typing import Any

import pytest
from whetstone_api.training_result import TrainingProgress
from whetstone_api.training_stall import StallSpec
from whetstone_operator.controllers.stall import LEAST_SECONDS, allowed_seconds, running_pod, stalls_before

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def make_pod(name: str, started: str | None) -> dict[str, Any]:
    state = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "ContainerCreating"}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [{"name": "main", "state": state}]}}


@pytest.mark.parametrize(
    ("minutes", "step", "eta", "seconds"),
    [
        (5, 10, 100_000, 300),
        (None, None, None, LEAST_SECONDS),
        (None, 10, 90, LEAST_SECONDS),
        (None, 10, 90 * 600, 20 * 600),
        (None, 100, 0, LEAST_SECONDS),
    ],
)
def test_limit_is_the_users_or_follows_the_pace(
    minutes: int | None, step: int | None, eta: int | None, seconds: float
) -> None:
    progress = TrainingProgress(phase="Train", step=step, max_steps=100, eta_seconds=eta)
    spec = StallSpec(minutes=minutes) if minutes else None
    assert allowed_seconds(spec, progress) == seconds


def test_pod_that_has_not_begun_is_not_silent() -> None:
    assert running_pod([make_pod("p", None)], silent=9000, now=NOW) == (None, 9000)


def test_silence_counts_from_the_start_of_the_youngest_pod() -> None:
    pods = [make_pod("old", "2026-01-01T10:00:00Z"), make_pod("new", "2026-01-01T11:59:00Z")]
    assert running_pod(pods, silent=9000, now=NOW) == ("new", 60)
    assert running_pod(pods, silent=10, now=NOW) == ("new", 10)


def test_job_carries_the_count_of_stalls_before_it() -> None:
    assert stalls_before({"metadata": {}}) == 0
    assert stalls_before({"metadata": {"annotations": {"whetstone.dev/stalls": "1"}}}) == 1
