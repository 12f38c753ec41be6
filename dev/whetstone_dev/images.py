"""Build the container images with buildah and push them to the local registry.

Images are tagged by a digest of what goes into them, so what did not change is neither built nor pushed again. The
heavy layers come first in each Containerfile and the project's own wheel last; engine and trainer share the layer
that holds torch, since their first instructions are equal.
"""

import hashlib
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev import packages, versions
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import DevError, run, succeeds
from whetstone_dev.node import REGISTRY_HOST
from whetstone_dev.places import BUILD, CHECKOUT, cache_folder
from whetstone_dev.progress import say, stage

BASE_IMAGE = f"localhost/whetstone-base:{versions.DEBIAN_SUITE}"
WHEEL_FOLDER = BUILD / "wheel"
TAGS_FILE = BUILD / "images.json"


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image: its folder under `images/`, what goes into it and how long the first build takes."""

    name: str
    expected: str
    packages: tuple[str, ...] = ()
    """Folders of the checkout that the image holds, as part of the wheel or copied."""
    parent: str | None = None
    """Another image of ours that it builds on, and the build argument that names it."""

    @property
    def containerfile(self) -> Path:
        """Its Containerfile."""
        return CHECKOUT / "images" / self.name / "Containerfile"

    @property
    def local(self) -> str:
        """Its name in buildah's store."""
        return f"localhost/whetstone/{self.name}:latest"


_API = ("operator/whetstone_api", "operator/whetstone_artifacts")
IMAGES = (
    Image(name="task", expected="10 seconds"),
    Image(name="engine-cpu", expected="4 minutes"),
    Image(name="trainer", expected="1 minute", packages=(*_API, "trainer/whetstone_trainer")),
    Image(name="server", expected="30 seconds", packages=(*_API, "server/whetstone_server")),
    Image(name="operator", expected="30 seconds", packages=(*_API, "operator/whetstone_operator")),
    Image(name="benchmark", expected="1 minute", packages=(*_API, "agent/whetstone_agent")),
    Image(
        name="demo-seed",
        expected="30 seconds",
        packages=(*_API, "trainer/whetstone_trainer", "dev/whetstone_dev/seed", "dev/whetstone_dev/tasks"),
        parent="trainer",
    ),
)


def build_and_push(only: Sequence[str] = ()) -> dict[str, str]:
    """Build and push images, all or the named ones; returns the reference of every known image by name.

    Raises:
        DevError: a name is unknown, a build failed, or the registry does not run.
    """
    known = {image.name: image for image in IMAGES}
    if unknown := sorted(set(only) - set(known)):
        raise DevError(f"unknown image {', '.join(unknown)}; known: {', '.join(known)}")
    registry = _registry()
    references = references_of(known.values())
    wanted = [image for image in IMAGES if not only or image.name in only]
    missing = [image for image in wanted if not _pushed(registry, references[image.name])]
    if missing:
        packages.install(packages.IMAGES)
        _base()
        _wheel()
        for image in missing:
            _build(image, known=known)
            _push(image, registry=registry, reference=references[image.name])
    TAGS_FILE.parent.mkdir(exist_ok=True)
    TAGS_FILE.write_text(json.dumps(references, indent=1) + "\n")
    say(f"images are in the registry: {len(wanted) - len(missing)} unchanged, {len(missing)} new")
    return references


def build_local(name: str) -> str:
    """Build one image into buildah's store without pushing it; returns its name there."""
    known = {image.name: image for image in IMAGES}
    packages.install(packages.IMAGES)
    _base()
    _wheel()
    _build(known[name], known=known)
    return known[name].local


def references_of(images: Iterable[Image] = IMAGES) -> dict[str, str]:
    """The reference of each image, as manifests name it, tagged by its inputs."""
    return {image.name: f"{REGISTRY_HOST}/whetstone/{image.name}:{_inputs_digest(image)[:16]}" for image in images}


