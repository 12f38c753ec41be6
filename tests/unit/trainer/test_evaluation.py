"""Evaluation while training: what is held out is measured, and the best step is published."""

import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import Job, chat_row
from whetstone_api.adapter_artifact import Lineage
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_api.training_evaluation import EarlyStoppingSpec
from whetstone_artifacts.folders import adapter_digest
from whetstone_trainer.errors import UserError
from whetstone_trainer.log_history import Verdict, evaluated, judge
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch
EVERY = 2


def hold_out(job: Job, **evaluation: Any) -> Job:
    """Hold one row out whose answer is another than that of all others, so that learning them soon makes it worse."""
    held = job.folder / "held.jsonl"
    held.write_text(json.dumps(chat_row("q1", "zz9zz")) + "\n")
    job.values["datasets"].append({"name": "held", "path": str(held), "field": "spec.datasets[1]"})
    job.values["hyperparameters"] |= {"epochs": None, "maxSteps": 40, "learningRate": "5e-2"}
    job.values["checkpoint"] = {"everySteps": 3, "keep": 1}
    job.values["evaluation"] = {"dataset": "held", "everySteps": EVERY, **evaluation}
    return job


def stopping(patience: int = 2) -> dict[str, Any]:
    return {"earlyStopping": {"metric": "evalLoss", "patience": patience}}


def history(job: Job) -> list[dict[str, Any]]:
    newest = max((job.workspace / "checkpoints").glob("checkpoint-*"), key=lambda place: int(place.name[11:]))
    found: list[dict[str, Any]] = json.loads((newest / "trainer_state.json").read_bytes())["log_history"]
    return found


