"""The effect probe: does a loaded adapter change the engine's output as it changed the trainer's?

Compared is, token by token of a recorded answer, the log-probability under adapter minus that under base, measured in
one engine, with the same difference as recorded at training time. Differences cancel what both measurements share
(kernels, attention backend), so the tolerances can be small.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone_api.adapter_artifact import Probe
from whetstone_api.pod_state import BaseState, Effect
from whetstone_api.vocabulary import Reason

NOISE_FLOOR = {"float32": 5e-4, "float16": 2e-2, "bfloat16": 0.1}
"""Least noise assumed per token, in nats. Trainer and engine use different kernels, and an engine under load batches
differently. `bench/probe_noise.py` measures it, docs/verified-effect.md holds what it found."""
EFFECT_OVER_NOISE = 10.0
"""A recorded effect below this many times the noise cannot be told from none."""
TOLERANCE_OVER_NOISE = 4.0
"""Absolute part of a token's tolerance: each of the four measurements that enter a comparison brings the noise once."""
RELATIVE_TOLERANCE = {"float32": 2e-3, "float16": 2e-2, "bfloat16": 0.1}
"""Relative part of the tolerance: rounding grows with the size of an effect."""
FOREIGN_TEXT = (
    "Question: How do I list all files in the current folder, with their sizes?\n"
    "Answer: Run `ls -l -a`. The fifth column is the size in bytes."
)
"""Prompt for adapters that bring no probe; it mixes prose and a command."""
LEAST_CHANGE = 1e-6
"""A change below this, in nats, is none, when the engine repeats itself exactly."""
NOT_FINITE = "the engine gives log-probabilities that are not finite"
CONSTANT_BASE = 1e-6
"""A base whose tokens differ in log-probability by less, in nats, does not look at what it reads."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a probe found.

    Args:
        effect: The verdict.
        message: Sentence with the figures.
    """

    effect: Effect
    message: str

    @property
    def reason(self) -> str:
        """The condition's reason; empty while nothing is wrong."""
        names = {Effect.NO_EFFECT: Reason.NO_EFFECT, Effect.DIVERGENT: Reason.DIVERGENT}
        return names.get(self.effect, "")


def engine_dtype(flag: str, model_config: Mapping[str, Any]) -> str | None:
    """Return the engine's precision, or None where it depends on the hardware.

    Args:
        flag: The engine's `--dtype`.
        model_config: The model's `config.json`; `auto` follows it, except that vLLM halves float32 as the device likes.
    """
    if flag != "auto":
        return flag
    recorded = model_config.get("dtype") or model_config.get("torch_dtype")
    return recorded if recorded in ("float16", "bfloat16") else None


def recorded_effects(probe: Probe) -> list[float]:
    """Return adapter minus base as recorded, for every answer token of every case."""
    return [
        adapter - base
        for case in probe.cases
        for adapter, base in zip(case.adapter_logprobs, case.base_logprobs, strict=True)
    ]


def rms(values: Sequence[float]) -> float:
    """Return the root of the mean square."""
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else 0.0


def answer_logprobs(probe: Probe, measured: Sequence[Sequence[float]]) -> list[float]:
    """Return the log-probabilities of all answer tokens, in the order of `recorded_effects`.

    Args:
        probe: What the trainer recorded.
        measured: Of each case, the log-probability of every token but the first, nats.
    """
    return [
        value for case, values in zip(probe.cases, measured, strict=True) for value in values[case.answer_start - 1 :]
    ]


def judge_effect(probe: Probe, *, measured: Sequence[float], dtype: str | None) -> Verdict:
    """Judge an adapter that brings a probe.

    Args:
        probe: What the trainer recorded.
        measured: Adapter minus base in this engine, in the order of `recorded_effects`, nats.
        dtype: The engine's precision, or None when it is not known.
    """
    recorded = recorded_effects(probe)
    if not all(map(math.isfinite, measured)):
        return Verdict(effect=Effect.DIVERGENT, message=NOT_FINITE)
    size = max((abs(value) for value in recorded), default=0.0)
    found = max((abs(value) for value in measured), default=0.0)
    if found <= LEAST_CHANGE and size >= EFFECT_OVER_NOISE * max(_noise(probe), _floor(dtype)):
        return Verdict(
            effect=Effect.NO_EFFECT, message=f"the output is the base model's; recorded were {size:.3g} nats"
        )
    if dtype != probe.dtype:
        return Verdict(
            effect=Effect.UNKNOWN,
            message=f"recorded in {probe.dtype}, the engine computes in {dtype or 'a precision of its own choice'}",
        )
    noise = _noise(probe)
    if size < EFFECT_OVER_NOISE * noise:
        return Verdict(
            effect=Effect.UNKNOWN,
            message=f"the recorded effect of {size:.3g} nats is below {EFFECT_OVER_NOISE:g} x the noise {noise:.3g}",
        )
    if found <= noise:
        return Verdict(
            effect=Effect.NO_EFFECT,
            message=f"the output is the base model's: it changes by {found:.3g} nats, recorded were {size:.3g}",
        )
    relative = _relative(probe.dtype)
    worst, expected = _worst(measured, recorded, relative=relative)
    rest = rms([one - other for one, other in zip(measured, recorded, strict=True)])
    figures = (
        f"{len(recorded)} tokens, mean deviation {rest:.2g} nats of {rms(recorded):.3g},"
        f" at the worst {abs(worst - expected):.2g} of {abs(expected):.3g}"
    )
    outside = abs(worst - expected) > TOLERANCE_OVER_NOISE * noise + relative * abs(expected)
    # Of one token the mean is no more exact than the token; of many, noise averages out and a wrong scaling does not.
    mean_over_noise = 1 + (TOLERANCE_OVER_NOISE - 1) / math.sqrt(len(recorded))
    if outside or rest > mean_over_noise * noise + relative * rms(recorded):
        return Verdict(effect=Effect.DIVERGENT, message=f"the output is not the one recorded at training: {figures}")
    return Verdict(effect=Effect.VERIFIED, message=figures)


