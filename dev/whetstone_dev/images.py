"""Build the container images with buildah and push them to the local registry.

Images are tagged by a digest of what goes into them, so what did not change is neither built nor pushed again. The
heavy layers come first in each Containerfile and the project's own wheel last; engine and trainer share the layer
that holds torch, since their first instructions are equal.
"""

import hashlib
import json
import os
import shutil
import ssl
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
_WHEEL_INPUTS = ("pyproject.toml", "uv.lock")


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image: its folder under `images/`, what goes into it and how long the first build takes."""

    name: str
    expected: str
    packages: tuple[str, ...] = ()
    """Folders of the checkout that the image holds, as part of the wheel or copied."""
    parent: str | None = None
    """Another image of ours that it builds on, and the build argument that names it."""
    optional: bool = False
    """Built only when it is named: the loop on this machine does without it."""

    @property
    def containerfile(self) -> Path:
        """Its Containerfile."""
        return CHECKOUT / "images" / self.name / "Containerfile"

    @property
    def local(self) -> str:
        """Its name in buildah's store."""
        return f"{_LOCAL}{self.name}:latest"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Where images are pushed to.

    Args:
        name: How manifests name it, as in `registry.example.com/team`.
        address: How this machine reaches it.
        insecure: Whether it speaks plain HTTP or has a certificate that nobody knows.
        local: Whether it is the local cluster's, a folder on this disk.
    """

    name: str
    address: str
    insecure: bool = False
    local: bool = False

    def reference(self, image: Image) -> str:
        """The image's reference in manifests, tagged by its inputs."""
        return f"{self.name}/whetstone/{image.name}:{_inputs_digest(image)[:16]}"

    @property
    def schemes(self) -> tuple[str, ...]:
        """The protocols that it may speak, in the order in which they are tried."""
        if self.local:
            return ("http",)
        return ("https", "http") if self.insecure else ("https",)

    def reached(self, reference: str) -> str:
        """A reference of this registry as this machine reaches it."""
        return f"{self.address}/{reference.removeprefix(f'{self.name}/')}"


_LOCAL = "localhost/whetstone/"
_MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
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
    Image(
        name="trainer-unsloth",
        expected="4 minutes",
        packages=(*_API, "trainer/whetstone_trainer"),
        optional=True,
    ),
)


def build_and_push(only: Sequence[str] = (), *, registry: Registry | None = None) -> dict[str, str]:
    """Build and push images, all or the named ones; returns the reference of every known image by name.

    Args:
        only: Names of images; all but the optional ones when empty.
        registry: Where to; None is the local cluster's.

    Raises:
        DevError: a name is unknown, a build failed, or the registry does not answer or refuses the push.
    """
    known = {image.name: image for image in IMAGES}
    if unknown := sorted(set(only) - set(known)):
        raise DevError(f"unknown image {', '.join(unknown)}; known: {', '.join(known)}")
    target = registry or local_registry()
    references = references_of(known.values(), registry=target)
    wanted = [image for image in IMAGES if (image.name in only if only else not image.optional)]
    missing = [image for image in wanted if not pushed(target, references[image.name])]
    if missing:
        _prepare()
        for image in missing:
            _build(image, known=known)
            _push(image, registry=target, reference=references[image.name])
        _drop_old_tags(known)
    if target.local:
        TAGS_FILE.parent.mkdir(exist_ok=True)
        TAGS_FILE.write_text(json.dumps(references, indent=1) + "\n")
    say(f"images are in the registry: {len(wanted) - len(missing)} unchanged, {len(missing)} new")
    return references


def build_local(name: str) -> str:
    """Build one image into buildah's store without pushing it; returns its name there."""
    known = {image.name: image for image in IMAGES}
    _prepare()
    _build(known[name], known=known)
    return known[name].local


def references_of(images: Iterable[Image] = IMAGES, *, registry: Registry | None = None) -> dict[str, str]:
    """The reference of each image, as manifests name it, tagged by its inputs; without a registry the local one's."""
    target = registry or Registry(name=REGISTRY_HOST, address=REGISTRY_HOST)
    return {image.name: target.reference(image) for image in images}


