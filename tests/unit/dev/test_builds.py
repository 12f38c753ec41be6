"""What is built: the go.mod of Kubernetes, the helper image, and the tags of images."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from whetstone_dev import images
from whetstone_dev.gobuild import kubernetes_go_mod
from whetstone_dev.images import IMAGES, Image, references_of
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
        "images/torch/constraints",
        "server/pkg/a.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["images/server/Containerfile", "images/base/Containerfile", "server/pkg/a.py", "server/pkg/new/b.py"]
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


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_every_image_finds_its_inputs(image: Image) -> None:
    assert image.containerfile.is_file()
    assert all((images.CHECKOUT / package).is_dir() for package in image.packages)
