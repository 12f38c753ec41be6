"""Preference training: what a LoRATrainingJob with method DPO learns from pairs of a better and a worse answer."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, LocalRef, Rule
from whetstone_api.source import Source
from whetstone_api.wire import WireModel


class Granularity(StrEnum):
    """What a pair compares."""

    STEP = "Step"
    """One turn of the assistant."""
    TRAJECTORY = "Trajectory"
    """Many messages: several turns of the assistant, with the results of its tools between them."""


class LossType(StrEnum):
    """Loss on a pair. With `d` = how much more the policy raises the chosen answer than the rejected one."""

    SIGMOID = "Sigmoid"
    """The loss of DPO itself: -log sigmoid(beta d)."""
    SIGMOID_NORM = "SigmoidNorm"
    """The same on means over tokens, which takes the advantage from long answers."""
    HINGE = "Hinge"
    """max(0, 1 - beta d)."""
    IPO = "Ipo"
    """(d - 1 / (2 beta)) squared, on means over tokens."""
    APO_ZERO = "ApoZero"
    """Raises the chosen answer, lowers the rejected one, each on its own: for answers better than the base's."""
    APO_DOWN = "ApoDown"
    """Lowers both, the rejected one more: for chosen answers worse than the base's."""
    BCO_PAIR = "BcoPair"
    """A classifier of chosen against rejected answers."""
    NCA_PAIR = "NcaPair"
    """Noise contrast: keeps the chosen answer's own likelihood from falling."""
    SPPO_HARD = "SppoHard"
    """Self-play preference, each side drawn to a fixed margin."""
    SFT = "Sft"
    """Cross entropy of the chosen answer; as a second loss, it keeps its likelihood up."""


class WeightedLoss(ApiModel):
    """One of the losses that are added up."""

    type: LossType
    """Which loss."""
    weight: DecimalString = "1"
    """Factor of the loss in the sum."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="double(self.weight) > 0.0", message="the weight of a loss must be above 0; leave the loss out"),
    )


class ReferenceAdapterSpec(ApiModel):
    """A published adapter of the reference."""

    source: Source | None = None
    """The adapter's folder."""
    training_job_ref: LocalRef | None = None
    """The LoRATrainingJob that publishes it; waited for."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.source) != has(self.trainingJobRef)", message="give exactly one of source and trainingJobRef"
        ),
    )


class ReferenceSpec(ApiModel):
    """What gains are measured against."""

    model: Source | None = None
    """Folder of a model with the base's vocabulary; the base model when absent."""
    adapter: ReferenceAdapterSpec | None = None
    """An adapter of that model; none when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.model) || has(self.adapter)",
            message="preference.reference needs a model, an adapter, or both; leave it out for the default",
        ),
    )


class ReferencePlaces(WireModel):
    """The reference as the trainer finds it."""

    model_path: str | None = None
    """Folder of the model; None for the base model."""
    model_source: str | None = None
    """Its URI."""
    adapter_path: str | None = None
    """Folder of the adapter; None for none."""
    adapter_source: str | None = None
    """Its URI."""


class PreferenceSpec(ApiModel):
    """How pairs are compared, for method DPO."""

    granularity: Granularity = Granularity.STEP
    """What a pair compares; a pair of another size is refused."""
    losses: Annotated[list[WeightedLoss], Field(min_length=1, max_length=4)] = Field(
        default=[WeightedLoss(type=LossType.SIGMOID)],
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """Losses that are added up."""
    beta: DecimalString = "0.1"
    """How strongly the policy is held to the reference: higher stays closer."""
    reference: ReferenceSpec | None = None
    """What gains are measured against; the base, or the adapter to go on from as it was, when absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="double(self.beta) > 0.0", message="preference.beta must be above 0, as in 0.1"),
    )


PREFERENCE_RULES = (
    Rule(rule="self.method == 'DPO' || !has(self.preference)", message="preference needs method DPO"),
    Rule(
        rule="self.method != 'DPO' || self.loss.target == 'Assistant'",
        message="loss.target must be Assistant with method DPO; preference.granularity says what is compared",
    ),
)
"""Rules of the spec that preference is a part of."""
