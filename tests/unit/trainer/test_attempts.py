"""What attempts leave for those after them: a training that is killed for want of memory goes on with less."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import Job, train_here
from whetstone_api.adapter_artifact import Lineage
from whetstone_artifacts.folders import adapter_digest
from whetstone_artifacts.training_choice import Choice, Freedom
from whetstone_trainer.attempts import begin, go_on, remember
from whetstone_trainer.errors import UserError
from whetstone_trainer.plan import Device, Plan

GIB = 1 << 30
MakeJob = Callable[[str], Job]
CPU = Device(is_gpu=False, free=8 * GIB)
RECIPE = "sha256:a"


def plan(micro_batch: int = 4, *, checkpointing: bool = False, fixed: dict[str, Any] | None = None) -> Plan:
    return Plan(
        choice=Choice(micro_batch=micro_batch, checkpointing=checkpointing, memory=None),
        freedom=Freedom(batch_size=4, **(fixed or {})),
        padding_free=False,
        attention="sdpa",
        compiled=False,
        reason="as estimated",
    )


def after(folder: Path, *, made: Plan | None = None, device: Device = CPU, killed: tuple[str, ...] = ()) -> Plan:
    """Return the plan of the next attempt."""
    return go_on(made or plan(), folder, recipe_digest=RECIPE, device=device, killed_pods=killed)


def shape(found: Plan) -> tuple[int, bool]:
    return found.micro_batch_size, found.checkpointing


def test_what_was_fallen_back_to_holds_for_the_same_recipe(tmp_path: Path) -> None:
    smaller = plan().smaller()
    assert smaller is not None
    remember(smaller, tmp_path, recipe_digest=RECIPE)
    found = after(tmp_path)
    assert (shape(found), found.reason) == (shape(smaller), smaller.reason)
    assert go_on(plan(), tmp_path, recipe_digest="sha256:b", device=CPU, killed_pods=[]) == plan()


def test_each_pod_that_is_killed_for_want_of_memory_makes_the_plan_one_step_smaller(tmp_path: Path) -> None:
    found, seen = plan(), []
    for number in range(3):
        begin(found, tmp_path, recipe_digest=RECIPE, device=CPU, pods=[f"pod-{number}"])
        found = after(tmp_path, killed=tuple(f"pod-{past}" for past in range(number + 1)))
        seen.append(shape(found))
    assert seen == [(2, False), (1, False), (1, True)]
    assert found.reason.startswith("micro-batch 1 was killed for want of memory (8.00Gi a process), so 1 with")
    assert found.reason.endswith("before that: as estimated")
    begin(found, tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-3"])
    with pytest.raises(UserError, match=r"there is nothing smaller; raise spec\.resources\.limits\.memory") as caught:
        after(tmp_path, killed=("pod-3",))
    assert caught.value.reason == "DeviceTooSmall"


def test_pod_that_ended_otherwise_changes_nothing(tmp_path: Path) -> None:
    begin(plan(), tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-0"])
    assert after(tmp_path) == after(tmp_path, killed=("another",)) == plan()


def test_smaller_plan_stays_for_the_pods_after_it(tmp_path: Path) -> None:
    begin(plan(), tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-0"])
    smaller = after(tmp_path, killed=("pod-0",))
    begin(smaller, tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-1"])
    found = after(tmp_path, killed=("pod-0",))
    assert (shape(found), found.reason) == ((2, False), smaller.reason)


def test_pod_outside_of_a_cluster_has_no_name_to_be_taken_for(tmp_path: Path) -> None:
    begin(plan(), tmp_path, recipe_digest=RECIPE, device=CPU, pods=["", ""])
    assert after(tmp_path, killed=("",)) == plan()


def test_attempt_that_is_killed_before_it_begins_is_answered_alike(tmp_path: Path) -> None:
    begin(plan(), tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-0"])
    once = after(tmp_path, killed=("pod-0",))
    assert after(tmp_path, killed=("pod-0",)) == once


def test_any_of_several_pods_counts_once(tmp_path: Path) -> None:
    begin(plan(), tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-0", "pod-1"])
    assert shape(after(tmp_path, killed=("pod-1",))) == shape(after(tmp_path, killed=("pod-1", "pod-0"))) == (2, False)


@pytest.mark.parametrize(
    ("fixed", "begun", "next_one", "words"),
    [
        ({"micro_batch": 4}, plan(4), (4, True), ""),
        ({"micro_batch": 4, "checkpointing": False}, plan(4), None, "spec.plan.microBatchSize and spec.plan.gradient"),
        ({"checkpointing": True}, plan(4, checkpointing=True), (2, True), ""),
        ({"checkpointing": False}, plan(1), None, "spec.plan.gradientCheckpointing allows nothing smaller"),
    ],
    ids=["micro-batch", "both", "checkpointing", "no checkpointing"],
)
def test_what_the_spec_fixes_stays(
    tmp_path: Path, fixed: dict[str, Any], begun: Plan, next_one: tuple[int, bool] | None, words: str
) -> None:
    made = plan(begun.micro_batch_size, checkpointing=begun.checkpointing, fixed=fixed)
    begin(made, tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-0"])
    if next_one is not None:
        assert shape(after(tmp_path, made=made, killed=("pod-0",))) == next_one
        return
    with pytest.raises(UserError) as caught:
        after(tmp_path, made=made, killed=("pod-0",))
    assert words in caught.value.message


@pytest.mark.parametrize("free", [16 * GIB, None])
def test_with_more_memory_the_plan_is_made_anew(tmp_path: Path, free: int | None) -> None:
    roomier = Device(is_gpu=False, free=free)
    begin(plan(1, checkpointing=True), tmp_path, recipe_digest=RECIPE, device=CPU, pods=["pod-0"])
    remember(plan(1), tmp_path, recipe_digest=RECIPE, device=CPU)
    assert after(tmp_path, device=roomier, killed=("pod-0",)) == plan()
    assert shape(after(tmp_path)) == (1, False)


def test_plan_of_a_gpu_stays_when_main_memory_runs_out(tmp_path: Path) -> None:
    gpu = Device(is_gpu=True, free=GIB)
    begin(plan(), tmp_path, recipe_digest=RECIPE, device=gpu, pods=["pod-0"])
    assert after(tmp_path, device=gpu, killed=("pod-0",)) == plan()


class KilledError(BaseException):
    """Ends a training at a step, as a kill does: nothing catches it."""


@pytest.fixture
def killed(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A training of nine steps, four rows at a time, whose pod was killed in step 6, after the checkpoint of step 4."""
    from trl import SFTTrainer

    step = SFTTrainer.training_step

    def dies(trainer: Any, *arguments: Any) -> Any:
        if trainer.state.global_step == 5:
            raise KilledError
        return step(trainer, *arguments)

    job.values["plan"] = {}
    with monkeypatch.context() as context:
        context.setenv("POD_UID", "pod-0")
        context.setattr(SFTTrainer, "training_step", dies)
        with pytest.raises(KilledError):
            train_here(job)
    monkeypatch.setenv("POD_UID", "pod-1")
    job.values["killedPods"] = ["pod-0"]
    return job


