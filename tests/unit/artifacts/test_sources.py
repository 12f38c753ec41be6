"""Fetching of adapters and models over HTTPS and from a hub, from real servers on this machine."""

import hashlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.adapters import lineage, make_adapter, make_model
from support.place_servers import COMMIT, Served, hub_server, web_server
from whetstone_api.adapter_artifact import LINEAGE_FILE, WEIGHTS_FILE
from whetstone_api.source import Scheme, scheme_of
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import adapter_digest
from whetstone_artifacts.models import model_digest
from whetstone_artifacts.sources import download as downloads
from whetstone_artifacts.sources.credentials import Credentials, read_credentials
from whetstone_artifacts.sources.fetch import (
    fetch_file,
    fetch_model,
    fetch_remote_adapter,
    listing_signature,
    open_file,
    open_place,
)
from whetstone_artifacts.sources.remote import Content, Remote, RemoteFilePlace
from whetstone_artifacts.sources.stores import resolve_revision

PIECE = 256


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters of the tests have hundreds of bytes; they too shall come in several pieces, in a known order."""
    monkeypatch.setattr(downloads, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(downloads, "WORKERS", 1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def web(tmp_path: Path, certificates: Path) -> Iterator[Served]:
    with web_server(tmp_path / "www", certificates) as served:
        yield served


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    with hub_server(tmp_path / "hub") as served:
        yield served


def secret(folder: Path, **values: str) -> Path:
    """Write a Secret as the kubelet mounts it; `__` in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in values.items():
        (folder / key.replace("__", ".")).write_text(value)
    return folder


def test_pickles_and_programs_are_left_out(tmp_path: Path, hub: Served) -> None:
    source = tmp_path / "hub/team/tools"
    digest = make_adapter(source, history=lineage())
    for name in ("adapter_model.bin", "training_args.bin", "pytorch_model.pt", "modeling_evil.py", "setup.sh"):
        (source / name).write_bytes(b"\x80\x04")

    fetch(on_hub(hub), tmp_path / "t", digest)

    assert not [path for path in (tmp_path / "t").iterdir() if path.suffix in (".bin", ".pt", ".py", ".sh")]
    assert not [one for one in hub.asked if one.path.endswith((".bin", ".pt", ".py", ".sh"))]


def on_web(web: Served, path: str, **values: str) -> Remote:
    """Open a place on the web server, trusting its certificate."""
    return open_place(f"{web.url}/{path}", Credentials(values=values, ca_file=web.ca_file))


def on_hub(hub: Served, revision: str = COMMIT, *, repository: str = "team/tools", token: str = "") -> Remote:
    """Open a repository on the hub."""
    values = {"HF_ENDPOINT": hub.url, **({"HF_TOKEN": token} if token else {})}
    return open_place(f"hf://{repository}@{revision}", Credentials(values=values))


def fetch(remote: Remote, target: Path, digest: str) -> None:
    fetch_remote_adapter(remote, target, digest)


def refused(remote: Remote, target: Path, digest: str) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        fetch(remote, target, digest)
    assert not target.exists()
    assert remote.uri in caught.value.message
    return caught.value


@pytest.mark.parametrize("place", ["web", "hub"])
def test_adapter_arrives_whole_with_its_lineage(tmp_path: Path, web: Served, hub: Served, place: str) -> None:
    source = tmp_path / ("www/a" if place == "web" else "hub/team/tools")
    digest = make_adapter(source, history=lineage())
    remote = on_web(web, "a") if place == "web" else on_hub(hub)
    fetch(remote, tmp_path / "t", digest)
    assert adapter_digest(tmp_path / "t") == digest
    assert (tmp_path / "t" / LINEAGE_FILE).is_file()
    assert [path.name for path in tmp_path.glob(".t*")] == [".t.lock"]
    shutil.rmtree(source)
    fetch(remote, tmp_path / "t", digest)


@pytest.mark.parametrize("place", ["web", "hub"])
def test_interrupted_download_goes_on_where_it_was(tmp_path: Path, web: Served, hub: Served, place: str) -> None:
    served = web if place == "web" else hub
    digest = make_adapter(tmp_path / ("www/a" if place == "web" else "hub/team/tools"))
    remote = on_web(web, "a") if place == "web" else on_hub(hub)
    served.breaks_after = 2
    assert refused(remote, tmp_path / "t", digest).reason is Reason.SOURCE_UNREACHABLE
    got = list(dict.fromkeys(served.ranges(WEIGHTS_FILE)))[:-1]
    assert got
    served.breaks_after = None
    served.asked.clear()
    fetch(remote, tmp_path / "t", digest)
    assert not set(got) & set(served.ranges(WEIGHTS_FILE))


