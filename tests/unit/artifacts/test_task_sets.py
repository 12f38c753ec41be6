"""Task sets from web servers, hubs and archives: the same tasks arrive, or the reason is told."""

import io
import itertools
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.place_servers import COMMIT, Served, hub_server, web_server
from whetstone_api.task_bundle import BUNDLE_FILE
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.remote import RemoteFile, whole_tree
from whetstone_artifacts.tasks import sets
from whetstone_artifacts.tasks.bundle import packed, read_bundle
from whetstone_artifacts.tasks.folder import read_task, task_folders, tasks_digest
from whetstone_artifacts.tasks.sets import check_task_set, fetch_folder, folder_digest, resolve_place, unpack_folder
from whetstone_cli.__main__ import main

SHELL = Path(__file__).parents[3] / "examples" / "suites" / "shell"
NAMES = ("hello-file", "release-steps")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for name in NAMES:
        shutil.copytree(SHELL / name, tmp_path / "tasks" / name)
    return tmp_path / "tasks"


@pytest.fixture
def bundle(tmp_path: Path, tasks: Path) -> Path:
    assert main(["bundle", str(tasks), "-o", str(tmp_path / "bundle")]) == 0
    return tmp_path / "bundle"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def web(tmp_path: Path, certificates: Path) -> Iterator[Served]:
    (tmp_path / "www").mkdir()
    with web_server(tmp_path / "www", certificates) as served:
        yield served


@pytest.fixture
def hub(tmp_path: Path, tasks: Path) -> Iterator[Served]:
    """A hub whose data set `team/sets` has the tasks in `basic`, and in an archive."""
    shutil.copytree(tasks, tmp_path / "hub" / "team" / "sets" / "basic")
    archive(tasks, tmp_path / "hub" / "team" / "sets" / "packed" / "set.tar.gz")
    with hub_server(tmp_path / "hub") as served:
        yield served


