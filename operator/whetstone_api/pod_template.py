"""What users lay over pods of ours."""

from typing import Annotated, Any

from pydantic import Field

from whetstone_api.schema import ApiModel


class PodTemplateMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] | None = None
    """Further labels of the pods; Whetstone's own cannot be given."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None = None
    """Further annotations of the pods."""


class PodTemplate(ApiModel):
    """A part of a pod template, laid over the one of our pods."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods."""
    # Kubernetes' own schema would be larger than all of ours; the operator and a dry run judge it.
    spec: Annotated[dict[str, Any], Field(max_length=32)] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """Fields of a pod's spec: placement, pull secrets, volumes, containers; docs/modelserver.md lists them."""
