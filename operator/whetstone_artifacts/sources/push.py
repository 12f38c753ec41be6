"""Push an adapter or a model to a place: the same content is found there, another one never overwritten.

Files that are at the place already must be equal byte by byte, so an interrupted push goes on, and the record that
makes a place whole is written last. Where the place has commits or manifests of its own, all appears at once.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any, Protocol

from whetstone_api.adapter_artifact import FileEntry, Manifest
from whetstone_api.source import Scheme, Source, scheme_of
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import beside, file_entries, publish_folder
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.parcel import Parcel, Pushed, held_manifest, occupied
from whetstone_artifacts.sources.remote import RemoteFile, unreachable
from whetstone_artifacts.sources.stores import READ_SECONDS, HubStore, S3Store, http_status

CHUNK = 1 << 20
_CONFLICTS = (409, 412)
HUB_OWN_FILES = frozenset({".gitattributes", "README.md"})
"""Files that a hub or its users make in a new repository; they stay as they are."""


class Destination(Protocol):
    """A place to push to. Raises ArtifactError."""

    def push(self, parcel: Parcel) -> Pushed:
        """Put the parcel there, or find it."""
        ...


def open_destination(uri: str, credentials: Credentials, *, folder: Path | None = None) -> Destination:
    """Return the writer of a place.

    Args:
        uri: `pvc://claim/path`, `s3://bucket/key`, `oci://registry/repo[:tag]` or `hf://owner/repo`.
        credentials: What the place asks for.
        folder: Where the claim's folder lies; its mount inside a Job's container when absent.

    Raises:
        ArtifactError: `INVALID_SPEC` for a place that cannot be written to.
    """
    scheme = scheme_of(uri)
    if scheme is Scheme.PVC:
        return FolderDestination(uri, folder or Path(Source(uri=uri).mount_path))
    if scheme is Scheme.S3:
        return S3Destination(uri, credentials)
    if scheme is Scheme.HUB:
        return HubDestination(uri, credentials)
    if scheme is Scheme.OCI:
        from whetstone_artifacts.sources.push_oci import OciDestination

        return OciDestination(uri, credentials)
    raise ArtifactError(Reason.INVALID_SPEC, f"uri {uri}: nothing can be pushed to {scheme}://")


class FolderDestination:
    """A folder of a mounted claim.

    Args:
        uri: The place, for messages and results.
        place: The folder.
    """

    def __init__(self, uri: str, place: Path) -> None:
        self._uri = uri
        self._place = place

    def push(self, parcel: Parcel) -> Pushed:
        """Copy the parcel there by one rename, or find it."""
        with output_lock(self._place):
            if self._place.is_file() or (self._place.is_dir() and any(self._place.iterdir())):
                self._require_held(parcel)
                return Pushed(uri=self._uri, digest=parcel.digest, found=True)
            with beside(self._place) as folder:
                for name in parcel.files:
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(parcel.folder / name, folder / name)
                if file_entries(folder) != dict(parcel.files):
                    raise unreachable(self._uri, f"{parcel.folder} changed while it was copied")
                (folder / parcel.marker).write_bytes(parcel.record)
                publish_folder(folder, self._place)
        return Pushed(uri=self._uri, digest=parcel.digest, found=False)

    def _require_held(self, parcel: Parcel) -> None:
        marker = self._place / parcel.marker
        if not marker.is_file():
            raise occupied(self._uri, f"it holds files without {parcel.marker}")
        held = held_manifest(self._uri, parcel, marker.read_bytes())
        found = file_entries(self._place)
        for name, entry in held.files.items():
            if found.get(name) != entry:
                raise occupied(self._uri, f"{name} there is not what {parcel.marker} says")


class S3Destination(S3Store):
    """A folder of a bucket."""

    def push(self, parcel: Parcel) -> Pushed:
        """Put the parcel's files there and the record last, or find them."""
        root = self.uri.removeprefix("s3://")
        held = self._record(f"{root}/{parcel.marker}", parcel)
        there = {str(name).removeprefix(f"{root}/"): size for name, size in self._listed(root).items()}
        wanted = parcel.files if held is None else held.files
        if held is not None and all(there.get(name) == entry.size for name, entry in wanted.items()):
            return Pushed(uri=self.uri, digest=parcel.digest, found=True)
        strangers = sorted(set(there) - set(parcel.files) - {parcel.marker})
        if strangers:
            raise occupied(self.uri, f"it holds {strangers[0]}, which is not part of what is pushed")
        for name, entry in parcel.files.items():
            if name not in there:
                self._create(f"{root}/{name}", parcel.folder / name)
            self._require_equal(f"{root}/{name}", name, entry, checked=name not in there)
        self._create(f"{root}/{parcel.marker}", parcel.record)
        self._record(f"{root}/{parcel.marker}", parcel)
        return Pushed(uri=self.uri, digest=parcel.digest, found=False)

    def _listed(self, root: str) -> dict[str, int]:
        found = self._guarded(lambda: self._filesystem.find(root, detail=True))
        return {str(name): int(entry["size"]) for name, entry in found.items() if entry["type"] == "file"}

    def _record(self, address: str, parcel: Parcel) -> Manifest | None:
        def read() -> bytes | None:
            try:
                return bytes(self._filesystem.cat_file(address))
            except FileNotFoundError:
                # A bucket that does not exist is told when it is listed.
                return None

        record = self._guarded(read)
        return None if record is None else held_manifest(self.uri, parcel, record)

    def _create(self, address: str, content: Path | bytes) -> None:
        """Write an object that is not there yet; one that another writer made meanwhile is compared afterwards."""

        def write() -> None:
            try:
                if isinstance(content, bytes):
                    self._filesystem.pipe_file(address, content, mode="create")
                else:
                    self._filesystem.put_file(str(content), address, mode="create")
            except Exception as error:
                if http_status(error) not in _CONFLICTS and not isinstance(error, FileExistsError):
                    raise

        self._guarded(write)

    def _require_equal(self, address: str, name: str, entry: FileEntry, *, checked: bool) -> None:
        """Compare an object with the file; of one that was sent just now with checksums, the size is enough."""
        size = self._guarded(lambda: int(self._filesystem.info(address)["size"]))
        if size == entry.size and (checked or self._guarded(lambda: self._sha256(address)) == entry.sha256):
            return
        raise occupied(self.uri, f"{name} there is another file")

    def _sha256(self, address: str) -> str:
        checksum = hashlib.sha256()
        with self._filesystem.open(address, "rb", cache_type="readahead", block_size=8 * CHUNK) as stream:
            while chunk := stream.read(CHUNK):
                checksum.update(chunk)
        return checksum.hexdigest()

    def _explained(self, error: BaseException) -> ArtifactError:
        return to_write(super()._explained(error))


