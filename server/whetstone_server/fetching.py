"""How the sidecar gets an adapter's files: a copy from a mounted claim, or a download."""

import json
from pathlib import Path

from whetstone_api.pod_state import DesiredAdapter
from whetstone_api.source import scheme_of
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import fetch_adapter
from whetstone_artifacts.sources.credentials import read_credentials
from whetstone_artifacts.sources.fetch import fetch_remote_adapter, listing_signature, open_place
from whetstone_artifacts.sources.remote import Content, Remote

_ABOUT_ACCESS = frozenset(
    {
        Reason.SECRET_NOT_FOUND,
        Reason.SOURCE_NOT_FOUND,
        Reason.SOURCE_FORBIDDEN,
        Reason.SOURCE_UNREACHABLE,
        Reason.DISK_FULL,
    }
)


def is_remote(wanted: DesiredAdapter) -> bool:
    """Return whether a version must be downloaded."""
    return not wanted.path


def fetch(wanted: DesiredAdapter, target: Path, *, secrets_dir: Path) -> None:
    """Bring a version's files to a folder, whole and verified.

    Args:
        wanted: The version.
        target: Folder to make.
        secrets_dir: Where the pod's Secrets are mounted, a folder each.

    Raises:
        ArtifactError: It is not there, not reachable, or not what its digest names.
    """
    if is_remote(wanted):
        fetch_remote_adapter(_open(wanted, secrets_dir), target, wanted.digest)
    else:
        fetch_adapter(Path(wanted.path), target, wanted.digest)


def signature(wanted: DesiredAdapter, *, secrets_dir: Path) -> str:
    """Return what tells one state of a version's place from another: names, sizes and times, not contents."""
    if is_remote(wanted):
        try:
            return listing_signature(_open(wanted, secrets_dir).files(Content.ADAPTER))
        except ArtifactError as error:
            return error.message
    try:
        entries = sorted(
            (path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in Path(wanted.path).iterdir()
        )
    except OSError as error:
        return type(error).__name__
    return json.dumps(entries)


def judges_content(error: ArtifactError) -> bool:
    """Return whether an error is about what a place holds: trying again helps only once that has changed."""
    return error.reason not in _ABOUT_ACCESS


def located(wanted: DesiredAdapter, error: ArtifactError) -> str:
    """Return an error's message with the field that it is about, where that is known."""
    about_source = is_remote(wanted) and error.message.startswith(("uri ", "secretRef:", "digest:"))
    return f"{wanted.field}.{error.message}" if about_source else error.message


def _open(wanted: DesiredAdapter, secrets_dir: Path) -> Remote:
    folder = secrets_dir / wanted.secret if wanted.secret else None
    return open_place(wanted.source, read_credentials(scheme_of(wanted.source), folder))
