"""Task sets from a real S3 server and a real OCI registry, as `whetstone bundle --push` leaves them there."""

import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.store_servers import OciRegistry, S3Server, oci_registry, s3_server
from whetstone_api.source import scheme_of
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials, read_credentials
from whetstone_artifacts.tasks.bundle import read_bundle
from whetstone_artifacts.tasks.sets import check_task_set, fetch_folder
from whetstone_cli.__main__ import main

pytestmark = pytest.mark.integration
SHELL = Path(__file__).parents[2] / "examples" / "suites" / "shell"
NAMES = ("hello-file", "release-steps")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.filesystem.call_s3("create_bucket", Bucket="sets")
        yield server


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with oci_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


def secret(folder: Path, values: dict[str, str]) -> Path:
    folder.mkdir()
    for key, value in values.items():
        (folder / key).write_text(value)
    return folder


@pytest.fixture(params=["s3", "oci"])
def pushed(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[str, Credentials]:
    """A bundle that was pushed: its place, and what the place asks for."""
    store: S3Server | OciRegistry = request.getfixturevalue("s3" if request.param == "s3" else "registry")
    where = "s3://sets/bundle" if isinstance(store, S3Server) else f"oci://{store.address}/sets/bundle"
    keys = secret(tmp_path / "keys", store.keys)
    names = [word for name in NAMES for word in ("--include", name)]
    command = ["bundle", str(SHELL), "-o", str(tmp_path / "bundle"), *names, "--push", where, "--secret", str(keys)]
    assert main(command) == 0
    uri = capsys.readouterr().out.splitlines()[-1].split()[1]
    return uri, read_credentials(scheme_of(uri), keys)


def test_a_bundle_arrives_as_it_was_pushed(pushed: tuple[str, Credentials], tmp_path: Path) -> None:
    uri, keys = pushed
    fetch_folder(uri, keys, tmp_path / "t")
    held = read_bundle(tmp_path / "bundle")
    assert held is not None
    assert read_bundle(tmp_path / "t") == held
    check_task_set(tmp_path / "t", held.digest, uri)


def test_keys_that_are_wrong_are_refused(pushed: tuple[str, Credentials], tmp_path: Path) -> None:
    uri, keys = pushed
    wrong = dict.fromkeys({"AWS_SECRET_ACCESS_KEY", "password"} & set(keys.values), "wrong")
    with pytest.raises(ArtifactError) as caught:
        fetch_folder(uri, Credentials(values={**keys.values, **wrong}), tmp_path / "t")
    assert caught.value.reason is Reason.SOURCE_FORBIDDEN


def test_a_folder_and_an_archive_of_a_bucket_are_the_same_set(s3: S3Server, tmp_path: Path) -> None:
    for name in NAMES:
        shutil.copytree(SHELL / name, tmp_path / "tasks" / name)
    for path in (tmp_path / "tasks").rglob("*"):
        if path.is_file():
            s3.filesystem.put_file(str(path), f"sets/folder/{path.relative_to(tmp_path / 'tasks')}")
    with tarfile.open(tmp_path / "set.tgz", "w:gz") as packing:
        packing.add(tmp_path / "tasks", arcname="tasks")
    s3.filesystem.put_file(str(tmp_path / "set.tgz"), "sets/set.tgz")
    assert main(["bundle", str(tmp_path / "tasks"), "-o", str(tmp_path / "bundle")]) == 0
    held = read_bundle(tmp_path / "bundle")
    assert held is not None
    for number, uri in enumerate(("s3://sets/folder", "s3://sets/set.tgz")):
        fetch_folder(uri, Credentials(values=s3.keys), tmp_path / f"t-{number}")
        check_task_set(tmp_path / f"t-{number}", held.digest, uri)


def test_a_zip_archive_of_a_bucket_or_a_registry_is_the_same_set(
    s3: S3Server, registry: OciRegistry, tmp_path: Path
) -> None:
    (tmp_path / "zipped").mkdir()
    with zipfile.ZipFile(tmp_path / "zipped" / "set.zip", "w", zipfile.ZIP_DEFLATED) as packing:
        for path in (path for name in NAMES for path in (SHELL / name).rglob("*") if path.is_file()):
            packing.write(path, path.relative_to(SHELL))
    s3.filesystem.put_file(str(tmp_path / "zipped" / "set.zip"), "sets/set.zip")
    places = {"s3://sets/set.zip": s3.keys, registry.push(tmp_path / "zipped", "sets/zipped"): registry.keys}
    names = [word for name in NAMES for word in ("--include", name)]
    assert main(["bundle", str(SHELL), "-o", str(tmp_path / "bundle"), *names]) == 0
    held = read_bundle(tmp_path / "bundle")
    assert held is not None
    for number, (uri, keys) in enumerate(places.items()):
        fetch_folder(uri, Credentials(values=keys), tmp_path / f"t-{number}")
        check_task_set(tmp_path / f"t-{number}", held.digest, uri)


@pytest.mark.parametrize("uri", ["s3://sets/none", "s3://no-such-bucket/none", "s3://sets/none.tar"])
def test_what_is_not_there_is_not_found(s3: S3Server, tmp_path: Path, uri: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        fetch_folder(uri, Credentials(values=s3.keys), tmp_path / "t")
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND
    assert uri in caught.value.message