def test_partial_bytes_of_another_version_are_not_used(tmp_path: Path, web: Served) -> None:
    make_adapter(tmp_path / "www" / "a")
    remote = on_web(web, "a")
    web.breaks_after = 2
    refused(remote, tmp_path / "t", "sha256:" + "0" * 64)
    web.breaks_after = None
    digest = make_adapter(tmp_path / "www" / "a", config={"lora_alpha": 99}, tensors=None)
    fetch(remote, tmp_path / "t", digest)
    assert adapter_digest(tmp_path / "t") == digest


def test_dropped_connection_costs_a_piece_only(tmp_path: Path, web: Served) -> None:
    digest = make_adapter(tmp_path / "www" / "a")
    remote = on_web(web, "a")
    web.failures[f"/a/{WEIGHTS_FILE}"] = 2
    fetch(remote, tmp_path / "t", digest)
    assert web.failures[f"/a/{WEIGHTS_FILE}"] == 0


def test_wrong_digest_leaves_nothing_and_names_both(tmp_path: Path, web: Served) -> None:
    digest = make_adapter(tmp_path / "www" / "a")
    error = refused(on_web(web, "a"), tmp_path / "t", "sha256:" + "0" * 64)
    assert error.reason is Reason.DIGEST_MISMATCH
    assert digest in error.message
    assert [path.name for path in tmp_path.glob(".t*")] == [".t.lock"]


def test_file_that_is_not_what_the_hub_says_is_refused(tmp_path: Path, hub: Served) -> None:
    make_adapter(tmp_path / "hub/team/tools")
    remote = on_hub(hub)
    files = [replace(file, sha256=file.sha256 and "0" * 64) for file in remote.files(Content.ADAPTER)]
    with pytest.raises(ArtifactError, match=WEIGHTS_FILE) as caught:
        downloads.download(remote, files, tmp_path / "t")
    assert caught.value.reason is Reason.DIGEST_MISMATCH


@pytest.mark.parametrize(("status", "reason"), [(401, Reason.SOURCE_FORBIDDEN), (403, Reason.SOURCE_FORBIDDEN)])
def test_refused_access_names_the_secret(tmp_path: Path, web: Served, status: int, reason: Reason) -> None:
    digest = make_adapter(tmp_path / "www" / "a")
    web.answers["/a/adapter_config.json"] = status
    error = refused(on_web(web, "a"), tmp_path / "t", digest)
    assert error.reason is reason
    assert "secretRef" in error.message


@pytest.mark.parametrize(("repository", "revision"), [("team/none", COMMIT), ("team/tools", "f" * 40)])
def test_missing_repository_or_revision_is_not_found(
    tmp_path: Path, hub: Served, repository: str, revision: str
) -> None:
    digest = make_adapter(tmp_path / "hub/team/tools")
    assert refused(on_hub(hub, revision, repository=repository), tmp_path / "t", digest).reason is (
        Reason.SOURCE_NOT_FOUND
    )


def test_folder_without_weights_is_not_found(tmp_path: Path, web: Served, hub: Served) -> None:
    digest = make_adapter(tmp_path / "www" / "a")
    shutil.copytree(tmp_path / "www" / "a", tmp_path / "hub/team/tools")
    (tmp_path / "www" / "a" / WEIGHTS_FILE).unlink()
    (tmp_path / "hub/team/tools" / WEIGHTS_FILE).unlink()
    for remote in (on_web(web, "a"), on_hub(hub)):
        assert refused(remote, tmp_path / "t", digest).reason is Reason.SOURCE_NOT_FOUND


def test_server_that_nobody_vouches_for_is_not_trusted(tmp_path: Path, web: Served) -> None:
    digest = make_adapter(tmp_path / "www" / "a")
    error = refused(open_place(f"{web.url}/a", Credentials()), tmp_path / "t", digest)
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "certificate" in error.message


def test_token_of_the_secret_is_sent(tmp_path: Path, web: Served, hub: Served) -> None:
    digest = make_adapter(tmp_path / "www" / "a")
    shutil.copytree(tmp_path / "www" / "a", tmp_path / "hub/team/tools")
    web.authorization = hub.authorization = "Bearer s3cret"
    assert refused(on_web(web, "a"), tmp_path / "t", digest).reason is Reason.SOURCE_FORBIDDEN
    assert refused(on_hub(hub), tmp_path / "t", digest).reason is Reason.SOURCE_FORBIDDEN
    fetch(on_web(web, "a", token="s3cret"), tmp_path / "t", digest)
    fetch(on_hub(hub, token="s3cret"), tmp_path / "u", digest)


