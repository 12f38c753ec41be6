"""What is built: the go.mod of Kubernetes, the helper image, and the tags of images."""

import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from whetstone_dev import gobuild, images
from whetstone_dev.commands import DevError
from whetstone_dev.gobuild import kubernetes_go_mod
from whetstone_dev.images import IMAGES, Image, Registry, old_tags, pushed, references_of, refusal
from whetstone_dev.node import write_program_image

UPSTREAM = """module k8s.io/kubernetes

go 1.24.0

require (
\tgithub.com/armon/circbuf v0.0.0-20190214190532-5111143e8da2
\tk8s.io/api v0.0.0
)

require (
\tgithub.com/google/uuid v1.6.0 // indirect
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/mount-utils => ./staging/src/k8s.io/mount-utils
)
"""
GO_MOD = """module whetstone.dev/hyperkube

go 1.24.0

require (
\tk8s.io/kubernetes v1.34.4
\tgithub.com/armon/circbuf v0.0.0-20190214190532-5111143e8da2
\tk8s.io/api v0.0.0
)

require (
\tgithub.com/google/uuid v1.6.0 // indirect
)


replace (
\tk8s.io/api => k8s.io/api v0.34.4
\tk8s.io/mount-utils => k8s.io/mount-utils v0.34.4
)
"""
IMAGE = Image(name="server", expected="moments", packages=("server/pkg",), parent="base")


def test_staging_modules_become_the_published_ones() -> None:
    assert kubernetes_go_mod(UPSTREAM, version="1.34.4") == GO_MOD


def test_a_program_that_two_want_at_once_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    both_miss_it = threading.Barrier(2)
    built: list[str] = []

    def find(name: str) -> str:
        both_miss_it.wait(timeout=10)
        return name

    def compile_once(command: list[str], **_: Any) -> str:
        built.append(command[-1])
        Path(command[command.index("-o") + 1]).write_text("program")
        return ""

    monkeypatch.setattr(gobuild.shutil, "which", find)
    monkeypatch.setattr(gobuild, "run", compile_once)
    program = gobuild.Program("some", "1", "a moment", lambda work: ["", "./cmd"])
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(gobuild.build, [program] * 2))
    assert built == ["./cmd"]
    assert [path.read_text() for path in paths] == ["program"] * 2


def test_program_image_holds_the_program_under_its_digest(tmp_path: Path) -> None:
    program, archive = tmp_path / "program", tmp_path / "image.tar"
    program.write_bytes(b"\x7fELF and so on")
    write_program_image(program, name="localhost/some:1", archive=archive)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "image", filter="data")
    (manifest,) = json.loads((tmp_path / "image" / "manifest.json").read_text())
    config = json.loads((tmp_path / "image" / manifest["Config"]).read_text())
    layer = tmp_path / "image" / manifest["Layers"][0]
    assert manifest["RepoTags"] == ["localhost/some:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"]
    with tarfile.open(layer) as tar:
        entry = tar.getmember(config["config"]["Entrypoint"][0].lstrip("/"))
        content = tar.extractfile(entry)
        assert content is not None
        assert (content.read(), entry.mode) == (program.read_bytes(), 0o755)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one image, its parent and a package."""
    monkeypatch.setattr(images, "CHECKOUT", tmp_path)
    for name in (
        "images/server/Containerfile",
        "images/base/Containerfile",
        "images/torch/requirements.txt",
        "images/uv/requirements.txt",
        "server/pkg/a.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "images/server/Containerfile",
        "images/base/Containerfile",
        "images/uv/requirements.txt",
        "server/pkg/a.py",
        "server/pkg/new/b.py",
        "pyproject.toml",
        "uv.lock",
    ],
)
def test_changed_input_changes_the_tag(checkout: Path, name: str) -> None:
    before = references_of([IMAGE])
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("second")
    assert references_of([IMAGE]) != before


def test_renamed_input_changes_the_tag(checkout: Path) -> None:
    before = references_of([IMAGE])
    (checkout / "server/pkg/a.py").rename(checkout / "server/pkg/b.py")
    assert references_of([IMAGE]) != before


@pytest.mark.parametrize("name", ["server/other.py", "server/pkg/__pycache__/a.cpython-313.pyc", "README.md"])
def test_what_is_not_in_the_image_leaves_the_tag(checkout: Path, name: str) -> None:
    before = references_of([IMAGE])
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("second")
    assert references_of([IMAGE]) == before


def test_image_without_our_code_does_not_follow_the_lock_file(checkout: Path) -> None:
    image = Image(name="base", expected="moments")
    before = references_of([image])
    (checkout / "uv.lock").write_text("second")
    assert references_of([image]) == before


def test_only_other_tags_of_our_images_are_old() -> None:
    ours = ["localhost/whetstone/server:latest", "localhost/whetstone/server:dev"]
    others = ["localhost/whetstone/other:dev", "localhost/server:dev", "docker.io/whetstone/server:dev"]
    assert old_tags([*ours, *others], known=["server"]) == ["localhost/whetstone/server:dev"]


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry over plain HTTP that holds one image and does not show another."""

    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            name = self.path.removeprefix("/v2/team/whetstone/").partition("/")[0]
            self.send_response({"there": 200, "private": 401, "broken": 500}.get(name, 404))
            self.end_headers()

        def log_message(self, *values: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        yield Registry(name=f"{host}/team", address=f"{host}/team", insecure=True)
        server.shutdown()


@pytest.mark.parametrize(("name", "expected"), [("there", True), ("absent", False), ("private", False)])
def test_registry_says_what_it_holds(registry: Registry, name: str, *, expected: bool) -> None:
    assert pushed(registry, f"{registry.name}/whetstone/{name}:1") is expected


def test_registry_that_answers_otherwise_is_refused_in_one_line(registry: Registry) -> None:
    with pytest.raises(DevError, match=r"^the registry at 127\.0\.0\.1:\d+ does not answer as one: HTTP Error 500.*$"):
        pushed(registry, f"{registry.name}/whetstone/broken:1")


def test_registry_without_certificate_needs_the_flag(registry: Registry) -> None:
    with pytest.raises(DevError, match=r"^the registry at .*INSECURE_REGISTRY=1$"):
        pushed(replace(registry, insecure=False), f"{registry.name}/whetstone/there:1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("buildah push ...: exit code 125\n  x\n  authentication required", "log in with `buildah login r.example`"),
        ("buildah push ...: exit code 125\n  no space left", "could not be pushed to r.example/team: no space left"),
    ],
)
def test_refused_push_is_one_line(words: str, expected: str) -> None:
    line = refusal(Registry(name="r.example/team", address="r.example/team"), "server", words)
    assert expected in line
    assert "\n" not in line


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_every_image_finds_its_inputs(image: Image) -> None:
    assert image.containerfile.is_file()
    assert all((images.CHECKOUT / package).is_dir() for package in image.packages)