def begun(job: Job) -> list[str]:
    """Return the pods that the newest attempt says it trains by."""
    pods: list[str] = json.loads((job.workspace / "begun.json").read_bytes())["pods"]
    return pods


@pytest.mark.torch
def test_killed_training_goes_on_from_its_checkpoint_with_a_smaller_plan(killed: Job) -> None:
    assert begun(killed) == ["pod-0"]
    found = train_here(killed)
    assert begun(killed) == ["pod-1"]
    assert (found.plan.micro_batch_size, found.plan.gradient_checkpointing) == (2, False)
    assert found.plan.reason.startswith("micro-batch 4 was killed for want of memory")
    losses = [entry["step"] for entry in found.history if "loss" in entry]
    assert (losses, found.step) == ([*range(1, 10)], 9)


@pytest.mark.torch
def test_smallest_plan_that_is_killed_ends_the_job_at_once(killed: Job) -> None:
    killed.values["plan"] = {"microBatchSize": 4, "gradientCheckpointing": "Disabled"}
    with pytest.raises(UserError, match=r"micro-batch 4 without checkpointing, and spec\.plan\.") as caught:
        train_here(killed)
    assert caught.value.reason == "DeviceTooSmall"
    assert begun(killed) == ["pod-0"]


def losses_of(job: Job, **plan: Any) -> list[float]:
    job.values["plan"] = plan
    return [entry["loss"] for entry in train_here(job).history if "loss" in entry]


@pytest.mark.torch
def test_dropout_stays_with_checkpointing_and_falls_otherwise_in_another_micro_batch(make_job: MakeJob) -> None:
    plain = losses_of(make_job("plain"), microBatchSize=4)
    assert losses_of(make_job("again"), microBatchSize=4, gradientCheckpointing="Enabled") == plain
    halved = losses_of(make_job("halved"), microBatchSize=2)
    assert halved[0] == pytest.approx(plain[0], abs=2e-4)
    assert halved[1:] != pytest.approx(plain[1:], abs=2e-4)


@pytest.mark.torch
@pytest.mark.long
def test_checkpointing_after_a_kill_gives_the_bytes_of_an_undisturbed_run(job: Job, make_job: MakeJob) -> None:
    """Where the micro-batch is fixed, activations are computed again, to the same numbers."""
    whole = make_job("whole")
    whole.values["plan"] = job.values["plan"] = {"microBatchSize": 4}
    assert whole.run("train") == 0, whole.log
    assert job.run("train", POD_UID="pod-0", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    job.values["killedPods"] = ["pod-0"]
    assert job.run("train", POD_UID="pod-1") == 0, job.log
    chosen = job.report.result["plan"]
    assert chosen["gradientCheckpointing"]
    assert Lineage.model_validate_json((job.output / "lineage.json").read_bytes()).plan == chosen
    assert adapter_digest(job.output) == adapter_digest(whole.output)