def lineage(job: Job) -> Lineage:
    return Lineage.model_validate_json((job.output / "lineage.json").read_bytes())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that stopped early, without a disturbance."""
    job = hold_out(Job(tmp_path_factory.mktemp("stopped"), model_folder), **stopping())
    assert job.run("train") == 0, job.log
    return job


def test_rows_held_out_are_measured_as_by_hand(job: Job, model_folder: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    hold_out(job)
    job.values["hyperparameters"]["maxSteps"] = 3
    assert job.run("train") == 0, job.log
    assert [entry["step"] for entry in history(job) if "eval_loss" in entry] == [2, 3]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), job.output).eval()
    import pyarrow as pa

    with pa.memory_map(str(job.workspace / "prepared" / "evaluation.arrow")) as source:
        row = pa.ipc.open_stream(source).read_all().to_pylist()[0]
    with torch.inference_mode():
        loss = model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss
    metrics = job.report.result["metrics"]
    assert math.isclose(float(metrics["evalLoss"]), float(loss), abs_tol=1e-3)
    assert lineage(job).metrics == metrics
    assert lineage(job).step == 3


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["DDP", "FSDP"])
def test_several_processes_measure_what_one_measures(make_job: Callable[[str], Job], strategy: str) -> None:
    """Rows held out that the processes cannot share evenly count once each; at step 6 a checkpoint is saved, too."""
    measured = []
    for name, world in (("one", None), ("two", {"nodes": 1, "processesPerNode": 2, "strategy": strategy})):
        job = make_job(name)
        held = job.folder / "held.jsonl"
        answers = ["zz9zz", "a" * 30, "b", "cc c" * 5, "d1"]
        held.write_text("".join(json.dumps(chat_row(f"h{at}", answer)) + "\n" for at, answer in enumerate(answers)))
        job.values["datasets"].append({"name": "held", "path": str(held), "field": "spec.datasets[1]"})
        job.values["evaluation"] = {"dataset": "held", "everySteps": 3}
        job.values["lora"]["dropout"] = "0"
        job.values["plan"] = {"microBatchSize": 1}
        if world:
            job.values["world"] = world
        assert job.run("train") == 0, job.log
        measured.append([entry for entry in history(job) if "eval_loss" in entry])
    one, two = measured
    assert [entry["step"] for entry in one] == [entry["step"] for entry in two] == [3, 6, 9]
    losses = [[entry["eval_loss"] for entry in entries] for entries in measured]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert len(set(losses[0])) == 3


def test_training_stops_and_publishes_the_best_step(stopped: Job) -> None:
    losses = {entry["step"]: entry["eval_loss"] for entry in history(stopped) if "eval_loss" in entry}
    best = min(losses, key=lambda step: losses[step])
    assert list(losses) == list(range(EVERY, best + 2 * EVERY + 1, EVERY))
    assert max(losses) < 40
    assert lineage(stopped).step == best
    assert stopped.report.result["metrics"]["evalLoss"] == f"{losses[best]:.4f}"
    kept = {path.name for path in (stopped.workspace / "checkpoints").glob("checkpoint-*")}
    assert kept == {f"checkpoint-{best}", f"checkpoint-{max(losses)}"}
    saved = stopped.workspace / "checkpoints" / f"checkpoint-{best}" / "adapter_model.safetensors"
    assert (stopped.output / "adapter_model.safetensors").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("place", [pytest.param("after-step:5", marks=pytest.mark.long), "before-publish"])
def test_killed_training_stops_at_the_same_step_with_the_same_bytes(stopped: Job, job: Job, place: str) -> None:
    hold_out(job, **stopping())
    assert job.run("train", WHETSTONE_FAILPOINT=place) == -signal.SIGKILL
    assert job.run("train", WHETSTONE_FAILPOINT=place) == 0, job.log
    assert adapter_digest(job.output) == adapter_digest(stopped.output)
    assert lineage(job).step == lineage(stopped).step
    if place == "before-publish":
        assert "'loss'" not in job.log


@pytest.mark.long
def test_best_step_that_is_damaged_is_told(stopped: Job, job: Job) -> None:
    hold_out(job, **stopping())
    shutil.copytree(stopped.workspace, job.workspace)
    best = lineage(stopped).step
    weights = job.workspace / "checkpoints" / f"checkpoint-{best}" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "CheckpointMismatch"
    assert f"checkpoint-{best} holds the best step" in job.report.message


def test_metric_that_is_not_logged_is_told_with_those_that_are(job: Job) -> None:
    hold_out(job, earlyStopping={"metric": "evalAccuracy", "patience": 1})
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "InvalidSpec"
    assert "spec.evaluation.earlyStopping.metric is evalAccuracy" in job.report.message
    assert all(name in job.report.message for name in ("evalLoss", "evalMeanTokenAccuracy", "gradNorm", " loss"))
    assert "untime" not in job.report.message


def log(*losses: float, name: str = "eval_loss") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for step, loss in enumerate(losses, start=1):
        entries += [{"step": step, "loss": 1.0, "rewards/margins": loss}, {"step": step, "eval_loss": loss}]
    return entries


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((), Verdict(best_step=None, exhausted=False)),
        ((3.0,), Verdict(best_step=1, exhausted=False)),
        ((3.0, 2.0, 2.0), Verdict(best_step=2, exhausted=False)),
        ((3.0, 2.0, 2.0, 2.5), Verdict(best_step=2, exhausted=True)),
        ((3.0, 2.0, 2.5, 1.0), Verdict(best_step=4, exhausted=False)),
    ],
)
def test_patience_counts_evaluations_that_are_no_better(losses: tuple[float, ...], verdict: Verdict) -> None:
    assert judge(log(*losses), EarlyStoppingSpec(patience=2)) == verdict


def test_metric_that_is_no_loss_is_to_rise() -> None:
    asked = EarlyStoppingSpec(metric="rewardsMargins", patience=1)
    assert judge(log(1.0, 2.0, 1.5), asked) == Verdict(best_step=2, exhausted=True)
    with pytest.raises(UserError, match="choose one of evalLoss, loss, rewardsMargins"):
        judge(log(1.0), EarlyStoppingSpec(metric="margins"))


def test_figures_of_the_published_step_are_its_evaluation() -> None:
    entry = {"step": 4, "eval_loss": 0.5, "eval_mean_token_accuracy": 0.9, "eval_runtime": 3.0, "epoch": 1.0}
    assert evaluated([{"step": 4, "loss": 1.0}, entry], 4) == {"evalLoss": 0.5, "evalMeanTokenAccuracy": 0.9}
    assert evaluated([entry], 3) == {}


def test_recipe_names_evaluations_only_when_they_are_asked_for(make_job: Callable[[str], Job]) -> None:
    def content(job: Job) -> Any:
        return read_recipe(job.config).content.get("evaluation")

    assert content(make_job("none")) is None
    assert content(hold_out(make_job("plain"), everySteps=None)) == {"dataset": "held"}
    steps = {"dataset": "held", "everySteps": EVERY}
    assert content(hold_out(make_job("steps"))) == steps
    asked = {"metric": "evalLoss", "patience": 2}
    assert content(hold_out(make_job("stopping"), **stopping())) == {**steps, "earlyStopping": asked}
