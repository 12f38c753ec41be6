"""What the demo applies, and what it ends with."""

from typing import Any

import pytest
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.schema import Resource
from whetstone_dev.demo import plan
from whetstone_dev.demo.kube import read_manifests
from whetstone_dev.demo.report import seconds_between, summarize
from whetstone_dev.demo.watch import describe
from whetstone_dev.places import CHECKOUT
from whetstone_dev.tasks.prompt import SYSTEM_PROMPT

EXAMPLES = read_manifests(CHECKOUT / "examples" / "loop")
MODELS: dict[str, type[Resource]] = {kind.kind_name: kind for kind in (ModelServer, LoRATrainingJob, BenchmarkRun)}


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [obj for obj in objects if obj["kind"] == kind]


@pytest.mark.parametrize("objects", [EXAMPLES, plan.fit_to_cpu(EXAMPLES, plan.SMALL)], ids=["as written", "fitted"])
def test_loop_manifests_are_valid_and_name_no_namespace(objects: list[dict[str, Any]]) -> None:
    for obj in objects:
        assert "namespace" not in obj["metadata"]
        if obj["kind"] in MODELS:
            metadata = {**obj["metadata"], "namespace": "n"}
            MODELS[obj["kind"]].model_validate({**obj, "metadata": metadata})


def test_examples_prompt_the_model_as_its_training_rows_do() -> None:
    for run in of_kind(EXAMPLES, "BenchmarkRun"):
        assert run["spec"]["agent"]["parameters"]["systemPrompt"] == SYSTEM_PROMPT


def test_both_runs_differ_in_nothing_but_the_target() -> None:
    baseline, candidate = (run["spec"] for run in of_kind(EXAMPLES, "BenchmarkRun"))
    for field in ("suite", "agent", "concurrency"):
        assert baseline[field] == candidate[field]
    assert "adapter" not in baseline["target"]
    assert candidate["baselineRef"]["name"] == plan.BASELINE


def test_alias_selects_the_candidate_only() -> None:
    server = of_kind(EXAMPLES, "ModelServer")[0]
    wanted = server["spec"]["aliases"][0]["promotion"]["benchmarkSelector"]["matchLabels"]
    runs = of_kind(EXAMPLES, "BenchmarkRun")
    selected = [run["metadata"]["name"] for run in runs if wanted.items() <= run["metadata"].get("labels", {}).items()]
    assert selected == [plan.CANDIDATE]


def test_examples_stay_as_they_are_when_they_are_fitted() -> None:
    before = repr(EXAMPLES)
    plan.fit_to_cpu(EXAMPLES, plan.FULL)
    assert repr(EXAMPLES) == before


def test_progress_line_tells_step_loss_and_time_left() -> None:
    progress = {"phase": "Train", "step": 20, "maxSteps": 60, "loss": "0.4100", "etaSeconds": 80}
    ready = {"type": "Ready", "status": "False", "reason": "Training", "message": "Job t is at work"}
    obj = {"kind": "K", "metadata": {"name": "t"}, "status": {"conditions": [ready], "progress": progress}}
    assert describe(obj) == "K t: Training, Train 20 of 60, loss 0.4100, 80 s left"


def test_seconds_between_needs_both_times() -> None:
    assert seconds_between("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z") == 1.5
    assert seconds_between(None, "2026-01-01T00:00:00Z") is None


def test_summary_has_the_promised_keys() -> None:
    digest = "sha256:ab"
    summary = summarize(
        server={"status": {"aliases": [{"name": "assistant", "servedName": "shell-tasks--abababab"}]}},
        training={"status": {"adapter": {"digest": digest}}},
        baseline={"status": {"results": {"mean": "0"}}},
        candidate={"status": {"results": {"mean": "1"}, "comparison": {"verdict": "Better", "difference": "1"}}},
        seconds={"train": 1.0},
    )
    assert {"baseline", "candidate", "comparison", "adapter", "alias", "seconds"} <= set(summary)
    assert summary["comparison"]["verdict"] == "Better"
    assert summary["adapter"]["digest"] == digest
