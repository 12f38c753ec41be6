"""When a training that makes no step hangs."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from support.hand_clock import HandClock
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.reports import ProgressReport
from whetstone_api.training_result import TrainingProgress
from whetstone_api.training_stall import LEAST_SECONDS, StallSpec, last_step, step_line
from whetstone_operator.controllers.stall import allowed_seconds, running_pod, stalls_before, watch_steps
from whetstone_operator.controllers.training_progress import progress_of
from whetstone_operator.kinds import Key
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.progress import ProgressBoard, Reported
from whetstone_operator.runtime.reconcile import Work

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
    assert running_pod([make_pod("ahead", "2026-01-01T13:00:00Z")], silent=9000, now=NOW) == ("ahead", 9000)


def test_job_carries_the_count_of_stalls_before_it() -> None:
    assert stalls_before({"metadata": {}}) == 0
    assert stalls_before({"metadata": {"annotations": {"whetstone.dev/stalls": "1"}}}) == 1


def test_log_tells_the_newest_step() -> None:
    line = f"2026-01-01 12:00:00 INFO whetstone_trainer.progress: {step_line(7, 9)}"
    assert last_step(f"{line.replace('7', '6')}\n{{'loss': 'step 8 of 9'}}\n{line}\nmore") == 7
    assert last_step("nothing of the kind") is None


class Cluster:
    """Stands in for the API server: one pod that runs, and a log that no test cluster without nodes has."""

    def __init__(self) -> None:
        self.log = ""
        self.deleted: list[str] = []

    async def list(self, *_: Any) -> list[dict[str, Any]]:
        return [make_pod("p", "2026-01-01T00:00:00Z")]

    async def logs(self, **_: Any) -> str:
        return self.log


class Silent:
    """A training of ten steps, at step 3, with a stall after five minutes, whose reports have ceased."""

    def __init__(self) -> None:
        self.clock, self.cluster = HandClock(NOW), Cluster()
        self.board = ProgressBoard(self.clock)
        self.status: dict[str, Any] = {}
        self.report(3)

    def report(self, step: int) -> None:
        """Let a report of a step come through."""
        heard = Reported(ProgressReport(phase="Train", step=step, max_steps=10), self.clock.now())
        self.board.put(Key("loratrainingjobs", "ns", "t"), heard.report)
        self.status["progress"] = progress_of(heard).to_wire()

    async def look(self, *, minutes: int, ready: int = 1) -> dict[str, Any]:
        """Look at the training some minutes later; return what the status says of its progress."""
        self.clock.go(minutes=minutes)
        spec = {
            "baseModel": {"source": {"uri": "pvc://m/b"}},
            "datasets": [{"name": "d", "source": {"uri": "pvc://d/f"}}],
            "workspace": {"claimName": "w"},
            "output": {"adapter": {"uri": "pvc://a/b"}},
            "stall": {"minutes": 5},
        }
        metadata = {"name": "t", "namespace": "ns", "uid": "u", "generation": 1}
        job = LoRATrainingJob.model_validate({"metadata": metadata, "spec": spec})
        context: Any = SimpleNamespace(kube=self.cluster, clock=self.clock, board=self.board)
        work = Work(context, job, status=self.status)
        running = {"metadata": {"name": "t-train"}, "spec": {}, "status": {"ready": ready}}
        try:
            await watch_steps(work, running)
        finally:
            self.status = work.status
        return dict(self.status["progress"])


async def test_training_whose_reports_do_not_come_through_is_not_taken_for_hung() -> None:
    training = Silent()
    training.cluster.log = f"INFO whetstone_trainer.progress: {step_line(5, 10)}\n"
    progress = await training.look(minutes=6)
    assert (progress["step"], progress["percent"]) == (5, 50)
    assert (await training.look(minutes=4))["step"] == 5
    with pytest.raises(Waiting, match="no step for 6 minutes after step 5"):
        await training.look(minutes=2)
    assert training.status["stalls"] == 1


async def test_training_that_reports_again_is_judged_by_its_reports() -> None:
    training = Silent()
    training.cluster.log = f"INFO whetstone_trainer.progress: {step_line(5, 10)}\n"
    await training.look(minutes=6)
    training.report(7)
    assert (await training.look(minutes=4))["step"] == 7
    with pytest.raises(Waiting, match="no step for 6 minutes after step 7"):
        await training.look(minutes=2)


async def test_log_of_a_training_that_hangs_is_shown_with_where_it_stands() -> None:
    training = Silent()
    training.cluster.log = f"{step_line(3, 10)}\nno step for 270 seconds after step 3; the main thread is at a.py:7 f\n"
    with pytest.raises(Waiting, match=r"after step 3; .*the main thread is at a.py:7 f$"):
        await training.look(minutes=6)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_jump_of_the_clock_makes_no_training_hang_and_hides_none_that_does(hours: int) -> None:
    training = Silent()
    training.clock.jump(hours=hours)
    await training.look(minutes=4)
    assert "stalls" not in training.status
    with pytest.raises(Waiting, match="no step for 6 minutes after step 3"):
        await training.look(minutes=2)


async def test_silence_does_not_count_while_no_pod_runs() -> None:
    training = Silent()
    await training.look(minutes=60, ready=0)
    await training.look(minutes=4)
    with pytest.raises(Waiting, match="no step for 6 minutes"):
        await training.look(minutes=2)


async def test_operator_that_begins_to_lead_counts_silence_from_then_on() -> None:
    training = Silent()
    training.board = ProgressBoard(training.clock)
    training.clock.go(minutes=60)
    training.board.begin()
    await training.look(minutes=4)
    with pytest.raises(Waiting, match="no step for 6 minutes"):
        await training.look(minutes=2)