def _inputs_digest(image: Image) -> str:
    """Digest of every file that can change the image."""
    digest = hashlib.sha256(f"{versions.DEBIAN_SUITE} {image.name}".encode())
    folders = [image.containerfile.parent, *(CHECKOUT / "images" / name for name in ("torch", "uv"))]
    if image.parent:
        folders.append(CHECKOUT / "images" / image.parent)
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    if image.packages:
        files += [path for name in _WHEEL_INPUTS if (path := CHECKOUT / name).is_file()]
    for package in image.packages:
        files += [path for path in sorted((CHECKOUT / package).rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    for path in files:
        digest.update(str(path.relative_to(CHECKOUT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def local_registry() -> Registry:
    """Return the running local registry.

    Raises:
        DevError: it does not run.
    """
    cluster = Cluster()
    if not cluster.running()["docker-registry"]:
        raise DevError("the local registry does not run; start it with `make cluster`")
    return Registry(name=REGISTRY_HOST, address=cluster.registry, insecure=True, local=True)


def pushed(registry: Registry, reference: str) -> bool:
    """Whether the registry surely holds the reference; False where it wants to know who asks.

    Raises:
        DevError: the registry does not answer, or not as a registry does.
    """
    place, tag = registry.reached(reference).rsplit(":", 1)
    host, _, path = place.partition("/")
    problem: Exception | None = None
    for scheme in registry.schemes:
        request = urllib.request.Request(f"{scheme}://{host}/v2/{path}/manifests/{tag}", method="HEAD")
        request.add_header("Accept", _MANIFESTS)
        try:
            with _opener(registry).open(request, timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            if error.code in {401, 403, 404}:
                return False
            problem = error
        except OSError as error:
            problem = error
    hint = "" if registry.insecure else "; for one without a known certificate give INSECURE_REGISTRY=1"
    raise DevError(f"the registry at {host} does not answer as one: {problem}{hint}") from problem


def _opener(registry: Registry) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})] if registry.local else []
    if registry.insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _prepare() -> None:
    if os.geteuid() == 0:
        packages.install(packages.IMAGES)
        _base()
    else:
        # Only root can unpack a Debian; the Containerfiles name a base that a registry has.
        packages.install({"buildah": "buildah"})
    _wheel()


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
    before = _identity(image)
    arguments: list[str | Path] = ["buildah", "build", "--layers"]
    if os.geteuid() == 0:
        arguments += ["--runtime", "runc", "--isolation", "oci"]
    arguments += ["--network", "host", "--env", "UV_SYSTEM_CERTS=1"]
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        # The registries may sit behind a private certificate authority that only the host knows.
        arguments += ["--volume", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    if image.parent:
        # What lies under the parent's local name may be of other sources; with its layers at hand this is quick.
        _build(known[image.parent], known=known)
        arguments += ["--build-arg", f"{image.parent.upper()}={known[image.parent].local}"]
    elif succeeds(["buildah", "inspect", "--type", "image", BASE_IMAGE]):
        arguments += ["--build-arg", f"BASE={BASE_IMAGE}"]
    arguments += ["--tag", image.local, "--file", image.containerfile, CHECKOUT]
    with stage(f"Building image {image.name}", expected=image.expected):
        run(arguments, log=log)
    if before and before != _identity(image):
        # What the name stood for before. It stays while another image or a container is built on it.
        succeeds(["buildah", "rmi", before])


def _identity(image: Image) -> str | None:
    """The id of what lies under the image's name in buildah's store."""
    try:
        return run(["buildah", "images", "--quiet", "--no-trunc", image.local]).strip() or None
    except DevError:
        return None


def _drop_old_tags(known: Iterable[str]) -> None:
    """Drop other tags of our images from buildah's store."""
    listed = json.loads(run(["buildah", "images", "--json"]))
    for tag in old_tags((name for image in listed for name in image.get("names") or ()), known=known):
        succeeds(["buildah", "rmi", tag])


def old_tags(names: Iterable[str], *, known: Iterable[str]) -> list[str]:
    """Those of the image names that are tags of ours and not the current one."""
    ours = {f"{_LOCAL}{name}" for name in known}
    return sorted(name for name in names if name.rpartition(":")[0] in ours and not name.endswith(":latest"))


def _push(image: Image, *, registry: Registry, reference: str) -> None:
    """Push; to the local registry, a folder on this disk, with the fastest compression."""
    arguments = ["buildah", "push", "--quiet", f"--tls-verify={str(not registry.insecure).lower()}"]
    if registry.local:
        arguments += ["--format", "oci", "--compression-format", "zstd", "--compression-level", "1"]
    log = cache_folder() / "log" / f"push-{image.name}.log"
    try:
        with stage(f"Pushing image {image.name}"):
            run([*arguments, image.local, f"docker://{registry.reached(reference)}"], log=log)
    except DevError as error:
        if registry.local:
            raise
        raise DevError(refusal(registry, image.name, str(error))) from error


def refusal(registry: Registry, name: str, words: str) -> str:
    """Return one line on a push that failed."""
    last = words.strip().splitlines()[-1].strip()
    host = registry.name.partition("/")[0]
    if any(word in words for word in ("unauthorized", "denied", "authentication required")):
        return f"registry {registry.name} refused image {name}: log in with `buildah login {host}` ({last})"
    return f"image {name} could not be pushed to {registry.name}: {last}"