def test_server_without_ranges_is_read_from_the_start(
    tmp_path: Path, web: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "PIECE_BYTES", 1 << 20)
    digest = make_adapter(tmp_path / "www" / "a")
    web.ignores_ranges = True
    fetch(on_web(web, "a"), tmp_path / "t", digest)


def test_branch_becomes_the_commit_that_it_names(tmp_path: Path, hub: Served) -> None:
    make_adapter(tmp_path / "hub/team/tools")
    credentials = Credentials(values={"HF_ENDPOINT": hub.url})
    assert resolve_revision("hf://team/tools@main", credentials) == f"hf://team/tools@{COMMIT}"
    with pytest.raises(ArtifactError) as caught:
        resolve_revision("hf://team/tools@gone", credentials)
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND


@pytest.mark.parametrize("place", ["web", "hub"])
def test_model_is_fetched_once_for_all_pods(tmp_path: Path, web: Served, hub: Served, place: str) -> None:
    source = tmp_path / ("www/m" if place == "web" else "hub/team/tools")
    make_model(source)
    (source / "pytorch_model.bin").write_bytes(b"pickle")
    remote = on_web(web, "m") if place == "web" else on_hub(hub)
    digest = model_digest(source)
    folder = fetch_model(remote, tmp_path / "cache", digest)
    assert model_digest(folder) == digest
    assert not (folder / "pytorch_model.bin").exists()
    served = web if place == "web" else hub
    served.asked.clear()
    assert fetch_model(remote, tmp_path / "cache", digest) == folder
    assert served.asked == []


def test_two_pods_that_share_a_cache_fetch_once(tmp_path: Path, hub: Served) -> None:
    make_model(tmp_path / "hub/team/tools")
    together = threading.Barrier(2)

    def pod() -> Path:
        together.wait()
        return fetch_model(on_hub(hub), tmp_path / "cache", None)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(pod), pool.submit(pod)
        assert first.result() == second.result()
    spans = hub.ranges("model.safetensors")
    assert len(spans) == len(set(spans)) > 1


def test_damaged_model_in_the_cache_is_fetched_again(tmp_path: Path, hub: Served) -> None:
    make_model(tmp_path / "hub/team/tools")
    folder = fetch_model(on_hub(hub), tmp_path / "cache", None)
    (folder / "model.safetensors").write_bytes(b"cut")
    assert fetch_model(on_hub(hub), tmp_path / "cache", None) == folder
    assert model_digest(folder) == model_digest(tmp_path / "hub/team/tools")


def test_model_with_another_digest_is_refused(tmp_path: Path, hub: Served) -> None:
    make_model(tmp_path / "hub/team/tools")
    with pytest.raises(ArtifactError, match="not the expected") as caught:
        fetch_model(on_hub(hub), tmp_path / "cache", "sha256:" + "0" * 64)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    left = [path.name for path in (tmp_path / "cache").iterdir()]
    assert not [name for name in left if not name.endswith((".lock", ".refused"))]


