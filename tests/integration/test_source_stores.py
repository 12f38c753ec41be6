"""Fetching from a real S3 server and a real OCI registry."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.adapters import make_adapter, make_model
from support.store_servers import LOGIN, OciRegistry, S3Server, oci_registry, s3_server
from whetstone_api.adapter_artifact import WEIGHTS_FILE
from whetstone_api.source import scheme_of
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import adapter_digest
from whetstone_artifacts.models import model_digest
from whetstone_artifacts.sources import download as downloads
from whetstone_artifacts.sources.credentials import Credentials, read_credentials
from whetstone_artifacts.sources.fetch import fetch_file, fetch_model, fetch_remote_adapter, open_file, open_place
from whetstone_artifacts.sources.remote import Content, Remote, RemoteFile

pytestmark = pytest.mark.integration
PIECE = 128


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PIECE_BYTES", PIECE)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with oci_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


class Killed(BaseException):
    """The process that fetched is gone."""


class Counting:
    """A place that notes what is read of it and is killed after some reads.

    Args:
        remote: The place.
        reads: How many reads it survives.
    """

    def __init__(self, remote: Remote, reads: int = 1 << 30) -> None:
        self.uri, self.attempts = remote.uri, remote.attempts
        self.read_spans: list[tuple[str, int]] = []
        self._remote, self._reads = remote, reads

    def files(self, content: Content) -> list[RemoteFile]:
        """Return the place's files, the weights first."""
        return sorted(self._remote.files(content), key=lambda file: not file.name.endswith(".safetensors"))

    def read(self, file: RemoteFile, start: int, length: int) -> bytes:
        """Read, or die."""
        if len(self.read_spans) >= self._reads:
            raise Killed
        self.read_spans.append((file.name, start))
        return self._remote.read(file, start, length)


@pytest.fixture(params=["s3", "oci"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str], str]:
    """An adapter that was uploaded: its URI, what the Secret holds, and its digest."""
    digest = make_adapter(tmp_path / "made")
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        server.upload(tmp_path / "made", f"adapters/{tmp_path.name}")
        return f"s3://adapters/{tmp_path.name}", server.keys, digest
    store: OciRegistry = request.getfixturevalue("registry")
    return store.push(tmp_path / "made", f"team/{tmp_path.name.replace('_', '-')}".lower()), store.keys, digest


def secret(folder: Path, values: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for key, value in values.items():
        (folder / key).write_text(value)
    return folder


def opened(uri: str, values: dict[str, str], folder: Path) -> Remote:
    return open_place(uri, read_credentials(scheme_of(uri), secret(folder / "secret", values)))


def fetch(remote: Remote, target: Path, digest: str) -> None:
    fetch_remote_adapter(remote, target, digest)


def refused(uri: str, credentials: Credentials) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        open_place(uri, credentials).files(Content.ADAPTER)
    assert uri in caught.value.message
    return caught.value


def test_adapter_arrives_whole(place: tuple[str, dict[str, str], str], tmp_path: Path) -> None:
    uri, keys, digest = place
    fetch(opened(uri, keys, tmp_path), tmp_path / "t", digest)
    assert adapter_digest(tmp_path / "t") == digest


def test_killed_download_goes_on_where_it_was(
    place: tuple[str, dict[str, str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WORKERS", 1)
    uri, keys, digest = place
    first = Counting(opened(uri, keys, tmp_path), reads=2)
    with pytest.raises(Killed):
        fetch(first, tmp_path / "t", digest)
    assert first.read_spans == [(WEIGHTS_FILE, 0), (WEIGHTS_FILE, PIECE)]
    second = Counting(opened(uri, keys, tmp_path))
    fetch(second, tmp_path / "t", digest)
    assert min(start for name, start in second.read_spans if name == WEIGHTS_FILE) == 2 * PIECE


def test_wrong_digest_is_refused(place: tuple[str, dict[str, str], str], tmp_path: Path) -> None:
    uri, keys, digest = place
    with pytest.raises(ArtifactError, match=digest) as caught:
        fetch(opened(uri, keys, tmp_path), tmp_path / "t", "sha256:" + "0" * 64)
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_what_is_not_there_is_not_found(s3: S3Server, registry: OciRegistry) -> None:
    s3.upload(Path(__file__).parent / "constraints", "adapters/other")
    for uri in ("s3://adapters/none", "s3://no-such-bucket/none"):
        assert refused(uri, Credentials(values=s3.keys)).reason is Reason.SOURCE_NOT_FOUND
    uri = f"oci://{registry.address}/team/none@sha256:{'0' * 64}"
    assert refused(uri, Credentials(values=registry.keys)).reason is Reason.SOURCE_NOT_FOUND


@pytest.mark.parametrize("wrong", ["none", "bad"])
def test_missing_or_wrong_keys_are_refused(place: tuple[str, dict[str, str], str], wrong: str) -> None:
    uri, keys, _ = place
    names = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "username", "password"}
    if wrong == "none":
        keys = {key: value for key, value in keys.items() if key not in names}
    else:
        keys = {**keys, **dict.fromkeys(names & set(keys), "wrong")}
    error = refused(uri, Credentials(values=keys))
    assert error.reason is Reason.SOURCE_FORBIDDEN, error.message
    assert "secretRef" in error.message


def test_login_of_a_docker_config_is_used(registry: OciRegistry, tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "made")
    uri = registry.push(tmp_path / "made", "team/docker-config")
    auth = b64encode(f"{LOGIN['username']}:{LOGIN['password']}".encode()).decode()
    config = json.dumps({"auths": {registry.address: {"auth": auth}}})
    fetch(opened(uri, {".dockerconfigjson": config, "plainHTTP": "true"}, tmp_path), tmp_path / "t", digest)


def test_model_comes_from_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    s3.upload(tmp_path / "model", "models/tiny")
    digest = model_digest(tmp_path / "model")
    folder = fetch_model(opened("s3://models/tiny", s3.keys, tmp_path), tmp_path / "cache", digest)
    assert model_digest(folder) == digest


def test_one_file_comes_from_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    rows, folder = b'{"prompt": "q", "completion": "a"}\n' * 20, tmp_path / "made"
    folder.mkdir()
    (folder / "rows.jsonl").write_bytes(rows)
    s3.upload(folder, "data/chat")
    keys = Credentials(values=s3.keys)
    fetch_file(open_file("s3://data/chat/rows.jsonl", keys), tmp_path / "rows.jsonl", None)
    assert (tmp_path / "rows.jsonl").read_bytes() == rows
    for uri, reason in (
        ("s3://data/chat/absent.jsonl", Reason.SOURCE_NOT_FOUND),
        ("s3://data/chat", Reason.SOURCE_NOT_FOUND),
    ):
        with pytest.raises(ArtifactError) as caught:
            fetch_file(open_file(uri, keys), tmp_path / "t", None)
        assert caught.value.reason is reason
    wrong = Credentials(values={**s3.keys, "AWS_SECRET_ACCESS_KEY": "wrong"})
    with pytest.raises(ArtifactError) as caught:
        fetch_file(open_file("s3://data/chat/rows.jsonl", wrong), tmp_path / "t", None)
    assert caught.value.reason is Reason.SOURCE_FORBIDDEN
