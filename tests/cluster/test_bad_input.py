"""Input that only a pod can find wrong: the object fails once, soon, and says what to mend."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.loop import Loop, Seeded
from support.training import ROW, run_spec, training_spec
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition

pytestmark = pytest.mark.cluster
FAIL_SECONDS = 150.0
NO_ANSWER = json.dumps({"messages": [{"role": "user", "content": "say hi"}]})
LONG = json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "go on " * 200}]})


@dataclass(frozen=True, kw_only=True)
class Case:
    """Wrong input and what the object must say of it.

    Args:
        name: Name of the object.
        reason: Reason of its condition Failed.
        words: Parts of the message: object, field, fix.
        rows: Rows of its dataset, in a ConfigMap.
        fields: Fields of the spec.
    """

    name: str
    reason: str
    words: tuple[str, ...]
    rows: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(name="empty", reason="DatasetEmpty", words=("spec.datasets[0]",), rows="\n"),
    Case(name="not-json", reason="DatasetInvalid", words=("spec.datasets[0]", "row 2"), rows=f"{ROW}\nnot json\n"),
    Case(name="no-answer", reason="DatasetInvalid", words=("row 1", "assistant"), rows=NO_ANSWER),
    Case(
        name="too-long",
        reason="DatasetTooLong",
        words=("row 2", "spec.hyperparameters.maxLength"),
        rows=f"{ROW}\n{LONG}\n",
        fields={"hyperparameters": {"maxLength": 64}},
    ),
    Case(
        name="no-file",
        reason="DatasetNotFound",
        words=("spec.datasets[0].source.uri", "pvc://data/nothing.jsonl"),
        fields={"datasets": [{"name": "rows", "source": {"uri": "pvc://data/nothing.jsonl"}}]},
    ),
    Case(
        name="no-model",
        reason="BaseModelNotFound",
        words=("pvc://models/nothing",),
        rows=ROW,
        fields={"baseModel": {"source": {"uri": "pvc://models/nothing"}}},
    ),
)


@pytest.fixture(scope="module")
def wrong_trainings(seeded: Seeded) -> Seeded:
    """All of them at once: each takes the time of a pod."""
    for case in CASES:
        dataset = {"configMapRef": {"name": f"rows-{case.name}", "key": "rows.jsonl"}}
        if case.rows is not None:
            metadata = {"name": f"rows-{case.name}"}
            config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            seeded.kube.apply({**config_map, "data": {"rows.jsonl": case.rows}}, namespace=seeded.namespace)
        seeded.apply("LoRATrainingJob", case.name, training_spec(output=case.name, dataset=dataset, **case.fields))
    return seeded


def failure_of(seeded: Seeded, kind: str, name: str) -> dict[str, Any]:
    """Wait until an object has failed and return its condition."""
    return eventually(
        lambda: condition(seeded.get(kind, name), "Failed"), what=f"{kind} {name} failed", seconds=FAIL_SECONDS
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_training_input_fails_once_with_its_cause(wrong_trainings: Seeded, case: Case) -> None:
    failed = failure_of(wrong_trainings, "LoRATrainingJob", case.name)
    assert failed["reason"] == case.reason, failed["message"]
    for words in case.words:
        assert words in failed["message"]
    assert len(wrong_trainings.pods("lora-training-job", case.name)) == 1


def test_output_of_another_recipe_is_never_overwritten(loop: Loop) -> None:
    dataset = {"source": {"uri": "pvc://data/train.jsonl"}}
    fields = {"hyperparameters": {"maxSteps": 1, "seed": 99}}
    loop.apply("LoRATrainingJob", "intruder", training_spec(output="shell-tasks", dataset=dataset, **fields))
    failed = failure_of(loop, "LoRATrainingJob", "intruder")
    assert failed["reason"] == "OutputOccupied"
    assert "seed" in failed["message"]


def test_folder_that_is_no_task_fails_the_run_before_any_trial(loop: Loop) -> None:
    loop.apply("BenchmarkRun", "no-task", run_spec(output="no-task", dataset="pvc://models"))
    failed = failure_of(loop, "BenchmarkRun", "no-task")
    assert failed["reason"] == "TasksInvalid"
    assert plan.MODEL in failed["message"]
    assert len(loop.pods("benchmark-run", "no-task")) == 1


def test_run_of_unknown_adapter_waits_and_names_the_known_ones(loop: Loop) -> None:
    target = {"modelServerRef": {"name": "smollm2"}, "adapter": "nobody"}
    loop.apply("BenchmarkRun", "unknown", run_spec(output="unknown", target=target))
    ready = eventually(lambda: condition(loop.get("BenchmarkRun", "unknown"), "Ready"), what="unknown judged")
    assert ready["reason"] == "ReferenceNotFound"
    assert "nobody (its adapters: shell-tasks)" in ready["message"]
    assert not loop.jobs("benchmark-run", "unknown")
