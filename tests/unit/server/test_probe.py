"""Verdicts: what the probe makes of recorded and measured log-probabilities."""

import json
from pathlib import Path

import pytest
from support.fake_vllm import record_probe
from whetstone_api.adapter_artifact import PROBE_FILE, Probe
from whetstone_api.pod_state import Effect
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_server import probe
from whetstone_server.held import read_probe

RECORD = record_probe(effect=0.5)
EFFECTS = probe.recorded_effects(RECORD)
BASES = RECORD.cases[0].base_logprobs
TOLERANCE = probe.TOLERANCE_OVER_NOISE * probe.NOISE_FLOOR["float32"] + probe.RELATIVE_TOLERANCE["float32"] * 0.5


def judged(measured: list[float], *, record: Probe = RECORD, dtype: str | None = "float32") -> Effect:
    return probe.judge_effect(record, measured=measured, dtype=dtype).effect


def test_what_was_recorded_is_verified() -> None:
    assert judged(EFFECTS) is Effect.VERIFIED


@pytest.mark.parametrize("sign", [1, -1])
def test_one_token_outside_the_tolerance_is_divergent(sign: int) -> None:
    inside, outside = ([*EFFECTS[:-1], EFFECTS[-1] + sign * TOLERANCE * share] for share in (0.99, 1.01))
    assert judged(inside) is Effect.VERIFIED
    assert judged(outside) is Effect.DIVERGENT


@pytest.mark.parametrize(
    ("dtype", "passes", "caught"), [("float32", 0.002, 0.005), ("float16", 0.02, 0.1), ("bfloat16", 0.05, 0.25)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_scaling_is_caught_from_a_little_above_the_noise_on(
    dtype: str, passes: float, caught: float, sign: int
) -> None:
    record = record_probe(effect=2.0, dtype=dtype)
    recorded = probe.recorded_effects(record)
    verdicts = [
        judged([value * (1 + sign * by) for value in recorded], record=record, dtype=dtype) for by in (passes, caught)
    ]
    assert verdicts == [Effect.VERIFIED, Effect.DIVERGENT]


def test_deviation_of_all_tokens_is_caught_where_each_alone_would_pass() -> None:
    shift = 0.9 * TOLERANCE
    assert judged([*EFFECTS[:-1], EFFECTS[-1] + shift]) is Effect.VERIFIED
    assert judged([value + shift for value in EFFECTS]) is Effect.DIVERGENT


def test_effect_in_the_wrong_direction_is_divergent() -> None:
    assert judged([-value for value in EFFECTS]) is Effect.DIVERGENT


def test_output_of_the_base_is_no_effect() -> None:
    assert judged([0.0] * len(EFFECTS)) is Effect.NO_EFFECT
    verdict = probe.judge_effect(RECORD, measured=[0.0] * len(EFFECTS), dtype="float32")
    assert verdict.reason == Reason.NO_EFFECT
    assert "0.5" in verdict.message


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_that_are_not_finite_are_never_verified(wrong: float, dtype: str) -> None:
    assert judged([wrong, *EFFECTS[1:]], dtype=dtype) is Effect.DIVERGENT
    assert probe.judge_base(RECORD, measured=[wrong, *BASES[1:]], dtype=dtype).status == "False"


@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_another_precision_cannot_be_judged(dtype: str | None) -> None:
    assert judged([0.0] * len(EFFECTS), dtype=dtype) is Effect.UNKNOWN
    assert probe.judge_base(RECORD, measured=[0.0] * len(BASES), dtype=dtype).status == "Unknown"


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8", None])
def test_no_change_at_all_is_no_effect_in_any_precision(dtype: str | None) -> None:
    record = record_probe(effect=1.1)
    assert judged([0.0] * len(EFFECTS), record=record, dtype=dtype) is Effect.NO_EFFECT
    assert judged([0.001] * len(EFFECTS), record=record, dtype=dtype) is Effect.UNKNOWN
    assert judged([0.0] * len(EFFECTS), record=record_probe(effect=0.7), dtype=dtype) is Effect.UNKNOWN


def test_effect_must_be_ten_times_the_noise_of_its_precision() -> None:
    for dtype, floor in probe.NOISE_FLOOR.items():
        least = probe.EFFECT_OVER_NOISE * floor
        for share, expected in ((0.9, Effect.UNKNOWN), (1.1, Effect.VERIFIED)):
            record = record_probe(effect=least * share, dtype=dtype)
            assert judged(probe.recorded_effects(record), record=record, dtype=dtype) is expected


def test_noise_that_was_recorded_widens_the_tolerance() -> None:
    noisy = RECORD.model_copy(update={"noise": 0.04})
    measured = [*EFFECTS[:-1], EFFECTS[-1] + 0.1]
    assert judged(measured, record=noisy) is Effect.VERIFIED
    assert judged(measured) is Effect.DIVERGENT


def test_base_is_the_trainers_or_not() -> None:
    assert probe.judge_base(RECORD, measured=BASES, dtype="float32").status == "True"
    other = probe.judge_base(RECORD, measured=[value - 2 for value in BASES], dtype="float32")
    assert (other.status, other.reason) == ("False", Reason.DIVERGENT)


@pytest.mark.parametrize(
    ("again", "adapter", "effect"),
    [
        ([-1.0, -2.0], [-1.0, -2.5], Effect.CHANGED),
        ([-1.0, -2.0], [-1.0, -2.0], Effect.NO_EFFECT),
        ([-1.1, -2.0], [-1.0, -2.3], Effect.NO_EFFECT),
        ([-1.1, -2.0], [-1.0, -2.5], Effect.CHANGED),
    ],
    ids=["changed", "same", "within the noise", "above the noise"],
)
def test_foreign_adapter_must_change_more_than_the_engine_itself(
    again: list[float], adapter: list[float], effect: Effect
) -> None:
    assert probe.judge_foreign([-1.0, -2.0], again, adapter).effect is effect


@pytest.mark.parametrize(
    ("flag", "config", "dtype"),
    [
        ("float32", {"dtype": "bfloat16"}, "float32"),
        ("auto", {"dtype": "bfloat16"}, "bfloat16"),
        ("auto", {"torch_dtype": "float16"}, "float16"),
        ("auto", {"torch_dtype": "float32"}, None),
        ("auto", {}, None),
    ],
)
def test_precision_follows_the_flag_and_then_the_model(flag: str, config: dict[str, str], dtype: str | None) -> None:
    assert probe.engine_dtype(flag, config) == dtype


def test_folder_without_a_probe_has_none(tmp_path: Path) -> None:
    assert read_probe(tmp_path) is None


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"answerStart": 0}, "cases[0]"),
        ({"answerStart": 7}, "cases[0]"),
        ({"adapterLogprobs": [-1.0]}, "cases[0]"),
        ({"tokenIds": "x"}, "not a probe"),
    ],
    ids=["no prompt", "too few tokens", "too few values", "wrong type"],
)
def test_probe_that_does_not_fit_together_is_invalid(tmp_path: Path, case: dict[str, object], words: str) -> None:
    document = json.loads(RECORD.to_json())
    document["cases"][0] |= case
    (tmp_path / PROBE_FILE).write_text(json.dumps(document))
    with pytest.raises(ArtifactError) as caught:
        read_probe(tmp_path)
    assert caught.value.reason == Reason.ADAPTER_INVALID
    assert words in caught.value.message
