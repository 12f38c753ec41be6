"""Trajectories of a BenchmarkRun as training data."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.digests import canonical_digest
from whetstone_api.schema import ApiModel, DecimalString, LocalRef, Rule, SignedDecimalString

COLLECT_FOLDER = "collect"
"""Folder of the rows in the run's output."""


class CollectKind(StrEnum):
    """Kinds of rows."""

    SFT = "SFT"
    """Conversations."""
    PREFERENCE = "Preference"
    """Pairs of a better and a worse conversation."""


class RowPer(StrEnum):
    """What becomes a row."""

    EPISODE = "Episode"
    """A whole conversation."""
    TURN = "Turn"
    """Each turn of the assistant, with all that came before it."""


class SftCollect(ApiModel):
    """Which conversations become rows."""

    minimum_reward: SignedDecimalString = "1"
    """Lowest reward of a trial that is taken."""
    per: RowPer = RowPer.EPISODE
    """What becomes a row."""
    trials_per_task: Annotated[int, Field(ge=1, le=100)] | None = None
    """Most trials of a task that are taken, the best first; all when absent."""


class PairsFrom(StrEnum):
    """What a pair is made of."""

    ATTEMPTS = "Attempts"
    """Two trials of a task."""
    ALTERNATES = "Alternates"
    """The actions of model and expert at one step, where the model's is no step towards the answer."""
    BRANCHES = "Branches"
    """A trial and the other way from one of its steps, of which one succeeded."""


class PreferenceCollect(ApiModel):
    """Which trials of a task become pairs."""

    pairs: PairsFrom = PairsFrom.ATTEMPTS
    """What a pair is made of; all but `Attempts` need `suite.toolUse` with an expert."""
    minimum_difference: DecimalString = "1"
    """Lowest difference of their rewards."""
    pairs_per_task: Annotated[int, Field(ge=1, le=100)] = 1
    """Most pairs of a task: of `Attempts` the largest differences first, and a trial is in one pair; else the first."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="double(self.minimumDifference) > 0.0", message="minimumDifference must be above 0"),
    )


class CollectSpec(ApiModel):
    """What of the scored trials is kept as training data."""

    sft: SftCollect | None = None
    """Conversations, for a LoRATrainingJob of method SFT."""
    preference: PreferenceCollect | None = None
    """Pairs, for one of method DPO."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.sft) || has(self.preference)", message="collect needs sft or preference"),
    )


class CollectedRows(ApiModel):
    """A file of collected rows."""

    uri: Annotated[str, Field(max_length=512)]
    """Where it lies."""
    digest: Annotated[str, Field(max_length=71)]
    """`sha256:…` of the file."""
    rows: int
    """Rows in it."""


class Collected(ApiModel):
    """What was collected."""

    sft: CollectedRows | None = None
    """Conversations."""
    preference: CollectedRows | None = None
    """Pairs."""

    def of(self, kind: CollectKind) -> CollectedRows | None:
        """Return the rows of a kind."""
        return self.sft if kind is CollectKind.SFT else self.preference


class CollectedRef(LocalRef):
    """The rows that a BenchmarkRun collected."""

    kind: CollectKind | None = None
    """Which of them; those that `spec.method` learns from when absent."""


def collect_path(kind: CollectKind, settings: SftCollect | PreferenceCollect) -> str:
    """Return where rows lie in a run's output; other settings have another place, so that none is overwritten."""
    digest = canonical_digest(settings.to_wire()).removeprefix("sha256:")
    return f"{COLLECT_FOLDER}/{kind.lower()}-{digest[:8]}.jsonl"
