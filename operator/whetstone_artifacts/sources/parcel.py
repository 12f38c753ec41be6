"""What a push carries: the files of an adapter or a model, and the record that says at the place what they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import MANIFEST_FILE, FileEntry, Manifest
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import verify_adapter
from whetstone_artifacts.models import MODEL_RECORD, describe_model, is_model
from whetstone_artifacts.sources.remote import Content

TAG_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """One adapter or model on disk, read whole.

    Args:
        content: Which of the two.
        folder: Where it lies.
        manifest: Its content digest, and its files by relative path.
        marker: Name of the record; it is written last, so a place with the record holds all files.
    """

    content: Content
    folder: Path
    manifest: Manifest
    marker: str

    @property
    def digest(self) -> str:
        """Content digest."""
        return self.manifest.digest

    @property
    def files(self) -> Mapping[str, FileEntry]:
        """Every file but the record, by relative path."""
        return self.manifest.files

    @property
    def record(self) -> bytes:
        """What the record holds."""
        return self.manifest.to_json().encode()

    @property
    def tag(self) -> str:
        """A tag for registries and hubs, the same for the same content."""
        return "digest-" + self.digest.removeprefix("sha256:")[:TAG_DIGITS]


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What a place holds after a push.

    Args:
        uri: The place as a source names it; with commit or digest where the place knows them.
        digest: Content digest.
        found: Whether it lay there already.
    """

    uri: str
    digest: str
    found: bool


def read_parcel(folder: Path) -> Parcel:
    """Read an adapter's or a model's folder for a push.

    Args:
        folder: Folder with `adapter_config.json` and `adapter_model.safetensors`, or a model's with `config.json`.

    Raises:
        ArtifactError: It is neither, or not what its manifest says.
    """
    if is_model(folder):
        return Parcel(content=Content.MODEL, folder=folder, manifest=describe_model(folder), marker=MODEL_RECORD)
    return Parcel(content=Content.ADAPTER, folder=folder, manifest=verify_adapter(folder, None), marker=MANIFEST_FILE)


def held_manifest(uri: str, parcel: Parcel, record: bytes) -> Manifest:
    """Return what a place's record says, when it is the record of the same content.

    Args:
        uri: The place.
        parcel: What shall be pushed.
        record: What the record at the place holds.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED` for any other content.
    """
    try:
        held = Manifest.model_validate_json(record)
    except ValidationError as error:
        raise occupied(uri, f"{parcel.marker} there is no record of Whetstone's") from error
    if held.digest != parcel.digest:
        raise occupied(uri, f"it holds {held.digest}, not {parcel.digest}")
    return held


def occupied(uri: str, what: str) -> ArtifactError:
    """Return the error for a place that holds something else."""
    return ArtifactError(
        Reason.OUTPUT_OCCUPIED, f"uri {uri}: {what}; it is never overwritten: name another place or empty this one"
    )
