"""Aliases of a ModelServer: the stable names that clients call, and what moves them."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.benchmark_gates import GateSpec
from whetstone_api.schema import ApiModel, Rule, ServedName
from whetstone_api.source import Digest

HISTORY_SHOWN = 10
"""Moves that a status remembers."""


class AliasTarget(ApiModel):
    """What an alias serves."""

    adapter: ServedName
    """Name of an adapter of this server, or the base's served name."""
    weight: Annotated[int, Field(ge=0, le=1000)] = 1
    """Its part of the requests, in proportion to the other targets' weights; 0 sends it none."""


class BenchmarkSelector(ApiModel):
    """A label selector over BenchmarkRuns of the namespace."""

    match_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=16)]
    """Labels that a run must carry, all of them."""


class PromotionSpec(ApiModel):
    """What counts as evidence for a promotion."""

    benchmark_selector: BenchmarkSelector
    """Which BenchmarkRuns count."""
    suite_digest: Digest | None = None
    """Only runs of exactly these tasks count; a run tells it in status.suiteDigest."""
    minimum_tasks: Annotated[int, Field(ge=1, le=100000)] = 1
    """Fewest scored tasks of a run that may move the alias."""
    gates: Annotated[list[GateSpec], Field(min_length=1, max_length=16)] | None = None
    """Gates that a run must pass to promote, besides its own; a run without gates may then promote, too."""


class AliasSpec(ApiModel):
    """A stable name for clients."""

    name: ServedName
    """The name that clients use."""
    targets: Annotated[list[AliasTarget], Field(min_length=1, max_length=8)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["adapter"]}
    )
    """Fixed targets; of several, each answers its share of the requests."""
    promotion: PromotionSpec | None = None
    """Serves the base until a BenchmarkRun has shown an adapter to be better."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.targets) != has(self.promotion)", message="give exactly one of targets and promotion"),
        Rule(
            rule="!has(self.targets) || self.targets.exists(t, t.weight > 0)",
            message="at least one target needs a weight above 0",
        ),
    )


class AliasTargetStatus(ApiModel):
    """A target of an alias with several."""

    adapter: Annotated[str, Field(max_length=64)]
    """Adapter, or base's served name."""
    served_name: Annotated[str, Field(max_length=64)]
    """Version that answers its share."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """Content digest of that version; absent for the base."""
    weight: int
    """Its part of the requests."""


class AliasMove(ApiModel):
    """A move of an alias."""

    time: Annotated[str, Field(max_length=64)]
    """When, RFC 3339."""
    reason: Annotated[str, Field(max_length=64)]
    """Initial, Promotion, Rollback, Removed or Spec."""
    served_name: Annotated[str, Field(max_length=64)]
    """Version that answered from then on; of several, that of the heaviest."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """Its content digest; absent for the base."""
    benchmark_run: Annotated[str, Field(max_length=63)] | None = None
    """The run that moved it."""


class AliasStatus(ApiModel):
    """What an alias serves now."""

    name: Annotated[str, Field(max_length=64)]
    """Name in the spec."""
    adapter: Annotated[str, Field(max_length=64)]
    """Adapter, or base's served name, that answers."""
    served_name: Annotated[str, Field(max_length=64)]
    """Version that answers."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """Content digest of that version; absent for the base."""
    since: Annotated[str, Field(max_length=64)] | None = None
    """When it moved, RFC 3339."""
    benchmark_run: Annotated[str, Field(max_length=63)] | None = None
    """The run that moved it."""
    targets: Annotated[list[AliasTargetStatus], Field(max_length=8)] | None = None
    """All targets where there are several; `adapter` and `servedName` are then those of the heaviest."""
    previous: Annotated[str, Field(max_length=64)] | None = None
    """Version that answered before."""
    history: Annotated[list[AliasMove], Field(max_length=HISTORY_SHOWN)] | None = None
    """The last ten moves, the latest first."""

    @property
    def reason(self) -> str | None:
        """Why it moved last; None where that is not recorded."""
        return self.history[0].reason if self.history else None
