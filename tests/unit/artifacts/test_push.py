"""Pushing adapters and models to folders and to a hub, and fetching them again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.adapters import lineage, make_adapter, make_model
from support.place_servers import Served, hub_server
from whetstone_api.adapter_artifact import LINEAGE_FILE, MANIFEST_FILE, WEIGHTS_FILE
from whetstone_api.source import Scheme
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import adapter_digest, fetch_adapter
from whetstone_artifacts.models import model_digest, recorded_model
from whetstone_artifacts.sources.credentials import Credentials, credentials_of_environment
from whetstone_artifacts.sources.fetch import fetch_remote_adapter, open_place
from whetstone_artifacts.sources.parcel import Pushed, read_parcel
from whetstone_artifacts.sources.push import open_destination

REPOSITORY = "team/shell"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A hub without the chunk store, as mirrors are."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with hub_server(tmp_path / "hub") as served:
        served.authorization = "Bearer t"
        yield served


def push(folder: Path, uri: str, *, to: Path | None = None, hub: Served | None = None, token: str = "t") -> Pushed:
    keys = Credentials(values={"HF_ENDPOINT": hub.url, "HF_TOKEN": token} if hub else {})
    return open_destination(uri, keys, folder=to).push(read_parcel(folder))


def refused(folder: Path, uri: str, **options: object) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        push(folder, uri, **options)  # type: ignore[arg-type]
    assert uri in caught.value.message
    return caught.value


def test_adapter_is_copied_into_a_claim_once(tmp_path: Path) -> None:
    digest = make_adapter(tmp_path / "made", history=lineage())
    uri, to = "pvc://shared/a/b", tmp_path / "shared" / "a" / "b"
    assert push(tmp_path / "made", uri, to=to) == Pushed(uri=uri, digest=digest, found=False)
    before = (to / WEIGHTS_FILE).stat()
    assert push(tmp_path / "made", uri, to=to) == Pushed(uri=uri, digest=digest, found=True)
    assert (to / WEIGHTS_FILE).stat() == before
    fetch_adapter(to, tmp_path / "t", digest)
    assert (to / LINEAGE_FILE).is_file()
    assert [path.name for path in to.parent.iterdir() if "partial" in path.name] == []


def test_model_is_copied_with_its_record(tmp_path: Path) -> None:
    make_model(tmp_path / "made")
    to = tmp_path / "shared" / "m"
    pushed = push(tmp_path / "made", "pvc://shared/m", to=to)
    assert pushed.digest == model_digest(tmp_path / "made") == model_digest(to)
    assert recorded_model(to) is not None
    assert push(tmp_path / "made", "pvc://shared/m", to=to).found


@pytest.mark.parametrize("what", ["another adapter", "other files", "a damaged adapter"])
def test_claim_with_other_content_is_left_alone(tmp_path: Path, what: str) -> None:
    make_adapter(tmp_path / "made")
    to = tmp_path / "shared"
    if what == "other files":
        to.mkdir()
        (to / "note.txt").write_text("mine")
    else:
        make_adapter(to, config={"lora_alpha": 99} if what == "another adapter" else {})
    if what == "a damaged adapter":
        (to / WEIGHTS_FILE).write_bytes(b"cut")
    before = {path: path.read_bytes() for path in to.iterdir()}
    error = refused(tmp_path / "made", "pvc://shared/x", to=to)
    assert error.reason is Reason.OUTPUT_OCCUPIED
    assert "never overwritten" in error.message
    assert {path: path.read_bytes() for path in to.iterdir()} == before


def test_adapter_on_a_hub_is_private_tagged_and_can_be_fetched(tmp_path: Path, hub: Served) -> None:
    digest = make_adapter(tmp_path / "made", history=lineage())
    pushed = push(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub)
    commit = hub.heads[REPOSITORY]
    assert pushed == Pushed(uri=f"hf://{REPOSITORY}@{commit}", digest=digest, found=False)
    assert hub.made == {REPOSITORY: "private"}
    assert hub.tags == {(REPOSITORY, f"digest-{digest[7:19]}"): commit}
    keys = Credentials(values={"HF_ENDPOINT": hub.url, "HF_TOKEN": "t"})
    fetch_remote_adapter(open_place(pushed.uri, keys), tmp_path / "t", digest)
    assert adapter_digest(tmp_path / "t") == digest


def test_adapter_that_a_hub_has_is_found_and_its_missing_tag_made(tmp_path: Path, hub: Served) -> None:
    make_adapter(tmp_path / "made")
    first = push(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub)
    hub.tags.clear()
    again = push(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub)
    assert (again.uri, again.found) == (first.uri, True)
    assert list(hub.tags.values()) == [hub.heads[REPOSITORY]]


@pytest.mark.parametrize("what", ["another adapter", "another file", "another file of that name"])
def test_repository_with_other_content_is_left_alone(tmp_path: Path, hub: Served, what: str) -> None:
    folder = tmp_path / "hub" / REPOSITORY
    make_adapter(tmp_path / "made")
    if what == "another adapter":
        make_adapter(folder, config={"lora_alpha": 99})
    else:
        folder.mkdir(parents=True)
        (folder / ("mine.json" if what == "another file" else WEIGHTS_FILE)).write_text("mine")
    error = refused(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub)
    assert error.reason is Reason.OUTPUT_OCCUPIED
    assert REPOSITORY not in hub.heads


def test_repository_that_its_owner_described_takes_an_adapter(tmp_path: Path, hub: Served) -> None:
    folder = tmp_path / "hub" / REPOSITORY
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("mine")
    make_adapter(tmp_path / "made")
    (tmp_path / "made" / "README.md").write_text("ours")
    (tmp_path / "made" / MANIFEST_FILE).unlink()
    assert not push(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub).found
    assert (folder / "README.md").read_text() == "mine"


def test_commit_of_somebody_else_meanwhile_is_not_buried(tmp_path: Path, hub: Served) -> None:
    make_adapter(tmp_path / "made")
    folder = tmp_path / "hub" / REPOSITORY
    folder.mkdir(parents=True)
    hub.answers[f"/api/models/{REPOSITORY}/commit/main"] = 412
    assert refused(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub).reason is Reason.SOURCE_UNREACHABLE
    assert list(folder.iterdir()) == []


def test_wrong_token_is_told_in_a_writers_words(tmp_path: Path, hub: Served) -> None:
    make_adapter(tmp_path / "made")
    error = refused(tmp_path / "made", f"hf://{REPOSITORY}", hub=hub, token="wrong")
    assert error.reason is Reason.SOURCE_FORBIDDEN
    assert "name a Secret that may write there in secretRef" in error.message


def test_shell_gives_keys_and_docker_logins(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    shell = {"AWS_ACCESS_KEY_ID": "k", "HF_TOKEN": "t", "username": "u", "DOCKER_CONFIG": os.fspath(tmp_path)}
    assert credentials_of_environment(Scheme.S3, shell).values == {"AWS_ACCESS_KEY_ID": "k"}
    assert credentials_of_environment(Scheme.HUB, shell).values == {"HF_TOKEN": "t"}
    registry = credentials_of_environment(Scheme.OCI, shell)
    assert (registry.values, registry.docker_config) == ({}, tmp_path / "config.json")
