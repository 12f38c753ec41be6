"""Who may call a ModelServer and how much: the fields of its spec, and what the guard reads."""

from typing import Annotated

from pydantic import Field

from whetstone_api.schema import ApiModel, SecretName, ServedName, VolumeName
from whetstone_api.wire import WireModel

ACCESS_FILE = "access.json"
"""Key of the Secret that the engine mounts, and the file's name."""
API_KEY_VARIABLE = "WHETSTONE_API_KEY"
"""Environment variable of a benchmark's runner: what it sends as its API key."""
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]


class SecretKeyRef(ApiModel):
    """A reference to one key of a Secret of the same namespace."""

    name: SecretName
    """Name of the Secret."""
    key: SecretKey
    """Key in it."""


class ApiKeySpec(ApiModel):
    """A key that clients send as `Authorization: Bearer KEY`."""

    name: VolumeName
    """What messages call the key."""
    secret_ref: SecretKeyRef
    """Where the key is; a change of the Secret is taken over without a restart."""
    models: Annotated[list[ServedName], Field(min_length=1, max_length=64)] | None = None
    """Names (base, adapters, aliases) that the key may call, an adapter's with all its versions; absent: all."""


class LimitsSpec(ApiModel):
    """What one replica takes at most."""

    request_bytes: Annotated[int, Field(ge=1024, le=1073741824)] | None = None
    """Longest request body; a longer one is answered 413. 32 MiB when absent."""
    concurrent_requests: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Most inference requests that a replica answers at a time; one more is answered 429. No limit when absent."""


class AccessKey(WireModel):
    """A key as the guard knows it."""

    name: str
    sha256: str
    """Hash of the key, hexadecimal: the key itself stays in the user's Secret."""
    models: list[str] | None = None


class AccessPolicy(WireModel):
    """What the guard reads from the mounted Secret."""

    keys_required: bool
    """Whether clients need a key; with none that is known, nobody passes."""
    keys: list[AccessKey] = Field(default_factory=list)
    request_bytes: int | None = None
    concurrent_requests: int | None = None