def judge_foreign(first: Sequence[float], again: Sequence[float], adapter: Sequence[float]) -> Verdict:
    """Judge an adapter without a probe: only whether it changes anything.

    Args:
        first: Log-probabilities under the base, nats.
        again: The same, measured once more: their difference is the noise.
        adapter: The same tokens under the adapter.
    """
    noise = max(abs(a - b) for a, b in zip(first, again, strict=True))
    found = max(abs(a - b) for a, b in zip(adapter, first, strict=True))
    if found > max(TOLERANCE_OVER_NOISE * noise, LEAST_CHANGE):
        return Verdict(
            effect=Effect.CHANGED, message=f"the output changes by up to {found:.3g} nats; nothing was recorded"
        )
    return Verdict(
        effect=Effect.NO_EFFECT,
        message=f"the output is the base model's: it changes by {found:.3g} nats, two equal requests by {noise:.3g}",
    )


def judge_base_alone(measured: Sequence[float]) -> BaseState:
    """Judge the engine's base model where nothing was recorded: only what no model computes is wrong.

    Args:
        measured: Log-probabilities of a plain text's tokens, nats.
    """
    if not all(map(math.isfinite, measured)):
        return _wrong_base(f"the base: {NOT_FINITE}")
    if len(measured) > 1 and max(measured) - min(measured) < CONSTANT_BASE:
        return _wrong_base(f"the base finds every token equally likely ({measured[0]:.3g} nats)")
    return BaseState()


def _wrong_base(what: str) -> BaseState:
    message = f"{what}; set spec.engine.dtype to Float32, or look at the model's files and the engine's image"
    return BaseState(status="False", reason=Reason.DIVERGENT, message=message)


def judge_base(probe: Probe, *, measured: Sequence[float], dtype: str | None) -> BaseState:
    """Judge the engine's base model by the base's part of a probe.

    Args:
        probe: A probe that was recorded on the same base model.
        measured: The engine's log-probabilities of all answer tokens under the base, nats.
        dtype: The engine's precision, or None when it is not known.
    """
    if not all(map(math.isfinite, measured)):
        return _wrong_base(f"the base: {NOT_FINITE}")
    if dtype != probe.dtype:
        return BaseState(message=f"the probe at hand was recorded in {probe.dtype}, not in the engine's precision")
    noise = _noise(probe)
    recorded = [value for case in probe.cases for value in case.base_logprobs]
    relative = _relative(probe.dtype)
    worst = _worst(measured, recorded, relative=relative)
    figures = f"{worst[0]:.3g} measured, {worst[1]:.3g} recorded at the worst of {len(recorded)} tokens"
    if abs(worst[0] - worst[1]) > TOLERANCE_OVER_NOISE * noise + relative * abs(worst[1]):
        return _wrong_base(f"the engine computes another base model than the trainer: {figures}")
    return BaseState(status="True", reason=Reason.VERIFIED, message=figures)


def _noise(probe: Probe) -> float:
    return max(probe.noise, _floor(probe.dtype))


def _floor(dtype: str | None) -> float:
    """Return the least noise assumed in a precision; of one that is not known, the most."""
    return NOISE_FLOOR.get(dtype or "", max(NOISE_FLOOR.values()))


def _relative(dtype: str) -> float:
    return RELATIVE_TOLERANCE.get(dtype, max(RELATIVE_TOLERANCE.values()))


def _worst(measured: Sequence[float], recorded: Sequence[float], *, relative: float) -> tuple[float, float]:
    """Return the pair that is furthest apart, beyond what its size allows."""
    return max(
        zip(measured, recorded, strict=True),
        key=lambda pair: abs(pair[0] - pair[1]) - relative * abs(pair[1]),
    )
