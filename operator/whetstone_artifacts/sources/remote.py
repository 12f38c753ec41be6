"""What every kind of place offers: a list of files and ranges of their bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Protocol

from whetstone_api.adapter_artifact import (
    CONFIG_FILE,
    LINEAGE_FILE,
    MANIFEST_FILE,
    PROBE_FILE,
    WEIGHTS_FILE,
    is_served,
)
from whetstone_api.task_bundle import BUNDLE_FILE, TASKS_TAR
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError

MODEL_SUFFIXES = frozenset({".json", ".safetensors", ".txt", ".jinja", ".model", ".tiktoken"})
READ_ATTEMPTS = 4
"""Tries of one range, where the library does not repeat by itself: a dropped connection costs a piece only."""


class Content(StrEnum):
    """What is fetched: it decides which files."""

    ADAPTER = "adapter"
    MODEL = "model"
    BUNDLE = "bundle"

    def takes(self, name: str) -> bool:
        """Return whether a file of the place belongs to it. Pickles and programs never do."""
        if self is Content.ADAPTER:
            return is_served(name)
        if self is Content.BUNDLE:
            return name in REQUIRED_FILES[self]
        return "/" not in name and not name.startswith(".") and any(name.endswith(suffix) for suffix in MODEL_SUFFIXES)


REQUIRED_FILES = {
    Content.ADAPTER: (CONFIG_FILE, WEIGHTS_FILE),
    Content.MODEL: ("config.json",),
    Content.BUNDLE: (BUNDLE_FILE, TASKS_TAR),
}
OPTIONAL_FILES = {
    Content.ADAPTER: (MANIFEST_FILE, PROBE_FILE, LINEAGE_FILE),
    Content.BUNDLE: (),
    Content.MODEL: (
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "preprocessor_config.json",
    ),
}
"""Names to ask for where a place cannot be listed."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a place.

    Args:
        name: Its name; of a tree, its path with slashes.
        size: Bytes.
        tag: What changes with the content: an ETag, an object id, a digest.
        address: What the place's reader needs to find it.
        sha256: Checksum in hex as the place states it; None where it does not.
    """

    name: str
    size: int
    tag: str
    address: str
    sha256: str | None = None


class Readable(Protocol):
    """A place to read from. Its methods block and may be called from several threads."""

    uri: str
    attempts: int
    """Tries of one range."""

    def read(self, file: RemoteFile, start: int, length: int) -> bytes:
        """Return so many bytes from an offset. Raises ArtifactError."""
        ...


class Remote(Readable, Protocol):
    """A place that is a folder."""

    def files(self, content: Content) -> list[RemoteFile]:
        """Return the files to fetch. Raises ArtifactError."""
        ...


class RemoteTree(Readable, Protocol):
    """A place that is a folder of which every file is wanted."""

    def tree(self) -> list[RemoteFile]:
        """Return all files, by their path in the folder. Raises ArtifactError."""
        ...


class RemoteFilePlace(Readable, Protocol):
    """A place that is one file."""

    def file(self) -> RemoteFile:
        """Return the file. Raises ArtifactError."""
        ...


def not_found(uri: str, what: str) -> ArtifactError:
    """Return the error for a place that does not exist."""
    return ArtifactError(Reason.SOURCE_NOT_FOUND, f"uri {uri}: {what}; correct the uri or put it there")


def forbidden(uri: str, answer: str) -> ArtifactError:
    """Return the error for a place that refuses us."""
    return ArtifactError(
        Reason.SOURCE_FORBIDDEN,
        f"uri {uri}: access refused ({answer}); name a Secret that may read it in secretRef, or correct its keys",
    )


def unreachable(uri: str, error: object) -> ArtifactError:
    """Return the error for a place that does not answer as it should."""
    return ArtifactError(
        Reason.SOURCE_UNREACHABLE,
        f"uri {uri}: {error}; check that the pod's network reaches it (endpoint, proxy, certificate)",
    )


def whole_tree(uri: str, files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """Return the files of a tree by name, if each of them can be a file below one folder.

    Raises:
        ArtifactError: `SOURCE_NOT_FOUND` for a tree without files, or with names that lead out of a folder.
    """
    found = {file.name: file for file in files}
    if not found:
        raise not_found(uri, "there are no files")
    folders = {str(parent) for name in found for parent in PurePosixPath(name).parents}
    for name in found:
        if name in folders or name.startswith("/") or {"", "..", "."} & set(name.split("/")):
            raise not_found(uri, f"the name {name!r} cannot be that of a file in a folder")
    return [found[name] for name in sorted(found)]


def selected(uri: str, files: Iterable[RemoteFile], content: Content) -> list[RemoteFile]:
    """Return the files that belong to a content, by name.

    Raises:
        ArtifactError: `SOURCE_NOT_FOUND` when a file that is needed is not among them.
    """
    found = {file.name: file for file in files if content.takes(file.name)}
    for name in REQUIRED_FILES[content]:
        if name not in found:
            raise not_found(uri, f"there is no {name}")
    if content is not Content.BUNDLE and not any(name.endswith(".safetensors") for name in found):
        raise not_found(uri, "there is no *.safetensors")
    return [found[name] for name in sorted(found)]
