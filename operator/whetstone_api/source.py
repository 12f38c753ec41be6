"""`Source`: the one way in which Whetstone names a place (model, adapter, dataset, output)."""

from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule
from whetstone_api.vocabulary import CLAIMS_ROOT

PVC_URI = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._-]+)*$"
DIGEST = r"^sha256:[0-9a-f]{64}$"

SourceUri = Annotated[str, Field(min_length=7, max_length=512, pattern=PVC_URI)]
Digest = Annotated[str, Field(max_length=71, pattern=DIGEST)]


class Source(ApiModel):
    """A place: `pvc://claim/path`, in a persistent volume claim of the same namespace."""

    uri: SourceUri
    """Where: `pvc://claim/path`."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!(self.uri + '/').contains('/../') && !(self.uri + '/').contains('/./')",
            message="uri must not contain . or .. as a path segment; write the plain path inside the claim",
        ),
    )

    @property
    def claim(self) -> str:
        """Name of the persistent volume claim."""
        return self.uri.removeprefix("pvc://").split("/", 1)[0]

    @property
    def path(self) -> str:
        """Path inside the claim, without a leading slash; empty for its root."""
        rest = self.uri.removeprefix("pvc://").split("/", 1)
        return rest[1] if len(rest) > 1 else ""

    @property
    def mount_path(self) -> str:
        """The place inside a container that mounts the claim."""
        return f"{CLAIMS_ROOT}/{self.claim}/{self.path}".rstrip("/")


class PinnedSource(Source):
    """A place whose content is pinned by its digest."""

    digest: Digest | None = None
    """`sha256:…` content digest; when given, anything else at the place is refused."""
