"""Where a training keeps its prepared data and its checkpoints."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, Quantity, Rule


class AccessMode(StrEnum):
    """How the pods of a cluster may mount a volume."""

    ONE_NODE = "ReadWriteOnce"
    ONE_POD = "ReadWriteOncePod"
    MANY = "ReadWriteMany"


class ClaimTemplate(ApiModel):
    """A claim that is made for the job and deleted with it."""

    size: Quantity
    """Room that is asked for."""
    storage_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Storage class; the cluster's default when absent."""
    access_modes: Annotated[list[AccessMode], Field(min_length=1, max_length=3)] = Field(default=[AccessMode.ONE_NODE])
    """How the volume may be mounted; a training by pods on several nodes needs ReadWriteMany."""


class WorkspaceSpec(ApiModel):
    """Where the prepared data and the checkpoints lie."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Persistent volume claim; the job uses the folder `<name>-<8 hex of its uid>` in it."""
    claim_template: ClaimTemplate | None = None
    """Instead: a claim `<name>-workspace` of the job's own."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="has(self.claimName) != has(self.claimTemplate)",
            message="give exactly one of claimName and claimTemplate",
        ),
    )
