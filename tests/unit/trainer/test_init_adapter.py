"""Going on from an adapter: it starts where that one ended, and its shape and base must be that one's."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trainer_job import Job, chat_row
from whetstone_api.adapter_artifact import Lineage, Probe
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_artifacts.folders import adapter_digest

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that has published the first adapter."""
    job = Job(tmp_path_factory.mktemp("first"), model_folder)
    assert job.run("train") == 0, job.log
    return job


@pytest.fixture
def second(first: Job, tmp_path: Path, model_folder: Path) -> Job:
    """A job that goes on from a copy of the first adapter, with a step that hardly changes it."""
    shutil.copytree(first.output, tmp_path / "first")
    job = Job(tmp_path, model_folder)
    job.write([chat_row("other", "rows", task="sha256:9")])
    job.values["initAdapterPath"] = str(tmp_path / "first")
    job.values["initAdapterSource"] = "pvc://adapters/first"
    job.values["hyperparameters"] = {"maxSteps": 2, "batchSize": 1, "learningRate": "1e-7"}
    job.values["plan"] = {}
    return job


def largest(folder: Path) -> float:
    """Return the largest absolute value of an adapter's lora_B."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "adapter_model.safetensors")
    return max(float(tensor.abs().max()) for name, tensor in tensors.items() if ".lora_B." in name)


def test_training_starts_where_the_first_adapter_ended(first: Job, second: Job) -> None:
    second.values["lora"]["dropout"] = "0.3"
    assert second.run("train") == 0, second.log
    assert json.loads((second.output / "adapter_config.json").read_bytes())["lora_dropout"] == 0.3
    assert largest(second.output) == pytest.approx(largest(first.output), rel=1e-2)
    probe = Probe.model_validate_json((second.output / "probe.json").read_bytes())
    assert (
        max(abs(a - b) for a, b in zip(probe.cases[0].adapter_logprobs, probe.cases[0].base_logprobs, strict=True))
        > 0.1
    )


def test_lineage_names_the_first_adapter_and_the_tasks_of_both(first: Job, second: Job) -> None:
    assert second.run("train") == 0, second.log
    lineage = Lineage.model_validate_json((second.output / "lineage.json").read_bytes())
    assert lineage.recipe["initAdapter"] == adapter_digest(first.output)
    assert lineage.task_digests == [*(f"sha256:{number}" for number in range(4)), "sha256:9"]


def test_killed_training_goes_on_from_its_checkpoint_not_from_the_first_adapter(second: Job) -> None:
    second.values["hyperparameters"]["learningRate"] = "1e-2"
    second.values["checkpoint"] = {"everySteps": 1, "keep": 2}
    assert second.run("train", WHETSTONE_FAILPOINT="after-checkpoint:1") != 0
    assert second.run("train") == 0, second.log
    killed = adapter_digest(second.output)
    shutil.rmtree(second.output)
    shutil.rmtree(second.workspace)
    assert second.run("train") == 0, second.log
    assert adapter_digest(second.output) == killed


def remove(job: Job) -> None:
    """Take the first adapter away."""
    shutil.rmtree(job.values["initAdapterPath"])


def damage(job: Job) -> None:
    """Change a byte of its weights."""
    path = Path(job.values["initAdapterPath"]) / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def other_base(job: Job) -> None:
    """Train on another base model."""
    base = job.folder / "base"
    shutil.copytree(job.values["baseModelPath"], base)
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "rope_theta": 5000.0}))
    job.values["baseModelPath"] = str(base)


def other_rank(job: Job) -> None:
    """Ask for another rank."""
    job.values["lora"]["rank"] = 8


def other_modules(job: Job) -> None:
    """Ask for other modules."""
    job.values["lora"]["targetModules"] = ["q_proj"]


@pytest.mark.parametrize(
    ("spoil", "reason", "words"),
    [
        (remove, "AdapterNotFound", "does not exist"),
        (damage, "DigestMismatch", "restore it or publish again"),
        (other_base, "BaseMismatch", "pvc://adapters/first"),
        (other_rank, "InvalidSpec", "spec.lora.rank says 8; an adapter keeps its shape: write 4 there"),
        (other_modules, "InvalidSpec", "leave spec.lora.targetModules out"),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused_before_anything_is_trained(
    second: Job, spoil: Callable[[Job], None], reason: str, words: str
) -> None:
    spoil(second)
    assert second.run("prepare") == EXIT_USER_ERROR, second.log
    assert second.report.reason == reason
    assert second.report.message.startswith("spec.initAdapter (pvc://adapters/first): ")
    assert words in second.report.message
