"""Folders in the workspace that are whole or absent: made aside, listed in a manifest, renamed into place."""

import shutil
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import MANIFEST_FILE, FileEntry
from whetstone_api.wire import WireModel
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import file_entries, publish_folder


class SnapshotManifest(WireModel):
    """What a snapshot holds, and for which recipe it was made."""

    recipe_digest: str
    files: dict[str, FileEntry]
    """Every file but the manifest, by relative path."""


def seal(folder: Path, place: Path, *, recipe_digest: str) -> None:
    """List a finished folder in its manifest and move it to its place, replacing what is there."""
    manifest = SnapshotManifest(recipe_digest=recipe_digest, files=file_entries(folder))
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    if place.exists():
        shutil.rmtree(place)
    publish_folder(folder, place)


def verified_recipe(place: Path) -> str | None:
    """Return the recipe digest of a snapshot whose files all are as listed, or None when it is missing or damaged."""
    try:
        manifest = SnapshotManifest.model_validate_json((place / MANIFEST_FILE).read_bytes())
        intact = manifest.files == file_entries(place)
    except (OSError, ValidationError, ArtifactError):
        return None
    return manifest.recipe_digest if intact else None