def _inputs_digest(image: Image) -> str:
    """Digest of every file that can change the image."""
    digest = hashlib.sha256(f"{versions.DEBIAN_SUITE} {image.name}".encode())
    folders = [image.containerfile.parent, CHECKOUT / "images" / "torch"]
    if image.parent:
        folders.append(CHECKOUT / "images" / image.parent)
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    for package in image.packages:
        files += [path for path in sorted((CHECKOUT / package).rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    for path in files:
        digest.update(str(path.relative_to(CHECKOUT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _registry() -> str:
    cluster = Cluster()
    if not cluster.running()["docker-registry"]:
        raise DevError("the local registry does not run; start it with `make cluster`")
    return cluster.registry


def _pushed(registry: str, reference: str) -> bool:
    """Whether the registry holds the reference."""
    path, tag = reference.removeprefix(f"{REGISTRY_HOST}/").rsplit(":", 1)
    request = urllib.request.Request(f"http://{registry}/v2/{path}/manifests/{tag}", method="HEAD")
    request.add_header("Accept", "application/vnd.oci.image.manifest.v1+json")
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise DevError(f"the local registry answered {error.code} for {reference}") from error
    except OSError as error:
        raise DevError(f"the local registry at {registry} does not answer: {error}") from error


def _base() -> None:
    """Make the base image from Debian's packages, once: a Debian with Python."""
    if succeeds(["buildah", "inspect", "--type", "image", BASE_IMAGE]):
        return
    suite = versions.DEBIAN_SUITE
    root = cache_folder() / "build" / suite
    log = cache_folder() / "log"
    with stage("Building the base image", expected="1 minute"):
        if not (root / "usr" / "bin" / "python3").exists():
            shutil.rmtree(root, ignore_errors=True)
            partial = root.with_name(f"{suite}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.parent.mkdir(parents=True, exist_ok=True)
            wanted = "python3,python3-venv,ca-certificates"
            run(
                ["debootstrap", "--variant=minbase", f"--include={wanted}", suite, partial], log=log / "debootstrap.log"
            )
            partial.replace(root)
        container = run(["buildah", "from", "scratch"]).strip()
        run(["buildah", "add", "--quiet", container, root, "/"])
        run(["buildah", "config", "--cmd", "/bin/bash", container])
        run(["buildah", "commit", "--quiet", container, BASE_IMAGE])
        run(["buildah", "rm", container])
        shutil.rmtree(root, ignore_errors=True)


def _wheel() -> None:
    """Build the project's wheel with fixed time stamps, so that equal sources give equal layers."""
    shutil.rmtree(WHEEL_FOLDER, ignore_errors=True)
    uv = Path(sys.prefix) / "bin" / "uv"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1577836800", "UV_SYSTEM_CERTS": "1"}
    run([uv, "build", "--wheel", "--quiet", "--out-dir", WHEEL_FOLDER, CHECKOUT], env=environment)


def _build(image: Image, *, known: dict[str, Image]) -> None:
    log = cache_folder() / "log" / f"image-{image.name}.log"
    arguments: list[str | Path] = ["buildah", "build", "--layers", "--runtime", "runc", "--isolation", "oci"]
    arguments += ["--network", "host", "--env", "UV_SYSTEM_CERTS=1"]
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        # The registries may sit behind a private certificate authority that only the host knows.
        arguments += ["--volume", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    if image.parent:
        # What lies under the parent's local name may be of other sources; with its layers at hand this is quick.
        _build(known[image.parent], known=known)
        arguments += ["--build-arg", f"{image.parent.upper()}={known[image.parent].local}"]
    else:
        arguments += ["--build-arg", f"BASE={BASE_IMAGE}"]
    arguments += ["--tag", image.local, "--file", image.containerfile, CHECKOUT]
    with stage(f"Building image {image.name}", expected=image.expected):
        run(arguments, log=log)


def _push(image: Image, *, registry: str, reference: str) -> None:
    """Push with the fastest compression: the registry is a folder on this disk."""
    target = f"docker://{registry}/{reference.removeprefix(f'{REGISTRY_HOST}/')}"
    arguments = ["buildah", "push", "--quiet", "--tls-verify=false", "--format", "oci"]
    arguments += ["--compression-format", "zstd", "--compression-level", "1"]
    with stage(f"Pushing image {image.name}"):
        run([*arguments, image.local, target], log=cache_folder() / "log" / f"push-{image.name}.log")
