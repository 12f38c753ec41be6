"""`whetstone estimate`: memory of a manifest's objects before any device is asked for."""

import json
from pathlib import Path

import pytest
import yaml
from whetstone_cli.__main__ import EXIT_INVALID, EXIT_USAGE, main

CHECKOUT = Path(__file__).parents[3]
LOOP = CHECKOUT / "examples" / "loop"
CONFIG = {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def run(*arguments: object) -> int:
    return main(["estimate", *map(str, arguments)])


def test_training_is_told_between_fastest_and_most_sparing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-f", LOOP / "training.yaml", "--model-config", config, "--longest", 2048) == 0
    text = capsys.readouterr().out
    assert "LoRATrainingJob/shell-tasks, fastest: micro-batch" in text
    assert "most sparing: micro-batch 1, rows of 2048 tokens, with checkpointing" in text
    assert text.count("together") == 2


def test_longer_rows_take_more(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    totals = []
    for longest in (1024, 4096):
        arguments = ["-f", LOOP / "training.yaml", "--model-config", config, "--longest", longest, "--output", "json"]
        assert run(*arguments) == 0
        totals.append(json.loads(capsys.readouterr().out)[0]["total"])
    assert totals[0] < totals[1]


def test_with_the_devices_memory_the_best_that_fits_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-f", LOOP / "training.yaml", "--model-config", config, "--longest", 8192]
    assert run(*arguments, "--memory", "80Gi", "--output", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["what"].startswith("fastest in 80.00Gi")
    assert found["total"] == sum(found["bytes"].values()) < 80 << 30
    assert run(*arguments, "--memory", "4G") == EXIT_INVALID
    assert "more than fits into 3.73Gi" in capsys.readouterr().err


def test_server_is_told_too(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-f", LOOP / "server.yaml", "--model-config", config) == 0
    text = capsys.readouterr().out
    assert "ModelServer/smollm2, 2 adapters of rank 16, a request of" in text
    assert "one request" in text


def test_what_is_wrong_is_said(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text((LOOP / "training.yaml").read_text().replace("workspace:", "workspaec:"))
    assert run("-f", broken, "--model-config", config) == EXIT_INVALID
    assert "unknown field" in capsys.readouterr().out
    assert run("-f", tmp_path / "absent.yaml", "--model-config", config) == EXIT_USAGE
    config.write_text(json.dumps({**CONFIG, "num_local_experts": 8}))
    assert run("-f", LOOP / "training.yaml", "--model-config", config) == EXIT_INVALID
    assert "no decoder with gated dense layers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "least", "most"),
    [
        ({}, 0, 0),
        ({"initAdapter": {"source": {"uri": "pvc://a/b"}}}, 1 << 26, 1 << 28),
        ({"initAdapter": {"source": {"uri": "pvc://a/b"}, "mode": "MergeThenNew"}}, 0, 0),
        ({"preference": {"reference": {"adapter": {"source": {"uri": "pvc://a/b"}}}}}, 1 << 26, 1 << 28),
        ({"preference": {"reference": {"model": {"uri": "pvc://a/b"}}}}, 6 * 10**9, 7 * 10**9),
    ],
)
def test_reference_of_pairs_is_counted(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, object], least: int, most: int
) -> None:
    document = yaml.safe_load((LOOP / "training.yaml").read_text())
    document["spec"] = {**document["spec"], "method": "DPO", **more}
    (tmp_path / "dpo.json").write_text(json.dumps(document))
    arguments = ["-f", tmp_path / "dpo.json", "--model-config", config, "--longest", 512, "--output", "json"]
    assert run(*arguments) == 0
    parts = json.loads(capsys.readouterr().out)[0]["bytes"]
    assert least <= parts.get("reference", 0) <= most
