"""Pushing to a real S3 server and a real OCI registry, and fetching from there again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.adapters import make_adapter, make_model
from support.store_servers import OciRegistry, S3Server, oci_registry, s3_server
from whetstone_api.adapter_artifact import CONFIG_FILE, MANIFEST_FILE, WEIGHTS_FILE
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import adapter_digest
from whetstone_artifacts.models import model_digest
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.fetch import fetch_model, fetch_remote_adapter, open_place
from whetstone_artifacts.sources.parcel import Pushed, read_parcel
from whetstone_artifacts.sources.push import S3Destination, open_destination
from whetstone_cli.__main__ import main

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.filesystem.call_s3("create_bucket", Bucket="pushed")
        yield server


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with oci_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(params=["s3", "oci"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Credentials]:
    """A place that nothing was pushed to yet, and its keys."""
    name = tmp_path.name.replace("_", "-").lower()
    if request.param == "s3":
        return f"s3://pushed/{name}", Credentials(values=request.getfixturevalue("s3").keys)
    registry = request.getfixturevalue("registry")
    return f"oci://{registry.address}/team/{name}:v1", Credentials(values=registry.keys)


def push(folder: Path, place: tuple[str, Credentials]) -> Pushed:
    uri, keys = place
    return open_destination(uri, keys).push(read_parcel(folder))


def refused(folder: Path, place: tuple[str, Credentials]) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        push(folder, place)
    assert place[0] in caught.value.message
    return caught.value


def test_pushed_adapter_comes_back_and_is_found_again(place: tuple[str, Credentials], tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "made")
    pushed = push(tmp_path / "made", place)
    assert (pushed.digest, pushed.found) == (digest, False)
    fetch_remote_adapter(open_place(pushed.uri, place[1]), tmp_path / "t", digest)
    assert adapter_digest(tmp_path / "t") == digest
    assert push(tmp_path / "made", place) == Pushed(uri=pushed.uri, digest=digest, found=True)


def test_pushed_model_comes_back(place: tuple[str, Credentials], tmp_path: Path) -> None:
    make_model(tmp_path / "made")
    pushed = push(tmp_path / "made", place)
    folder = fetch_model(open_place(pushed.uri, place[1]), tmp_path / "cache", pushed.digest)
    assert model_digest(folder) == model_digest(tmp_path / "made") == pushed.digest


def test_another_adapter_is_never_overwritten(place: tuple[str, Credentials], tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "made")
    pushed = push(tmp_path / "made", place)
    make_adapter(tmp_path / "other", config={"lora_alpha": 99})
    error = refused(tmp_path / "other", place)
    assert error.reason is Reason.OUTPUT_OCCUPIED
    assert digest in error.message
    fetch_remote_adapter(open_place(pushed.uri, place[1]), tmp_path / "t", digest)


def test_wrong_keys_are_told_in_a_writers_words(place: tuple[str, Credentials], tmp_path: Path) -> None:
    make_adapter(tmp_path / "made")
    uri, keys = place
    names = {"AWS_SECRET_ACCESS_KEY", "password"}
    error = refused(tmp_path / "made", (uri, Credentials(values={**keys.values, **dict.fromkeys(names, "wrong")})))
    assert error.reason is Reason.SOURCE_FORBIDDEN, error.message
    assert "name a Secret that may write there in secretRef" in error.message


def test_interrupted_push_goes_on_and_the_record_comes_last(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = make_adapter(tmp_path / "made")
    root = "pushed/interrupted"
    s3.filesystem.put_file(str(tmp_path / "made" / CONFIG_FILE), f"{root}/{CONFIG_FILE}")
    written: list[str] = []
    create = S3Destination._create

    def noted(self: S3Destination, address: str, content: Path | bytes) -> None:
        written.append(address.removeprefix(f"{root}/"))
        create(self, address, content)

    monkeypatch.setattr(S3Destination, "_create", noted)
    pushed = push(tmp_path / "made", (f"s3://{root}", Credentials(values=s3.keys)))
    assert (pushed.digest, pushed.found) == (digest, False)
    assert written == [WEIGHTS_FILE, MANIFEST_FILE]


@pytest.mark.parametrize("name", [WEIGHTS_FILE, "note.txt"])
def test_file_of_somebody_else_in_a_bucket_is_left_alone(s3: S3Server, tmp_path: Path, name: str) -> None:
    make_adapter(tmp_path / "made")
    root = f"pushed/{name.split('.')[0]}"
    s3.filesystem.pipe_file(f"{root}/{name}", b"x" * (tmp_path / "made" / WEIGHTS_FILE).stat().st_size)
    error = refused(tmp_path / "made", (f"s3://{root}", Credentials(values=s3.keys)))
    assert error.reason is Reason.OUTPUT_OCCUPIED
    assert name in error.message
    assert not s3.filesystem.exists(f"{root}/{MANIFEST_FILE}")


def test_object_that_appears_meanwhile_is_not_overwritten(s3: S3Server, tmp_path: Path) -> None:
    make_adapter(tmp_path / "made")
    root = "pushed/meanwhile"
    destination = open_destination(f"s3://{root}", Credentials(values=s3.keys))
    listed = destination._listed  # type: ignore[attr-defined]

    def late(prefix: str) -> dict[str, int]:
        found: dict[str, int] = listed(prefix)
        s3.filesystem.pipe_file(f"{root}/{WEIGHTS_FILE}", b"another")
        return found

    destination._listed = late  # type: ignore[attr-defined]
    with pytest.raises(ArtifactError) as caught:
        destination.push(read_parcel(tmp_path / "made"))
    assert caught.value.reason is Reason.OUTPUT_OCCUPIED
    assert s3.filesystem.cat_file(f"{root}/{WEIGHTS_FILE}") == b"another"


def test_bucket_that_does_not_exist_is_told(s3: S3Server, tmp_path: Path) -> None:
    make_adapter(tmp_path / "made")
    error = refused(tmp_path / "made", ("s3://no-such-bucket/a", Credentials(values=s3.keys)))
    assert error.reason is Reason.SOURCE_NOT_FOUND


def test_registry_without_a_tag_gets_one_by_digest(registry: OciRegistry, tmp_path: Path) -> None:
    digests = [make_adapter(tmp_path / str(alpha), config={"lora_alpha": alpha}) for alpha in (1, 2)]
    place = (f"oci://{registry.address}/team/many", Credentials(values=registry.keys))
    uris = [push(tmp_path / str(alpha), place).uri for alpha in (1, 2)]
    for number, uri in enumerate(uris):
        fetch_remote_adapter(open_place(uri, place[1]), tmp_path / f"t{number}", digests[number])
    tagged = (f"{place[0]}:digest-{digests[0][7:19]}", place[1])
    assert push(tmp_path / "1", tagged) == Pushed(uri=uris[0], digest=digests[0], found=True)


def test_artifact_of_another_program_keeps_its_tag(registry: OciRegistry, tmp_path: Path) -> None:
    make_adapter(tmp_path / "made")
    registry.push(tmp_path / "made", "team/foreign")
    error = refused(tmp_path / "made", (f"oci://{registry.address}/team/foreign:v1", Credentials(values=registry.keys)))
    assert error.reason is Reason.OUTPUT_OCCUPIED
    assert "tag v1 names an artifact of another program" in error.message


def test_command_pushes_and_says_where(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = make_adapter(tmp_path / "made")
    for key, value in s3.keys.items():
        monkeypatch.setenv(key, value)
    command = ["push", str(tmp_path / "made"), "s3://pushed/by-command"]
    assert main(command) == 0
    assert main(command) == 0
    told = f"s3://pushed/by-command {digest}\n"
    assert capsys.readouterr().out == f"pushed {told}found {told}"
    make_adapter(tmp_path / "other", config={"lora_alpha": 99})
    assert main(["push", str(tmp_path / "other"), "s3://pushed/by-command"]) == 1
    assert main(["push", str(tmp_path / "made"), "https://h/x"]) == 2
    assert "never overwritten" in capsys.readouterr().err
