"""Where the results of a LoRATrainingJob go, and what is told of them on the way."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString, Rule, SignedDecimalString
from whetstone_api.source import Source
from whetstone_api.training_push import MAX_PUSHES, PushSpec

MAX_WARNINGS = 8
MAX_WARNING = 512
"""Characters of a warning."""


class TrainingOutput(ApiModel):
    """Where results go."""

    adapter: Source
    """Folder of the adapter; created by the job, never overwritten, never deleted with the object."""
    merged: Source | None = None
    """Folder of the base model with the adapter merged in, in the base's precision; none when absent."""
    push: Annotated[list[PushSpec], Field(min_length=1, max_length=MAX_PUSHES)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """Places that adapter or merged model are copied to once they are published."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.adapter.uri.matches('^pvc://[^/]+/.+')",
            message="output.adapter.uri must name a folder inside the claim, as in pvc://adapters/my-adapter",
        ),
        Rule(
            rule="!has(self.merged) || self.merged.uri.matches('^pvc://[^/]+/.+')",
            message="output.merged.uri must name a folder inside the claim, as in pvc://models/my-model",
        ),
        Rule(
            rule=(
                "!has(self.merged) || !((self.merged.uri + '/').startsWith(self.adapter.uri + '/') ||"
                " (self.adapter.uri + '/').startsWith(self.merged.uri + '/'))"
            ),
            message="output.merged.uri and output.adapter.uri must be two folders, none inside the other",
        ),
        Rule(
            rule="!has(self.push) || self.push.all(p, p.what != 'Merged' || has(self.merged))",
            message="a push of what Merged needs output.merged",
        ),
    )


class TrainingProgress(ApiModel):
    """Where the training is; written at most every 30 seconds."""

    phase: Annotated[str, Field(max_length=32)]
    """Validate, Prepare, Train, Verify, Publish, Merge or Push."""
    percent: int | None = None
    """Share of the optimizer steps that are done, 0 to 100."""
    step: int | None = None
    """Optimizer steps done."""
    max_steps: int | None = None
    """Optimizer steps in all."""
    loss: SignedDecimalString | None = None
    """Latest training loss."""
    eta_seconds: int | None = None
    """Seconds that the training will still take."""
    learning_rate: DecimalString | None = None
    """Learning rate of the latest step."""
    tokens_per_second: DecimalString | None = None
    """Tokens trained on a second."""
    peak_memory_bytes: int | None = None
    """Most memory used so far: of the device where there is one, else of the process."""
    updated_at: Annotated[str, Field(max_length=64)] | None = None
    """When this was reported, RFC 3339."""


class PublishedAdapter(ApiModel):
    """The result."""

    uri: Annotated[str, Field(max_length=512)]
    """Where it lies."""
    digest: Annotated[str, Field(max_length=71)]
    """Content digest."""
    rank: int
    """Its rank."""
    bytes: int
    """Size of its files."""
    published_at: Annotated[str, Field(max_length=64)] | None = None
    """When it was published, RFC 3339."""


class MergedModel(ApiModel):
    """The base model with the adapter merged in."""

    uri: Annotated[str, Field(max_length=512)]
    """Where it lies."""
    digest: Annotated[str, Field(max_length=71)]
    """Content digest, as `whetstone digest` prints it."""
    bytes: int
    """Size of its files."""