class HubDestination(HubStore):
    """A repository of the Hugging Face Hub: made private, all files in one commit, tagged by their digest."""

    def push(self, parcel: Parcel) -> Pushed:
        """Commit the parcel's files and tag the commit, or find them."""
        repository = self.uri.removeprefix("hf://")
        self._guarded(lambda: self._api.create_repo(repository, private=True, exist_ok=True))
        info = self._guarded(
            lambda: self._api.model_info(repository, revision="main", files_metadata=True, timeout=READ_SECONDS)
        )
        there = {entry.rfilename: entry for entry in info.siblings or []}
        found = parcel.marker in there
        commit = str(info.sha)
        if found:
            size, address = int(there[parcel.marker].size or 0), f"{repository}@{commit}/{parcel.marker}"
            record = RemoteFile(name=parcel.marker, size=size, tag=commit, address=address)
            held_manifest(self.uri, parcel, self.read(record, 0, size))
        else:
            strangers = sorted(set(there) - set(parcel.files) - HUB_OWN_FILES)
            if strangers:
                raise occupied(self.uri, f"it holds {strangers[0]}, which is not part of what is pushed")
            commit = self._commit(repository, parcel, parent=commit, there=there)
        self._guarded(lambda: self._api.create_tag(repository, tag=parcel.tag, revision=commit, exist_ok=True))
        return Pushed(uri=f"hf://{repository}@{commit}", digest=parcel.digest, found=found)

    def _commit(self, repository: str, parcel: Parcel, *, parent: str, there: dict[str, Any]) -> str:
        from huggingface_hub import CommitOperationAdd

        operations = [CommitOperationAdd(path_in_repo=parcel.marker, path_or_fileobj=parcel.record)]
        for name, entry in parcel.files.items():
            if name in HUB_OWN_FILES and name in there:
                continue
            if name in there and not _same(there[name], parcel.folder / name, entry):
                raise occupied(self.uri, f"{name} there is another file")
            operations.append(CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(parcel.folder / name)))
        # The parent keeps a commit of somebody else, made meanwhile, from being buried.
        message = f"Add {parcel.content} {parcel.digest}"
        info = self._guarded(
            lambda: self._api.create_commit(
                repository, operations=operations, commit_message=message, parent_commit=parent
            )
        )
        return str(info.oid)

    def _explained(self, error: BaseException) -> ArtifactError:
        return to_write(super()._explained(error))


def to_write(error: ArtifactError) -> ArtifactError:
    """Return an error of a reader in a writer's words."""
    return ArtifactError(error.reason, error.message.replace("that may read it", "that may write there"))


def _same(sibling: Any, path: Path, entry: FileEntry) -> bool:
    if sibling.lfs is not None:
        return bool(sibling.lfs.sha256 == entry.sha256)
    content = path.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return bool(sibling.blob_id == git)
