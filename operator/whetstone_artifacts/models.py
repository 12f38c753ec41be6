"""Model folders that we write: their digest, and the record by which a later reader sees that one is whole."""

from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import CONFIG_FILE, FileEntry, Manifest
from whetstone_api.digests import content_digest

from whetstone_artifacts.folders import file_entry
from whetstone_artifacts.sources.remote import Content

MODEL_RECORD = ".whetstone-model.json"
"""In a model's folder: what was written there."""


def is_model(folder: Path) -> bool:
    """Return whether a folder holds a model, and not an adapter, which may have a `config.json` beside it."""
    return (folder / "config.json").is_file() and not (folder / CONFIG_FILE).exists()


def model_digest(folder: Path) -> str:
    """Return the content digest of a model's folder: over the files that are fetched of a model."""
    return describe_model(folder).digest


def describe_model(folder: Path) -> Manifest:
    """Return digest and files of a model's folder, read whole."""
    entries: dict[str, FileEntry] = {
        path.name: file_entry(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and Content.MODEL.takes(path.name)
    }
    return Manifest(digest=content_digest({name: entry.sha256 for name, entry in entries.items()}), files=entries)


def record_model(folder: Path, manifest: Manifest) -> None:
    """Write the record of a finished folder into it."""
    (folder / MODEL_RECORD).write_text(manifest.to_json())


def recorded_model(folder: Path) -> Manifest | None:
    """Return the record of a folder that holds what it says, by size; the content was read before it was written."""
    try:
        record = Manifest.model_validate_json((folder / MODEL_RECORD).read_bytes())
        whole = all((folder / name).stat().st_size == entry.size for name, entry in record.files.items())
    except (OSError, ValidationError):
        return None
    return record if whole else None
