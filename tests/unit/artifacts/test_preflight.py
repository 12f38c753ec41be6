"""Adapter preflight: each refusal names the file, the field and the fix."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapters import MODEL_CONFIG, MODULE, lineage, lora_tensors, make_adapter
from whetstone_api.adapter_artifact import CONFIG_FILE, WEIGHTS_FILE
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.preflight import check_adapter


def check(folder: Path, *, base: str | None = "sha256:base", max_rank: int = 16) -> None:
    check_adapter(folder, base_fingerprint=base, max_rank=max_rank, model_config=MODEL_CONFIG)


def test_good_adapter_passes(tmp_path: Path) -> None:
    make_adapter(tmp_path, history=lineage())
    check(tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        {"r": 16},
        {"rank_pattern": {"q_proj": 16}, "alpha_pattern": {"q_proj": 32}},
        {"use_rslora": True},
        {"modules_to_save": ["score"]},
        {"modules_to_save": None, "layer_replication": None, "trainable_token_indices": None, "use_bdlora": None},
        {"lora_bias": False, "use_dora": False, "use_qalora": False, "alora_invocation_tokens": None},
        *({"init_lora_weights": init} for init in (True, False, "gaussian", "eva", "orthogonal", "mica", "lora_ga")),
        {"a_field_of_the_future": 1},
    ],
    ids=str,
)
def test_config_the_engine_can_serve_passes(tmp_path: Path, config: dict[str, Any]) -> None:
    make_adapter(tmp_path, config=config)
    check(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason", "words"),
    [
        ({"r": 32}, Reason.RANK_TOO_HIGH, "spec.adapterCapacity.maxRank"),
        ({"rank_pattern": {"q_proj": 64}}, Reason.RANK_TOO_HIGH, r"rank_pattern\[q_proj\] is 64"),
        ({"r": 0}, Reason.ADAPTER_INVALID, "not a positive number"),
        ({"peft_type": "IA3"}, Reason.ADAPTER_INVALID, "only LORA"),
        ({"use_dora": True}, Reason.ADAPTER_INVALID, "use_dora=false"),
        ({"lora_bias": True}, Reason.ADAPTER_INVALID, "lora_bias=false"),
        ({"alora_invocation_tokens": [1, 2]}, Reason.ADAPTER_INVALID, "without alora_invocation_tokens"),
        ({"use_qalora": True}, Reason.ADAPTER_INVALID, "use_qalora=false"),
        ({"use_bdlora": {"nblocks": 2}}, Reason.ADAPTER_INVALID, "without use_bdlora"),
        ({"trainable_token_indices": [7]}, Reason.ADAPTER_INVALID, "without trainable_token_indices"),
        ({"trainable_token_indices": {"embed_tokens": [7]}}, Reason.ADAPTER_INVALID, "trained token embeddings"),
        ({"bias": "lora_only"}, Reason.ADAPTER_INVALID, "bias='none'"),
        ({"modules_to_save": ["score", "embed_tokens"]}, Reason.ADAPTER_INVALID, r"\['embed_tokens'\]"),
        *(
            ({"init_lora_weights": init}, Reason.ADAPTER_INVALID, f"is '{init}', which changes the base")
            for init in ("pissa", "olora", "OLoRA", "corda", "loftq")
        ),
        ({"bias": "all"}, Reason.ADAPTER_INVALID, "bias='none'"),
        ({"modules_to_save": ["lm_head"]}, Reason.ADAPTER_INVALID, "modules_to_save names"),
        ({"init_lora_weights": "pissa_niter_4"}, Reason.ADAPTER_INVALID, "changes the base"),
        ({"layer_replication": [[0, 2]]}, Reason.ADAPTER_INVALID, "layer_replication"),
    ],
)
def test_config_the_engine_cannot_serve(tmp_path: Path, config: dict[str, Any], reason: Reason, words: str) -> None:
    make_adapter(tmp_path, config=config)
    with pytest.raises(ArtifactError, match=words) as caught:
        check(tmp_path)
    assert caught.value.reason is reason


def broken(value: float, dtype: str) -> dict[str, Any]:
    tensors = lora_tensors()
    name = f"{MODULE.format(layer=0)}.lora_B.weight"
    tensors[name] = tensors[name].astype(dtype)
    tensors[name][3, 2] = value
    return tensors


@pytest.mark.parametrize(
    ("tensors", "reason", "words"),
    [
        ({}, Reason.ADAPTER_INVALID, "no tensors"),
        (broken(float("nan"), "float32"), Reason.ADAPTER_INVALID, "NaN or infinity"),
        (broken(float("inf"), "float16"), Reason.ADAPTER_INVALID, "lora_B.weight holds NaN"),
        (lora_tensors(rank=32), Reason.RANK_TOO_HIGH, "rank 32"),
        (lora_tensors(layer=2), Reason.BASE_MISMATCH, "layer 2"),
        (dict(list(lora_tensors().items())[:1]), Reason.ADAPTER_INVALID, "only lora_A"),
        ({"x.embed_tokens.base_layer.weight": np.ones((2, 2), np.float32)}, Reason.ADAPTER_INVALID, "embedding"),
        ({"x.q_proj.weight": np.ones((2, 2), np.float32)}, Reason.ADAPTER_INVALID, "not a LoRA tensor"),
        ({"x.lora_A.weight": np.ones((2, 2), np.int8)}, Reason.ADAPTER_INVALID, "type I8"),
        (
            {
                f"{MODULE.format(layer=0)}.lora_A.weight": np.ones((4, 9), np.float32),
                f"{MODULE.format(layer=0)}.lora_B.weight": np.ones((8, 4), np.float32),
            },
            Reason.BASE_MISMATCH,
            "width 9, the server's model 8",
        ),
    ],
)
def test_weights_the_engine_cannot_serve(tmp_path: Path, tensors: dict[str, Any], reason: Reason, words: str) -> None:
    make_adapter(tmp_path, tensors=tensors)
    with pytest.raises(ArtifactError, match=words) as caught:
        check(tmp_path)
    assert caught.value.reason is reason


@pytest.mark.parametrize("name", ["new_embeddings.safetensors", "new_embeddings.bin"])
def test_added_embeddings_are_refused_though_the_engine_would_skip_them(tmp_path: Path, name: str) -> None:
    make_adapter(tmp_path)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ArtifactError, match=rf"{name}: added embeddings cannot be served") as caught:
        check(tmp_path)
    assert caught.value.reason is Reason.ADAPTER_INVALID


@pytest.mark.parametrize("missing", [CONFIG_FILE, WEIGHTS_FILE])
def test_adapter_without_one_of_its_files_is_refused(tmp_path: Path, missing: str) -> None:
    make_adapter(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(ArtifactError, match=f"{missing}: is missing"):
        check(tmp_path)


def test_bfloat16_infinity_is_seen(tmp_path: Path) -> None:
    make_adapter(tmp_path, tensors=lora_tensors())
    header = (
        b'{"m.lora_A.weight":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},'
        b'"m.lora_B.weight":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]}}'
    )
    finite, infinite = b"\x80\x3f" * 4, b"\x80\x3f" * 3 + b"\x80\x7f"
    path = tmp_path / WEIGHTS_FILE
    path.write_bytes(len(header).to_bytes(8, "little") + header + finite)
    check(tmp_path)
    path.write_bytes(len(header).to_bytes(8, "little") + header + infinite)
    with pytest.raises(ArtifactError, match=r"m\.lora_B\.weight holds NaN or infinity"):
        check(tmp_path)


def test_file_cut_short_is_refused(tmp_path: Path) -> None:
    make_adapter(tmp_path)
    path = tmp_path / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ArtifactError, match="cut short"):
        check(tmp_path)
    path.write_bytes(b"PK\x03\x04 not safetensors at all")
    with pytest.raises(ArtifactError, match="not a safetensors file"):
        check(tmp_path)


def test_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    make_adapter(tmp_path, history=lineage(fingerprint="sha256:elsewhere"))
    with pytest.raises(ArtifactError, match=r"base\.fingerprint is sha256:elsewhere") as caught:
        check(tmp_path)
    assert caught.value.reason is Reason.BASE_MISMATCH
    check(tmp_path, base=None)
