"""Adapter preflight: each refusal names the file, the field and the fix."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapters import MODEL_CONFIG, MODULE, lineage, lora_tensors, make_adapter
from whetstone_api.adapter_artifact import WEIGHTS_FILE
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.preflight import check_adapter


def check(folder: Path, *, base: str | None = "sha256:base", max_rank: int = 16) -> None:
    check_adapter(folder, base_fingerprint=base, max_rank=max_rank, model_config=MODEL_CONFIG)


def test_good_adapter_passes(tmp_path: Path) -> None:
    make_adapter(tmp_path, history=lineage())
    check(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason", "words"),
    [
        ({"r": 32}, Reason.RANK_TOO_HIGH, "spec.adapterCapacity.maxRank"),
        ({"rank_pattern": {"q_proj": 64}}, Reason.RANK_TOO_HIGH, r"rank_pattern\[q_proj\] is 64"),
        ({"r": 0}, Reason.ADAPTER_INVALID, "not a positive number"),
        ({"peft_type": "IA3"}, Reason.ADAPTER_INVALID, "only LORA"),
        ({"use_dora": True}, Reason.ADAPTER_INVALID, "use_dora=false"),
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
