"""What a BenchmarkRun measures."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, LocalRef, Rule, ServedName


class TargetSpec(ApiModel):
    """What to measure: a server's base model, or one of its adapters or aliases."""

    model_server_ref: LocalRef
    """The ModelServer."""
    adapter: ServedName | None = None
    """An adapter of that server; its version at the start of the run is measured."""
    alias: ServedName | None = None
    """An alias of that server; what it serves at the start of the run is measured."""
    shared: bool = False
    """Whether other runs that say so too may measure the same server at the same time."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="!(has(self.adapter) && has(self.alias))", message="give at most one of adapter and alias"),
    )


class EngineIdentity(ApiModel):
    """What makes the engines of a server what they are."""

    image: Annotated[str, Field(max_length=512)]
    """Image of the engine's container."""
    settings: Annotated[str, Field(max_length=71)]
    """Digest of its command, arguments and environment."""
    chat_template: Annotated[str, Field(max_length=71)] | None = None
    """Digest of the chat template that replaces the model's own."""


class EngineCheck(ApiModel):
    """Whether the engines stayed what they were while a run was measured: the operator's answer to its runner."""

    checked_at: Annotated[str, Field(max_length=64)]
    """After the last trial, RFC 3339."""
    change: Annotated[str, Field(max_length=1024)] | None = None
    """What became others, in words; absent where nothing did."""


class MeasuredTarget(ApiModel):
    """What was measured."""

    served_name: Annotated[str, Field(max_length=64)]
    """Version that answered every trial."""
    adapter: Annotated[str, Field(max_length=64)] | None = None
    """Adapter's name; absent for the base."""
    digest: Annotated[str, Field(max_length=71)] | None = None
    """Content digest of the adapter; absent for the base."""
    engine: EngineIdentity | None = None
    """The engines at the start of the run."""