def archive(tasks: Path, file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    with tarfile.open(file, "w:gz") as stream:
        stream.add(tasks, arcname="some-set")
    return file


def zipped(tasks: Path, file: Path) -> Path:
    """Pack tasks as a file manager does: in a folder, without folders of their own in the list."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packing:
        for path in tasks.rglob("*"):
            if path.is_file():
                packing.write(path, f"some-set/{path.relative_to(tasks)}")
    return file


def digest_of(folder: Path) -> str:
    return tasks_digest({path.name: read_task(path).digest for path in task_folders(folder)})


def on_hub(hub: Served) -> Credentials:
    return Credentials(values={"HF_ENDPOINT": hub.url})


def refused(uri: str, credentials: Credentials, target: Path) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        fetch_folder(uri, credentials, target)
    assert not target.exists()
    assert list(target.parent.glob(f".{target.name}*")) == []
    return caught.value


def test_an_archive_on_a_web_server_arrives_unpacked(tmp_path: Path, web: Served, tasks: Path) -> None:
    archive(tasks, tmp_path / "www" / "set.tar.gz")
    fetch_folder(f"{web.url}/set.tar.gz", Credentials(ca_file=web.ca_file), tmp_path / "t")
    assert digest_of(tmp_path / "t") == digest_of(tasks)
    assert list(tmp_path.glob(".t*")) == []


def test_a_zip_archive_is_the_same_set_from_a_web_server_a_hub_and_a_disk(
    tmp_path: Path, web: Served, hub: Served, tasks: Path
) -> None:
    zipped(tasks, tmp_path / "www" / "set.zip")
    shutil.copy(tmp_path / "www" / "set.zip", tmp_path / "hub" / "team" / "sets" / "set.zip")
    fetch_folder(f"{web.url}/set.zip", Credentials(ca_file=web.ca_file), tmp_path / "t-web")
    fetch_folder(f"hf://datasets/team/sets@{COMMIT}/set.zip", on_hub(hub), tmp_path / "t-hub")
    unpack_folder(tmp_path / "www" / "set.zip", tmp_path / "t-disk")
    for name in ("t-web", "t-hub", "t-disk"):
        assert digest_of(tmp_path / name) == digest_of(tasks)
    assert main(["bundle", str(tmp_path / "www" / "set.zip"), "-o", str(tmp_path / "out")]) == 0
    held = read_bundle(tmp_path / "out")
    assert held is not None
    assert held.digest == digest_of(tasks)


def test_a_zip_archive_that_leads_out_leaves_nothing(tmp_path: Path, web: Served) -> None:
    with zipfile.ZipFile(tmp_path / "www" / "set.zip", "w") as packing:
        packing.writestr("a/task.toml", b"")
        packing.writestr("../../slipped", b"x")
    error = refused(f"{web.url}/set.zip", Credentials(ca_file=web.ca_file), tmp_path / "t")
    assert (error.reason, "leads out of the folder" in error.message) == (Reason.TASKS_INVALID, True)
    assert not list(tmp_path.rglob("slipped"))


@pytest.mark.parametrize(("name", "words"), [("none.zip", "does not exist"), ("folder.tar", "is a folder")])
def test_an_archive_that_is_not_there_is_told(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder.tar").mkdir()
    with pytest.raises(ArtifactError, match=words) as caught:
        unpack_folder(tmp_path / name, tmp_path / "t")
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND


def test_how_much_has_arrived_is_told_piece_by_piece(
    tmp_path: Path, hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone_artifacts.sources.download.PIECE_BYTES", 100)
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))

    fetch_folder(f"hf://datasets/team/sets@{COMMIT}/basic", on_hub(hub), tmp_path / "t", progress=progress)
    size = sum(path.stat().st_size for path in (tmp_path / "t").rglob("*") if path.is_file())
    assert (told[0], told[-1]) == ((0, size), (size, size))
    steps = [after - before for (before, _), (after, _) in itertools.pairwise(told)]
    assert len(steps) > size // 100
    assert all(0 < step <= 100 for step in steps)


def test_a_bundle_on_a_web_server_keeps_what_it_says_of_images(tmp_path: Path, web: Served, bundle: Path) -> None:
    with packed(bundle) as parcel:
        shutil.copytree(parcel.folder, tmp_path / "www" / "set")
    fetch_folder(f"{web.url}/set", Credentials(ca_file=web.ca_file), tmp_path / "t")
    held = read_bundle(tmp_path / "t")
    assert held == read_bundle(bundle)
    check_task_set(tmp_path / "t", held.digest if held else None, "set")


def test_a_bundle_in_a_data_set_of_a_hub_is_opened(tmp_path: Path, hub: Served, bundle: Path) -> None:
    with packed(bundle) as parcel:
        shutil.copytree(parcel.folder, tmp_path / "hub" / "team" / "sets" / "bundle")
    fetch_folder(f"hf://datasets/team/sets@{COMMIT}/bundle", on_hub(hub), tmp_path / "t")
    assert read_bundle(tmp_path / "t") == read_bundle(bundle)
    assert digest_of(tmp_path / "t") == digest_of(bundle)


@pytest.mark.parametrize("path", ["/basic", "/packed/set.tar.gz"])
def test_a_folder_and_an_archive_of_a_hub_arrive(tmp_path: Path, hub: Served, tasks: Path, path: str) -> None:
    fetch_folder(f"hf://datasets/team/sets@{COMMIT}{path}", on_hub(hub), tmp_path / "t")
    assert digest_of(tmp_path / "t") == digest_of(tasks)


def test_a_branch_of_a_hub_becomes_its_commit(hub: Served) -> None:
    pinned = f"hf://datasets/team/sets@{COMMIT}/basic"
    assert resolve_place("hf://datasets/team/sets@main/basic", on_hub(hub)) == pinned
    hub.asked.clear()
    assert resolve_place(pinned, on_hub(hub)) == pinned
    assert hub.asked == []


def test_what_a_place_lacks_or_refuses_is_told(tmp_path: Path, web: Served, hub: Served) -> None:
    trusting = Credentials(ca_file=web.ca_file)
    cases = [
        (f"{web.url}/none.tar", trusting, Reason.SOURCE_NOT_FOUND),
        (f"{web.url}/none", trusting, Reason.SOURCE_NOT_FOUND),
        (f"hf://datasets/team/sets@{COMMIT}/none", on_hub(hub), Reason.SOURCE_NOT_FOUND),
        (f"hf://datasets/team/none@{COMMIT}", on_hub(hub), Reason.SOURCE_NOT_FOUND),
        ("https://127.0.0.1:9/set.tar", trusting, Reason.SOURCE_UNREACHABLE),
    ]
    for uri, credentials, reason in cases:
        error = refused(uri, credentials, tmp_path / "t")
        assert (error.reason, uri in error.message) == (reason, True), error.message
    web.authorization = "Bearer key"
    assert refused(f"{web.url}/set.tar", trusting, tmp_path / "t").reason is Reason.SOURCE_FORBIDDEN


def test_what_is_no_archive_or_too_large_is_refused_before_it_fills_the_disk(
    tmp_path: Path, web: Served, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "www" / "text.tar").write_text("no archive")
    archive(tasks, tmp_path / "www" / "set.tar.gz")
    trusting = Credentials(ca_file=web.ca_file)
    assert refused(f"{web.url}/text.tar", trusting, tmp_path / "t").reason is Reason.TASKS_INVALID
    monkeypatch.setattr(sets, "FOLDER_BYTES", 10)
    web.asked.clear()
    error = refused(f"{web.url}/set.tar.gz", trusting, tmp_path / "t")
    assert error.reason is Reason.TASKS_INVALID
    assert "put the folder in a claim" in error.message
    assert web.ranges("set.tar.gz") == []


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../../b", "./a"])
def test_names_that_lead_out_of_a_folder_are_refused(name: str) -> None:
    with pytest.raises(ArtifactError, match="cannot be that of a file"):
        whole_tree("s3://b/k", [RemoteFile(name=name, size=1, tag="", address=name)])


def test_a_file_in_the_place_of_a_folder_is_refused() -> None:
    files = [RemoteFile(name=name, size=1, tag="", address=name) for name in ("a", "a/b")]
    with pytest.raises(ArtifactError, match="'a' cannot be"):
        whole_tree("s3://b/k", files)


def test_a_set_is_held_to_the_digest_that_a_bundle_prints(tasks: Path, bundle: Path) -> None:
    held = read_bundle(bundle)
    assert held is not None
    for place in (tasks, bundle):
        check_task_set(place, held.digest, "here")
        with pytest.raises(ArtifactError, match=held.digest) as caught:
            check_task_set(place, "sha256:" + "0" * 64, "here")
        assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_tasks_that_are_not_those_of_their_bundle_are_refused(bundle: Path) -> None:
    (bundle / "tasks" / "hello-file" / "instruction.md").write_text("Something else.\n")
    with pytest.raises(ArtifactError, match=BUNDLE_FILE) as caught:
        check_task_set(bundle, None, "here")
    assert caught.value.reason is Reason.DIGEST_MISMATCH


def test_a_folder_without_tasks_names_the_archives_in_it(tmp_path: Path, tasks: Path) -> None:
    archive(tasks, tmp_path / "f" / "set.tar.gz")
    with pytest.raises(ArtifactError, match=r"name the file that holds them \(there is set.tar.gz\)") as caught:
        check_task_set(tmp_path / "f", None, "here")
    assert caught.value.reason is Reason.TASKS_INVALID


def test_the_digest_of_a_folder_changes_with_anything_in_it(tmp_path: Path, tasks: Path) -> None:
    first = folder_digest(tasks)
    shutil.copytree(tasks, tmp_path / "copy")
    assert folder_digest(tmp_path / "copy") == first
    (tmp_path / "copy" / "link").symlink_to("hello-file")
    linked = folder_digest(tmp_path / "copy")
    (tmp_path / "copy" / "link").unlink()
    (tmp_path / "copy" / "link").symlink_to("release-steps")
    assert len({first, linked, folder_digest(tmp_path / "copy")}) == 3


def test_rows_of_parquet_share_one_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet
    from whetstone_artifacts.archives import Allowance
    from whetstone_artifacts.tasks import unpack

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as packing:
        info = tarfile.TarInfo("task.toml")
        info.size = 1000
        packing.addfile(info, io.BytesIO(bytes(1000)))
    rows = [{"path": name, "task_binary": stream.getvalue()} for name in ("a", "b")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "set.parquet")
    monkeypatch.setattr(unpack, "Allowance", lambda: Allowance(size=1500))
    (tmp_path / "t").mkdir()
    with pytest.raises(ArtifactError, match="unpacks to more than"):
        unpack.unpack_tasks(tmp_path / "set.parquet", tmp_path / "t")


@pytest.mark.parametrize(
    ("source", "options", "revision"),
    [
        ("hf://datasets/team/sets/basic", [], COMMIT),
        ("hf://datasets/team/sets@main/basic", [], COMMIT),
        ("hf://datasets/team/sets", ["--revision", COMMIT, "--path", "basic"], COMMIT),
        ("hf://datasets/team/sets/packed/set.tar.gz", ["--revision", "main"], COMMIT),
    ],
)
def test_a_bundle_is_made_of_a_data_set_of_a_hub_and_keeps_its_commit(
    tmp_path: Path,
    hub: Served,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    options: list[str],
    revision: str,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert main(["bundle", source, "-o", str(tmp_path / "out"), *options]) == 0
    made, held = read_bundle(tmp_path / "out"), read_bundle(bundle)
    assert made is not None
    assert held is not None
    assert made.digest == held.digest
    assert made.provenance.source == source
    assert [f"@{revision}" in one for one in made.provenance.revisions] == [True]
    assert list(tmp_path.glob(".bundle-*")) == []


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["hf://datasets/team/sets@nowhere"], "it does not exist", 1),
        (["hf://team/sets"], "there is no such folder or file", 1),
        (["hf://datasets/team/sets@main", "--revision", "main"], "--revision is for", 2),
        (["somewhere", "--revision", "main"], "--revision is for", 2),
    ],
)
def test_a_source_on_a_hub_that_is_wrong_is_told(
    hub: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
    code: int,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert main(["bundle", *arguments, "--dry-run"]) == code
    assert words in capsys.readouterr().err
