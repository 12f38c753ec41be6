"""What a training costs, by the administrator's price table."""

from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel, DecimalString

MAX_COUNTED_PODS = 64


class PodUse(ApiModel):
    """How long a pod held devices."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the pod; `earlier` for the sum of the oldest ones."""
    device_seconds: DecimalString
    """Seconds from its place on a node to the end of its containers, times its devices."""
    ended: bool = False
    """Whether its containers have ended."""


class TrainingCost(ApiModel):
    """What the pods that train have used of what the operator's price table names."""

    resource: Annotated[str, Field(max_length=253)]
    """What is counted, such as nvidia.com/gpu."""
    per_hour: DecimalString
    """Price of an hour of one, as the table says now."""
    currency: Annotated[str, Field(max_length=16)] | None = None
    """As the table says."""
    device_hours: DecimalString
    """Hours of one device so far, failed and suspended attempts included."""
    amount: DecimalString
    """What they cost."""
    expected: DecimalString | None = None
    """What all will have cost at the end; only once a pace is measured."""
    basis: Annotated[str, Field(max_length=256)]
    """What the figures stand on."""
    counted_at: Annotated[str, Field(max_length=64)]
    """When this was counted, RFC 3339."""
    pods: Annotated[list[PodUse], Field(max_length=MAX_COUNTED_PODS)] = Field(
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    """What it is the sum of."""
