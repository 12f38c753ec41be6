"""`whetstone validate` and `whetstone digest`."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.adapters import make_adapter, make_model
from whetstone_artifacts.folders import adapter_digest
from whetstone_artifacts.models import model_digest
from whetstone_cli.__main__ import EXIT_INVALID, EXIT_USAGE, main
from whetstone_cli.manifests import check_object, check_text

CHECKOUT = Path(__file__).parents[3]
JOB: dict[str, Any] = {
    "apiVersion": "whetstone.dev/v1alpha1",
    "kind": "LoRATrainingJob",
    "metadata": {"name": "train"},
    "spec": {
        "baseModel": {"source": {"uri": "pvc://models/base"}},
        "datasets": [{"name": "d", "source": {"uri": "pvc://data/train.jsonl"}}],
        "workspace": {"claimName": "work"},
        "output": {"adapter": {"uri": "pvc://adapters/a"}},
    },
}


def job(**spec: Any) -> dict[str, Any]:
    changed = copy.deepcopy(JOB)
    changed["spec"] |= spec
    return changed


def test_a_right_object_has_no_problem() -> None:
    assert check_object(JOB) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (job(loar={}), "spec.loar: unknown field; did you mean lora?"),
        (job(lora={"rank": 1024}), "spec.lora.rank: Input should be less than or equal to 512"),
        (job(lora={"rank": "16"}), "spec.lora.rank: Input should be a valid integer"),
        (job(baseModel={}), "spec.baseModel: give exactly one of modelServerRef and source"),
        (job(baseModel={"source": {"uri": "hf://org/model"}}), "spec.baseModel.source.uri: String should match"),
        (job(output={"adapter": {"uri": "pvc://claim"}}), "spec.output: output.adapter.uri must name a folder"),
        (job(datasets=JOB["spec"]["datasets"] * 2), "spec.datasets[1]: d is there twice; rename one of the two"),
        (job(resources={"limits": {"memory": "4GiB"}}), "spec.resources.limits.memory: String should match"),
        ({**JOB, "metadata": {"name": "a" * 41}}, "metadata.name must be at most 40 characters"),
        ({**JOB, "kind": "LoraTrainingJob"}, "kind: LoraTrainingJob is no kind of whetstone.dev"),
        ({**JOB, "apiVersion": "whetstone.dev/v1"}, "apiVersion: whetstone.dev/v1 is not served"),
    ],
)
def test_a_wrong_object_is_told_field_and_fix(changed: dict[str, Any], words: str) -> None:
    assert any(problem.startswith(words) for problem in check_object(changed)), check_object(changed)


def server(**engine: Any) -> dict[str, Any]:
    model = {"source": {"uri": "pvc://models/base"}, "servedName": "base"}
    spec = {"model": model, "engine": engine}
    return {"apiVersion": "whetstone.dev/v1alpha1", "kind": "ModelServer", "metadata": {"name": "s"}, "spec": spec}


def test_arguments_of_the_engine_are_judged_as_the_api_server_judges_them() -> None:
    assert check_object(server(extraArgs=["--max-num-seqs=8", "-O3"])) == []
    for argument in ("--served_model_name=x", "--middlew=y", "--no-enable-lora"):
        [problem] = check_object(server(extraArgs=[argument]))
        assert problem.startswith("spec.engine: extraArgs must not set"), argument


def test_a_number_without_quotes_is_refused_as_the_api_server_refuses_it() -> None:
    text = yaml.safe_dump(JOB) + "  hyperparameters: {learningRate: 2e-4}\n"
    assert "spec.hyperparameters.learningRate: Input should be a valid string" in check_text(text).problems[0]


def test_objects_of_other_kinds_are_skipped() -> None:
    report = check_text("apiVersion: v1\nkind: ConfigMap\n---\n" + yaml.safe_dump(JOB))
    assert (report.ours, report.valid, report.skipped) == (1, 1, 1)


MANIFESTS = sorted(path for path in (CHECKOUT / "examples").rglob("*.yaml") if path.name != "openapi.yaml")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert check_text(path.read_text()).problems == []


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, broken = (tmp_path / name for name in ("good.yaml", "bad.yaml", "broken.yaml"))
    good.write_text(yaml.safe_dump(JOB))
    bad.write_text(yaml.safe_dump(job(method="GRPO")))
    broken.write_text("{")
    assert main(["validate", str(good)]) == 0
    assert main(["validate", str(good), str(bad)]) == EXIT_INVALID
    assert f"{bad}: LoRATrainingJob/train: spec.method: Input should be 'SFT' or 'DPO'" in capsys.readouterr().out
    assert main(["validate", str(broken)]) == EXIT_USAGE
    assert main(["validate", str(tmp_path / "absent.yaml")]) == EXIT_USAGE


def test_digest_is_what_the_server_computes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_adapter(tmp_path / "a")
    assert main(["digest", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.strip() == adapter_digest(tmp_path / "a")


def test_digest_of_no_adapter_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digest", str(tmp_path)]) == EXIT_INVALID
    assert f"{tmp_path} does not exist or is empty" in capsys.readouterr().err


def test_digest_of_a_model_covers_what_is_fetched_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "m")
    assert main(["digest", str(tmp_path / "m")]) == 0
    first = capsys.readouterr().out.strip()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"pickle")
    assert main(["digest", str(tmp_path / "m")]) == 0
    assert capsys.readouterr().out.strip() == first == model_digest(tmp_path / "m")
    (tmp_path / "m" / "tokenizer.json").write_text("[]")
    assert main(["digest", str(tmp_path / "m")]) == 0
    assert capsys.readouterr().out.strip() != first
