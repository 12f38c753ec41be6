"""Images of tasks that come as a Dockerfile: built, tagged by content, pushed. Needs buildah, podman or docker."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whetstone_api.digests import canonical_digest, content_digest
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import file_entries
from whetstone_artifacts.sources.credentials import Credentials

BUILDERS: Final = ("buildah", "podman", "docker")
"""In the order in which they are looked for."""
_DIGITS: Final = 16
_SHOWN: Final = 600


@dataclass(frozen=True, kw_only=True)
class Builder:
    """How images are built.

    Args:
        program: One of `BUILDERS`.
        repository: Where they are pushed, `registry/repository`.
        arguments: Build arguments (`ARG`), which are part of the content.
        options: Further options of the program's build command.
        plain_http: Whether the registry speaks plain HTTP.
    """

    program: str
    repository: str
    arguments: Mapping[str, str]
    options: Sequence[str] = ()
    plain_http: bool = False

    def reference(self, task: str, context: Path) -> str:
        """Return the name of an image: the same for the same files and arguments, whoever builds it."""
        files = {name: entry.sha256 for name, entry in file_entries(context).items()}
        content = canonical_digest({"files": content_digest(files), "arguments": dict(self.arguments)})
        readable = "".join(char if char.isalnum() or char in "-_." else "-" for char in task)[:100].lstrip("-.")
        return f"{self.repository}:{readable}-{content.removeprefix('sha256:')[:_DIGITS]}"

    def build(self, reference: str, context: Path) -> None:
        """Build an image.

        Raises:
            ArtifactError: `IMAGE_NOT_BUILT`, with the end of what the program said.
        """
        arguments = [f"--build-arg={name}={value}" for name, value in sorted(self.arguments.items())]
        self._run(
            "build", *self.options, *arguments, "--tag", reference, "--file", str(context / "Dockerfile"), str(context)
        )

    def push(self, reference: str) -> None:
        """Push a built image.

        Raises:
            ArtifactError: `IMAGE_NOT_BUILT`, with the end of what the program said.
        """
        insecure = ["--tls-verify=false"] if self.plain_http and self.program != "docker" else []
        self._run("push", *insecure, reference)

    def _run(self, *arguments: str) -> None:
        command = [self.program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-_SHOWN:]
            raise ArtifactError(Reason.IMAGE_NOT_BUILT, f"{self.program} {arguments[0]} {arguments[-1]} failed: {said}")


def find_builder(wanted: str | None) -> str:
    """Return a program that builds images.

    Args:
        wanted: The one that must be there; None for any.

    Raises:
        ArtifactError: `IMAGE_NOT_BUILT` when there is none.
    """
    for program in (wanted,) if wanted else BUILDERS:
        if shutil.which(program):
            return program
    raise ArtifactError(
        Reason.IMAGE_NOT_BUILT,
        f"tasks come as a Dockerfile only, and there is no {wanted or ', '.join(BUILDERS)} to build them; install"
        " one, or leave --push-images out to bundle without them",
    )


def is_pushed(reference: str, credentials: Credentials) -> bool:
    """Return whether a registry holds a tag.

    Args:
        reference: `registry/repository:tag`.
        credentials: Login, and `plainHTTP`.

    Raises:
        ArtifactError: `SOURCE_UNREACHABLE` or `SOURCE_FORBIDDEN`.
    """
    import oras.client  # noqa: F401 - the package imports in a circle; this order works
    import requests
    from oras.container import Container
    from oras.defaults import default_manifest_accepted_media_types

    from whetstone_artifacts.sources.oci import login
    from whetstone_artifacts.sources.remote import forbidden, unreachable

    container = Container(reference)
    try:
        registry = login(container, credentials)
        address = f"{registry.prefix}://{container.manifest_url()}"
        headers = {"Accept": ", ".join([*default_manifest_accepted_media_types, _INDEXES])}
        answer = type(registry).do_request.__wrapped__(registry, address, "HEAD", headers=headers)
    except requests.RequestException as error:
        raise unreachable(f"oci://{reference}", error) from error
    except (ValueError, AttributeError) as error:
        raise forbidden(f"oci://{reference}", str(error)) from error
    if answer.status_code in (401, 403):
        raise forbidden(f"oci://{reference}", str(answer.status_code))
    return bool(answer.status_code == 200)


_INDEXES: Final = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)
