"""Copies of a LoRATrainingJob's results at places from where they are fetched: asked for, and done."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule, VolumeName
from whetstone_api.source import CLAIM_NEEDS_NO_SECRET, PLAIN, PUSH_URI, SecretRef
from whetstone_api.wire import WireModel

MAX_PUSHES = 4
"""So many results fit into a termination message, however long their places are."""
PushUri = Annotated[str, Field(min_length=7, max_length=512, pattern=PUSH_URI)]


class PushWhat(StrEnum):
    """What is pushed."""

    ADAPTER = "Adapter"
    """The adapter at `output.adapter`."""
    MERGED = "Merged"
    """The merged model at `output.merged`."""


class PushSpec(ApiModel):
    """A place that a result is copied to after it is published. What lies there is never overwritten."""

    name: VolumeName
    """Name of the push in the status and in messages."""
    uri: PushUri
    """Where to: `pvc://claim/path`, `s3://bucket/key`, `oci://registry/repo` with or without `:tag`, or
    `hf://owner/repo` (made private when it does not exist)."""
    what: PushWhat = PushWhat.ADAPTER
    """Adapter or merged model."""
    secret_ref: SecretRef | None = None
    """The Secret with what the place asks for: keys, token, endpoint, certificate authority."""
    rules: ClassVar[tuple[Rule, ...]] = (
        PLAIN,
        CLAIM_NEEDS_NO_SECRET,
    )


class PushResult(ApiModel):
    """A push that is done."""

    name: Annotated[str, Field(max_length=40)]
    """Name of the push."""
    uri: Annotated[str, Field(max_length=640)]
    """What a server's source may name: with the commit of a hub, or the digest of a registry's manifest."""
    digest: Annotated[str, Field(max_length=71)]
    """Content digest of what lies there."""


class PushTarget(WireModel):
    """A push as the trainer reads it."""

    name: str
    uri: str
    what: PushWhat
    path: str | None = None
    """The claim's folder in the container."""
    secret_path: str | None = None
    """Folder with the Secret's keys."""
