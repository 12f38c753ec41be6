"""`Source`: the one way in which Whetstone names a place (model, adapter, dataset, output)."""

import re
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule, SecretName
from whetstone_api.vocabulary import CLAIMS_ROOT

_PVC = r"pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._-]+)*"
_HUB = r"hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._/-]*"
_S3 = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._=+-]+)+"
_HTTPS = r"https://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~%+=-]+)+"
_OCI = r"oci://[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)+@sha256:[0-9a-f]{64}"
_FOLDER = r"pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._-]+)+"
_REPOSITORY = r"hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
_TAGGED = r"oci://[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
_HUB_FILE = (
    r"hf://datasets/[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)+"
)
_HUB_FOLDER = (
    r"hf://datasets/[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*"
)
PVC_URI = f"^{_PVC}$"
ANY_URI = f"^({_PVC}|{_HUB}|{_S3}|{_HTTPS}|{_OCI})$"
PUSH_URI = f"^({_FOLDER}|{_REPOSITORY}|{_S3}|{_TAGGED})$"
"""Places to push to: a folder of a claim, a repository of a hub, a folder of a bucket, a repository of a registry."""
FILE_URI = f"^({_PVC}|{_HUB_FILE}|{_S3}|{_HTTPS})$"
FOLDER_URI = f"^({_PVC}|{_HUB_FOLDER}|{_S3}|{_HTTPS}|{_OCI})$"
"""Places of a folder: the folder itself, or an archive of it."""
PARQUET: Final = ".parquet"
ZIP: Final = ".zip"
PACKED: Final = (".tar", ".tar.gz", ".tgz", ZIP, PARQUET)
"""How names end of files that a folder comes in."""
HUB_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"
DIGEST = r"^sha256:[0-9a-f]{64}$"
_COMMIT = re.compile(r"^[0-9a-f]{40}$")

SourceUri = Annotated[str, Field(min_length=7, max_length=512, pattern=PVC_URI)]
AnyUri = Annotated[str, Field(min_length=7, max_length=512, pattern=ANY_URI)]
FileUri = Annotated[str, Field(min_length=7, max_length=512, pattern=FILE_URI)]
FolderUri = Annotated[str, Field(min_length=7, max_length=512, pattern=FOLDER_URI)]
HubId = Annotated[str, Field(min_length=3, max_length=193, pattern=HUB_ID)]
Digest = Annotated[str, Field(max_length=71, pattern=DIGEST)]

PLAIN = Rule(
    rule="!(self.uri + '/').contains('/../') && !(self.uri + '/').contains('/./')",
    message="uri must not contain . or .. as a path segment; write the plain path inside the claim",
)
CLAIM_NEEDS_NO_SECRET = Rule(
    rule="!has(self.secretRef) || !self.uri.startsWith('pvc://')",
    message="secretRef has no use with pvc://; leave it out",
)


class Scheme(StrEnum):
    """How a place is reached."""

    PVC = "pvc"
    HUB = "hf"
    S3 = "s3"
    HTTPS = "https"
    OCI = "oci"


class Source(ApiModel):
    """A place: `pvc://claim/path`, in a persistent volume claim of the same namespace."""

    uri: SourceUri
    """Where: `pvc://claim/path`."""
    rules: ClassVar[tuple[Rule, ...]] = (PLAIN,)

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


class SecretRef(ApiModel):
    """A reference to a Secret of the same namespace."""

    name: SecretName
    """Name of the Secret."""


class Place(ApiModel):
    """A place in a claim or elsewhere."""

    uri: str
    """Where."""
    digest: Digest | None = None
    """`sha256:…` content digest; when given, anything else at the place is refused."""
    secret_ref: SecretRef | None = None
    """The Secret with what the place asks for: keys, token, endpoint, certificate authority."""
    rules: ClassVar[tuple[Rule, ...]] = (
        PLAIN,
        CLAIM_NEEDS_NO_SECRET,
    )

    @property
    def scheme(self) -> Scheme:
        """How the place is reached."""
        return scheme_of(self.uri)

    @property
    def in_claim(self) -> Source | None:
        """The place in a claim; None for one that must be fetched."""
        return Source(uri=self.uri) if self.scheme is Scheme.PVC else None


class PinnedSource(Place):
    """A place in a claim or elsewhere, whose content is pinned: by its digest, or by what its uri names."""

    uri: AnyUri
    """Where: `pvc://claim/path`, `hf://owner/repo@revision`, `s3://bucket/key`, `https://host/folder`, or
    `oci://registry/repo@sha256:…`."""


class FileSource(Place):
    """A file in a claim or elsewhere, which may be pinned by its digest."""

    uri: FileUri
    """Where: `pvc://claim/file`, `hf://datasets/owner/repo@revision/file`, `s3://bucket/key` or `https://host/file`."""
    digest: Digest | None = None
    """`sha256:…` of the file; when given, anything else at the place is refused."""


class FolderSource(Place):
    """A folder in a claim, or one elsewhere that is fetched; its content may be pinned by its digest."""

    uri: FolderUri
    """Where: an archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`) or folder at `pvc://claim/path`,
    `hf://datasets/owner/repo@revision/path`, `s3://bucket/key`, `https://host/file` or
    `oci://registry/repo@sha256:…`."""
    digest: Digest | None = None
    """`sha256:…` of the content; when given, anything else at the place is refused."""

    @property
    def in_claim(self) -> Source | None:
        """The folder in a claim; None for one that must be fetched, or unpacked."""
        return folder_in_claim(self.uri)

    @property
    def packed_in_claim(self) -> Source | None:
        """The archive in a claim; None for any other place."""
        return archive_in_claim(self.uri)


def scheme_of(uri: str) -> Scheme:
    """Return how the place of a URI is reached."""
    return Scheme(uri.split("://", 1)[0])


def is_packed(name: str) -> bool:
    """Return whether a folder comes in a file of this name."""
    return name.endswith(PACKED)


def folder_in_claim(uri: str) -> Source | None:
    """Return the place of a folder that lies in a claim as it is; None for any other."""
    return Source(uri=uri) if scheme_of(uri) is Scheme.PVC and not is_packed(uri) else None


def archive_in_claim(uri: str) -> Source | None:
    """Return the place of an archive in a claim; None for any other."""
    return Source(uri=uri) if scheme_of(uri) is Scheme.PVC and is_packed(uri) else None


def split_hub(uri: str) -> tuple[str, str]:
    """Return repository (`owner/name`) and revision of an `hf://` URI."""
    repository, revision = uri.removeprefix("hf://").split("@", 1)
    return repository, revision


def split_hub_file(uri: str) -> tuple[str, str, str]:
    """Return repository (`owner/name`), revision and path in it of an `hf://datasets/` URI."""
    repository, rest = uri.removeprefix("hf://datasets/").split("@", 1)
    revision, path = rest.split("/", 1)
    return repository, revision, path


def split_hub_folder(uri: str) -> tuple[str, str, str]:
    """Return repository (`owner/name`), revision and path in it, which may be empty, of an `hf://datasets/` URI."""
    repository, rest = uri.removeprefix("hf://datasets/").split("@", 1)
    revision, _, path = rest.partition("/")
    return repository, revision, path


def is_commit(revision: str) -> bool:
    """Return whether a revision is a whole commit, which never names anything else."""
    return _COMMIT.match(revision) is not None