def test_refused_model_is_fetched_again_only_when_it_changed(tmp_path: Path, hub: Served) -> None:
    make_model(tmp_path / "right", seed=1)
    make_model(tmp_path / "hub/team/tools")
    digest = model_digest(tmp_path / "right")
    messages = set()
    for _ in range(2):
        with pytest.raises(ArtifactError) as caught:
            fetch_model(on_hub(hub), tmp_path / "cache", digest)
        messages.add(caught.value.message)
        fetched = hub.ranges("model.safetensors")
    assert len(messages) == 1
    assert len(fetched) == len(set(fetched))
    shutil.copytree(tmp_path / "right", tmp_path / "hub/team/tools", dirs_exist_ok=True)
    assert model_digest(fetch_model(on_hub(hub), tmp_path / "cache", digest)) == digest
    assert not list((tmp_path / "cache").glob(".*.refused"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def test_full_disk_says_how_much_is_needed(tmp_path: Path, hub: Served, small_disk: Path) -> None:
    make_model(tmp_path / "hub/team/tools")
    (tmp_path / "hub/team/tools" / "vocab.txt").write_bytes(b"x" * 100_000)
    with pytest.raises(ArtifactError, match=r"\d+ bytes are needed and \d+ free") as caught:
        fetch_model(on_hub(hub), small_disk, None)
    assert caught.value.reason is Reason.DISK_FULL


def test_disk_that_runs_full_meanwhile_is_told_alike(
    tmp_path: Path, hub: Served, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_require_room", lambda *_: None)
    make_model(tmp_path / "hub/team/tools")
    (tmp_path / "hub/team/tools" / "vocab.txt").write_bytes(b"x" * 100_000)
    with pytest.raises(ArtifactError, match="ran full") as caught:
        fetch_model(on_hub(hub), small_disk, None)
    assert caught.value.reason is Reason.DISK_FULL


def test_signature_changes_with_the_place(tmp_path: Path, hub: Served) -> None:
    make_adapter(tmp_path / "hub/team/tools")
    before = listing_signature(on_hub(hub).files(Content.ADAPTER))
    assert listing_signature(on_hub(hub).files(Content.ADAPTER)) == before
    make_adapter(tmp_path / "hub/team/tools", config={"lora_alpha": 99})
    assert listing_signature(on_hub(hub).files(Content.ADAPTER)) != before


def test_missing_secret_and_key_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="Secret keys does not exist") as caught:
        read_credentials(Scheme.S3, tmp_path / "keys")
    assert caught.value.reason is Reason.SECRET_NOT_FOUND
    secret(tmp_path / "keys", AWS_ACCESS_KEY_ID="a")
    with pytest.raises(ArtifactError, match="no key AWS_SECRET_ACCESS_KEY"):
        read_credentials(Scheme.S3, tmp_path / "keys")
    secret(tmp_path / "keys", AWS_SECRET_ACCESS_KEY="b\n", other="c")
    found = read_credentials(Scheme.S3, tmp_path / "keys")
    assert dict(found.values) == {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert "b" not in repr(found).replace("AWS", "")
    with pytest.raises(ArtifactError, match="no key HF_TOKEN"):
        read_credentials(Scheme.HUB, tmp_path / "keys")
    secret(tmp_path / "login", __dockerconfigjson="{}", ca__crt="x")
    assert read_credentials(Scheme.OCI, tmp_path / "login").docker_config == tmp_path / "login" / ".dockerconfigjson"


def test_scheme_of_each_uri() -> None:
    assert scheme_of("hf://a/b@c") is Scheme.HUB
    assert scheme_of("oci://h/r@sha256:0") is Scheme.OCI


ROWS = b'{"prompt": "q", "completion": "a"}\n' * 20
ROWS_DIGEST = "sha256:" + hashlib.sha256(ROWS).hexdigest()


@pytest.fixture(params=["web", "hub"])
def rows(request: pytest.FixtureRequest, tmp_path: Path, web: Served, hub: Served) -> RemoteFilePlace:
    """A file of rows at a place that can hold one."""
    file = tmp_path / ("www/data/rows.jsonl" if request.param == "web" else "hub/team/rows/data/rows.jsonl")
    file.parent.mkdir(parents=True)
    file.write_bytes(ROWS)
    if request.param == "web":
        return open_file(f"{web.url}/data/rows.jsonl", Credentials(ca_file=web.ca_file))
    uri = "hf://datasets/team/rows@main/data/rows.jsonl"
    return open_file(uri, Credentials(values={"HF_ENDPOINT": hub.url}))


def test_one_file_arrives_whole(tmp_path: Path, rows: RemoteFilePlace) -> None:
    target = tmp_path / "rows.jsonl"
    fetch_file(rows, target, ROWS_DIGEST)
    assert target.read_bytes() == ROWS
    assert not list(tmp_path.glob(".rows*"))


def test_file_with_another_digest_is_refused(tmp_path: Path, rows: RemoteFilePlace) -> None:
    with pytest.raises(ArtifactError, match=f"holds {ROWS_DIGEST}, not the expected") as caught:
        fetch_file(rows, tmp_path / "rows.jsonl", "sha256:" + "0" * 64)
    assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not list(tmp_path.glob("*rows*"))


@pytest.mark.parametrize("uri", ["{web}/data/absent.jsonl", "hf://datasets/team/rows@main/absent.jsonl"])
def test_absent_file_is_not_found(tmp_path: Path, web: Served, hub: Served, uri: str) -> None:
    (tmp_path / "hub/team/rows").mkdir(parents=True)
    credentials = Credentials(values={"HF_ENDPOINT": hub.url}, ca_file=web.ca_file)
    with pytest.raises(ArtifactError) as caught:
        fetch_file(open_file(uri.format(web=web.url), credentials), tmp_path / "t", None)
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND
