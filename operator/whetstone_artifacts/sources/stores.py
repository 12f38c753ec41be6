"""Places behind fsspec: S3, HTTPS and the Hugging Face Hub."""

import json
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from whetstone_api.source import is_commit, split_hub, split_hub_file, split_hub_folder

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.remote import (
    OPTIONAL_FILES,
    READ_ATTEMPTS,
    REQUIRED_FILES,
    Content,
    RemoteFile,
    forbidden,
    not_found,
    selected,
    unreachable,
    whole_tree,
)

CONNECT_SECONDS = 10
READ_SECONDS = 60
_INDEX = "model.safetensors.index.json"


class Store:
    """A place behind an fsspec file system.

    Args:
        uri: The place, for messages.
        filesystem: The file system.
        credentials: What it was made with; messages repeat none of it.
    """

    attempts = READ_ATTEMPTS

    def __init__(self, uri: str, filesystem: Any, credentials: Credentials) -> None:
        self.uri = uri
        self._filesystem = filesystem
        self._credentials = credentials

    def read(self, file: RemoteFile, start: int, length: int) -> bytes:
        """Return so many bytes from an offset.

        Raises:
            ArtifactError: `SOURCE_NOT_FOUND`, `SOURCE_FORBIDDEN` or `SOURCE_UNREACHABLE`.
        """

        def fetch() -> bytes:
            options = {"cache_type": "none", "block_size": length, "size": file.size}
            with self._filesystem.open(file.address, "rb", **options) as stream:
                stream.seek(start)
                return bytes(stream.read(length))

        return self._guarded(fetch)

    def _guarded[T](self, call: Callable[[], T]) -> T:
        """Call the library and turn what it raises into our errors."""
        try:
            return call()
        except ArtifactError:
            raise
        except Exception as error:
            told = self._explained(error)
            raise ArtifactError(told.reason, self._credentials.hidden(told.message)) from error

    def _explained(self, error: BaseException) -> ArtifactError:
        status = http_status(error)
        answer = str(error) or type(error).__name__
        if status in (401, 403) or isinstance(error, PermissionError):
            return forbidden(self.uri, answer)
        if status == 404 or (status is None and isinstance(error, FileNotFoundError) and error.__cause__ is None):
            return not_found(self.uri, "it does not exist")
        if isinstance(error, FileNotFoundError):
            # fsspec calls everything that a web server does not answer well a missing file.
            answer = str(error.__cause__)
        return unreachable(self.uri, answer)


