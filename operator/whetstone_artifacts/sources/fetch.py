"""Fetch an adapter or a base model: whole and verified at its place, or not there at all."""

import json
import logging
import shutil
from pathlib import Path

from whetstone_api.adapter_artifact import Manifest
from whetstone_api.digests import canonical_digest
from whetstone_api.source import Scheme, scheme_of
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import admit_adapter, holds_adapter, publish_folder
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.models import describe_model, record_model, recorded_model
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.download import download, sha256_of
from whetstone_artifacts.sources.remote import Content, Remote, RemoteFile, RemoteFilePlace, RemoteTree

log = logging.getLogger(__name__)

LOCK_SECONDS = 24 * 3600.0
"""How long a pod waits for another one that fetches the same model; its start-up limit ends the wait earlier."""
MODEL_KEY_DIGITS = 32


def open_place(uri: str, credentials: Credentials) -> Remote:
    """Return the reader of a place.

    Args:
        uri: Any URI of `whetstone_api.source` but `pvc://`.
        credentials: What the place asks for.
    """
    # The libraries take seconds to import; a pod with claims only never pays for them.
    scheme = scheme_of(uri)
    if scheme is Scheme.OCI:
        from whetstone_artifacts.sources.oci import OciStore

        return OciStore(uri, credentials)
    from whetstone_artifacts.sources import stores

    if scheme is Scheme.HUB:
        return stores.HubStore(uri, credentials)
    return stores.S3Store(uri, credentials) if scheme is Scheme.S3 else stores.HttpsStore(uri, credentials)


def open_file(uri: str, credentials: Credentials) -> RemoteFilePlace:
    """Return the reader of one file.

    Args:
        uri: Any URI of `FileSource` but `pvc://`.
        credentials: What the place asks for.
    """
    from whetstone_artifacts.sources import stores

    scheme = scheme_of(uri)
    if scheme is Scheme.HUB:
        return stores.HubFile(uri, credentials)
    return stores.S3Store(uri, credentials) if scheme is Scheme.S3 else stores.HttpsStore(uri, credentials)


def open_tree(uri: str, credentials: Credentials) -> RemoteTree:
    """Return the reader of a folder of which every file is wanted.

    Args:
        uri: Any URI of `FolderSource` but `pvc://` and `https://`: a web server does not say what a folder holds.
        credentials: What the place asks for.
    """
    if scheme_of(uri) is Scheme.OCI:
        from whetstone_artifacts.sources.oci import OciStore

        return OciStore(uri, credentials)
    from whetstone_artifacts.sources import stores

    return stores.HubFolder(uri, credentials) if scheme_of(uri) is Scheme.HUB else stores.S3Store(uri, credentials)


def fetch_file(remote: RemoteFilePlace, target: Path, digest: str | None) -> None:
    """Fetch one file: whole and verified at its place, or not there at all.

    Args:
        remote: The place.
        target: The file to make; its folder exists, and only this caller writes it.
        digest: `sha256:…` that it must have; None for any.

    Raises:
        ArtifactError: As `download`; `DIGEST_MISMATCH`.
    """
    staging = target.with_name(f".{target.name}.fetching")
    file = remote.file()
    download(remote, [file], staging)
    found = "sha256:" + sha256_of(staging / file.name)
    if digest is not None and digest != found:
        shutil.rmtree(staging)
        raise ArtifactError(
            Reason.DIGEST_MISMATCH,
            f"digest: uri {remote.uri} holds {found}, not the expected {digest}; restore the file or name the digest"
            " that is there",
        )
    (staging / file.name).rename(target)
    shutil.rmtree(staging)


def listing_signature(files: list[RemoteFile]) -> str:
    """Return what tells one state of a place from another, without its content."""
    return json.dumps(sorted((file.name, file.size, file.tag) for file in files))


def fetch_remote_adapter(remote: Remote, target: Path, digest: str) -> None:
    """Fetch an adapter; calling it again with a verified target does nothing.

    Args:
        remote: The place.
        target: Folder to make; its parent exists.
        digest: Content digest that it must have.

    Raises:
        ArtifactError: As `download` and `verify_adapter`. OSError of the file system passes through.
    """
    # A cancelled attempt goes on in its thread, so its successor must wait for it.
    with output_lock(target, wait_seconds=LOCK_SECONDS):
        if holds_adapter(target, digest):
            return
        staging = target.with_name(f".{target.name}.fetching")
        download(remote, remote.files(Content.ADAPTER), staging)
        try:
            admit_adapter(staging, target, digest, place=f"uri {remote.uri}")
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def model_folder(root: Path, uri: str, digest: str | None) -> Path:
    """Return where a base model lies under a root: two models never share a folder."""
    key = canonical_digest({"uri": uri, "digest": digest}).removeprefix("sha256:")
    return root / key[:MODEL_KEY_DIGITS]


def fetch_model(remote: Remote, root: Path, digest: str | None) -> Path:
    """Fetch a base model into a root that other pods may share, and return its folder.

    Args:
        remote: The place, pinned.
        root: Volume for models.
        digest: Content digest that it must have; None where the uri itself pins the content.

    Raises:
        ArtifactError: As `download`; `DIGEST_MISMATCH`; `OUTPUT_OCCUPIED` after a day's wait for another pod.
    """
    target = model_folder(root, remote.uri, digest)
    if recorded_model(target):
        return target
    with output_lock(target, wait_seconds=LOCK_SECONDS):
        if recorded_model(target):
            return target
        if target.exists():
            shutil.rmtree(target)
        files = remote.files(Content.MODEL)
        staging, refused = (target.with_name(f".{target.name}.{suffix}") for suffix in ("fetching", "refused"))
        # A container that is started again and again must not fetch what it has refused again and again.
        known = _read_refusal(refused, files)
        if known is None:
            download(remote, files, staging)
        manifest = Manifest(digest=known, files={}) if known else describe_model(staging)
        if digest is not None and manifest.digest != digest:
            refused.write_text(json.dumps({"listing": listing_signature(files), "digest": manifest.digest}))
            shutil.rmtree(staging, ignore_errors=True)
            raise ArtifactError(
                Reason.DIGEST_MISMATCH,
                f"digest: uri {remote.uri} holds {manifest.digest}, not the expected {digest}; restore the files or"
                " name the digest that is there",
            )
        refused.unlink(missing_ok=True)
        record_model(staging, manifest)
        publish_folder(staging, target)
    return target


def _read_refusal(path: Path, files: list[RemoteFile]) -> str | None:
    """Return the digest of what was fetched and refused before, while the place has not changed since."""
    try:
        refusal = json.loads(path.read_bytes())
        return str(refusal["digest"]) if refusal["listing"] == listing_signature(files) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