class S3Store(Store):
    """A folder of a bucket."""

    def __init__(self, uri: str, credentials: Credentials) -> None:
        from s3fs import S3FileSystem

        client: dict[str, Any] = {}
        if region := credentials.get("AWS_REGION"):
            client["region_name"] = region
        if credentials.ca_file is not None:
            client["verify"] = str(credentials.ca_file)
        key = credentials.get("AWS_ACCESS_KEY_ID")
        super().__init__(
            uri,
            S3FileSystem(
                anon=key is None,
                key=key,
                secret=credentials.get("AWS_SECRET_ACCESS_KEY"),
                token=credentials.get("AWS_SESSION_TOKEN"),
                endpoint_url=credentials.get("AWS_ENDPOINT_URL"),
                client_kwargs=client,
                config_kwargs={"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS},
                use_listings_cache=False,
                skip_instance_cache=True,
            ),
            credentials,
        )

    def file(self) -> RemoteFile:
        """Return the one file that the uri names.

        Raises:
            ArtifactError: As `read`.
        """
        address = self.uri.removeprefix("s3://")
        entry = self._guarded(lambda: self._filesystem.info(address))
        if entry["type"] != "file":
            raise not_found(self.uri, "it is a folder, not a file")
        tag = str(entry.get("ETag", "")).strip('"')
        return RemoteFile(name=address.rsplit("/", 1)[-1], size=int(entry["size"]), tag=tag, address=address)

    def files(self, content: Content) -> list[RemoteFile]:
        """Return the files to fetch.

        Raises:
            ArtifactError: As `read`.
        """
        listed = self._guarded(lambda: self._filesystem.ls(self.uri.removeprefix("s3://"), detail=True))
        files = [
            RemoteFile(
                name=str(entry["name"]).rsplit("/", 1)[-1],
                size=int(entry["size"]),
                tag=str(entry.get("ETag", "")).strip('"'),
                address=str(entry["name"]),
            )
            for entry in listed
            if entry["type"] == "file"
        ]
        return selected(self.uri, files, content)

    def tree(self) -> list[RemoteFile]:
        """Return every file below the uri.

        Raises:
            ArtifactError: As `read`.
        """
        root = self.uri.removeprefix("s3://")
        listed = self._guarded(lambda: self._filesystem.find(root, detail=True))
        files = [
            RemoteFile(
                name=str(name).removeprefix(f"{root}/"),
                size=int(entry["size"]),
                tag=str(entry.get("ETag", "")).strip('"'),
                address=str(name),
            )
            for name, entry in listed.items()
            if str(name) != root and entry["type"] == "file"
        ]
        return whole_tree(self.uri, files)

    def _explained(self, error: BaseException) -> ArtifactError:
        # The library knows S3's codes. Some servers say 404 for a key that they do not know.
        if isinstance(error, FileNotFoundError):
            return not_found(self.uri, "the bucket or the folder in it does not exist")
        if 400 <= (http_status(error) or 0) < 500:
            return forbidden(self.uri, str(error))
        return unreachable(self.uri, str(error) or type(error).__name__)


class HttpsStore(Store):
    """A folder of a web server. It cannot be listed, so files are asked for by their well-known names."""

    def __init__(self, uri: str, credentials: Credentials) -> None:
        import aiohttp
        from fsspec.implementations.http import HTTPFileSystem

        client: dict[str, Any] = {
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
            # Else the proxies of the environment do not count.
            "trust_env": True,
        }
        if token := credentials.get("token"):
            client["headers"] = {"Authorization": f"Bearer {token}"}
        elif user := credentials.get("username"):
            client["auth"] = aiohttp.BasicAuth(user, credentials.get("password") or "")
        options: dict[str, Any] = {}
        if credentials.ca_file is not None:
            options["ssl"] = ssl.create_default_context(cafile=str(credentials.ca_file))
        filesystem = HTTPFileSystem(client_kwargs=client, encoded=True, skip_instance_cache=True, **options)
        super().__init__(uri, filesystem, credentials)

    def files(self, content: Content) -> list[RemoteFile]:
        """Return the files to fetch.

        Raises:
            ArtifactError: As `read`.
        """
        found = [self._info(name) for name in REQUIRED_FILES[content]]
        found += [file for name in OPTIONAL_FILES[content] if (file := self._optional(name)) is not None]
        if content is Content.MODEL:
            found += self._weights()
        return selected(self.uri, found, content)

    def _weights(self) -> list[RemoteFile]:
        index = self._optional(_INDEX)
        if index is None:
            return [self._info("model.safetensors")]
        try:
            names = {str(name) for name in json.loads(self.read(index, 0, index.size))["weight_map"].values()}
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise not_found(self.uri, f"{_INDEX} is not an index of weights ({error})") from error
        return [index, *(self._info(name) for name in sorted(names) if Content.MODEL.takes(name))]

    def _optional(self, name: str) -> RemoteFile | None:
        try:
            return self._info(name)
        except ArtifactError as error:
            # Object stores behind a web address say 403 for what is not there.
            if http_status(error.__cause__) in (403, 404):
                return None
            raise

    def file(self) -> RemoteFile:
        """Return the one file that the uri names.

        Raises:
            ArtifactError: As `read`.
        """
        return self._at(self.uri, self.uri.rsplit("/", 1)[-1])

    def _info(self, name: str) -> RemoteFile:
        return self._at(f"{self.uri}/{quote(name)}", name)

    def _at(self, address: str, name: str) -> RemoteFile:
        info = self._guarded(lambda: self._filesystem.info(address))
        if info.get("size") is None:
            raise unreachable(self.uri, f"the server does not say how long {name} is (Content-Length)")
        tag = info.get("ETag") or info.get("Last-Modified") or ""
        return RemoteFile(name=name, size=int(info["size"]), tag=str(tag), address=address)


class OnHub(Store):
    """What lies on the Hugging Face Hub, or on a server with its API."""

    attempts = 1  # the library repeats by itself

    def __init__(self, uri: str, credentials: Credentials) -> None:
        from huggingface_hub import HfApi, HfFileSystem

        endpoint = credentials.get("HF_ENDPOINT")
        # False, not None: a token of the process must never be sent for a user who gave none.
        token: str | bool = credentials.get("HF_TOKEN") or False
        self._api = HfApi(endpoint=endpoint, token=token)
        filesystem = HfFileSystem(endpoint=endpoint, token=token, use_listings_cache=False, skip_instance_cache=True)
        super().__init__(uri, filesystem, credentials)


class HubStore(OnHub):
    """A repository of the Hugging Face Hub, or of a server with its API, at one commit."""

    def files(self, content: Content) -> list[RemoteFile]:
        """Return the files to fetch.

        Raises:
            ArtifactError: As `read`.
        """
        repository, revision = split_hub(self.uri)
        info = self._guarded(
            lambda: self._api.model_info(repository, revision=revision, files_metadata=True, timeout=READ_SECONDS)
        )
        files = [
            RemoteFile(
                name=entry.rfilename,
                size=int(entry.size or 0),
                tag=str(entry.lfs.sha256 if entry.lfs else entry.blob_id),
                address=f"{repository}@{quote(str(info.sha), safe='')}/{entry.rfilename}",
                sha256=entry.lfs.sha256 if entry.lfs else None,
            )
            for entry in info.siblings or []
        ]
        return selected(self.uri, files, content)


class HubFile(OnHub):
    """A file of a dataset of the Hugging Face Hub, or of a server with its API, at one commit."""

    def file(self) -> RemoteFile:
        """Return the one file that the uri names.

        Raises:
            ArtifactError: As `read`.
        """
        repository, revision, path = split_hub_file(self.uri)
        found = self._listed(repository, revision).get(path)
        if found is None:
            raise not_found(self.uri, f"there is no {path} in the dataset at this revision")
        return replace(found, name=path.rsplit("/", 1)[-1])

    def _listed(self, repository: str, revision: str) -> dict[str, RemoteFile]:
        info = self._guarded(
            lambda: self._api.dataset_info(repository, revision=revision, files_metadata=True, timeout=READ_SECONDS)
        )
        return {
            entry.rfilename: RemoteFile(
                name=entry.rfilename,
                size=int(entry.size or 0),
                tag=str(entry.lfs.sha256 if entry.lfs else entry.blob_id),
                address=f"datasets/{repository}@{info.sha}/{entry.rfilename}",
                sha256=entry.lfs.sha256 if entry.lfs else None,
            )
            for entry in info.siblings or []
        }


class HubFolder(HubFile):
    """A folder of such a dataset, or all of it."""

    def tree(self) -> list[RemoteFile]:
        """Return every file below the uri.

        Raises:
            ArtifactError: As `read`.
        """
        repository, revision, path = split_hub_folder(self.uri)
        prefix = f"{path}/" if path else ""
        listed = self._listed(repository, revision)
        files = [
            replace(file, name=name.removeprefix(prefix)) for name, file in listed.items() if name.startswith(prefix)
        ]
        return whole_tree(self.uri, files)

    def resolved(self) -> str:
        """Return the uri with its revision replaced by the commit that it names now.

        Raises:
            ArtifactError: As `read`.
        """
        repository, revision, path = split_hub_folder(self.uri)
        if is_commit(revision):
            return self.uri
        info = self._guarded(lambda: self._api.dataset_info(repository, revision=revision, timeout=READ_SECONDS))
        return f"hf://datasets/{repository}@{info.sha}" + (f"/{path}" if path else "")


def resolve_revision(uri: str, credentials: Credentials, *, timeout_seconds: float = CONNECT_SECONDS) -> str:
    """Return an `hf://` URI with its revision replaced by the commit that it names now.

    Args:
        uri: The place.
        credentials: Token and endpoint.
        timeout_seconds: How long the hub may take.

    Raises:
        ArtifactError: `SOURCE_NOT_FOUND`, `SOURCE_FORBIDDEN` or `SOURCE_UNREACHABLE`.
    """
    store = HubStore(uri, credentials)
    repository, revision = split_hub(uri)
    info = store._guarded(  # noqa: SLF001 - of the same module
        lambda: store._api.model_info(repository, revision=revision, timeout=timeout_seconds)  # noqa: SLF001
    )
    return f"hf://{repository}@{info.sha}"


def http_status(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an exception: libraries hide it at three different places."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
        else:
            status = getattr(response, "status_code", None) or getattr(error, "status", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return None
