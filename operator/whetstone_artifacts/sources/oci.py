"""An artifact in an OCI registry: one layer a file, named by the annotation that `oras push` writes."""

import hashlib
import json
from typing import Any

from whetstone_api.source import Scheme
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.remote import (
    READ_ATTEMPTS,
    Content,
    RemoteFile,
    forbidden,
    not_found,
    selected,
    unreachable,
    whole_tree,
)

TIMEOUT_SECONDS = (10, 60)
"""To connect, and between two reads."""
TITLE = "org.opencontainers.image.title"
_FOLDER_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class OciStore:
    """One artifact, pinned by the digest of its manifest.

    Args:
        uri: `oci://registry/repo@sha256:…`.
        credentials: Login of the registry.
    """

    attempts = READ_ATTEMPTS

    def __init__(self, uri: str, credentials: Credentials) -> None:
        import oras.client  # noqa: F401 - the package imports in a circle; this order works
        from oras.container import Container

        self.uri = uri
        self._container = Container(uri.removeprefix(f"{Scheme.OCI}://"))
        self._digest = uri.rsplit("@", 1)[1]
        self._credentials = credentials
        self._registry: Any = None

    def files(self, content: Content) -> list[RemoteFile]:
        """Return the files to fetch.

        Raises:
            ArtifactError: As `read`; `DIGEST_MISMATCH` when the registry answers with another manifest.
        """
        return selected(self.uri, self._layers(), content)

    def tree(self) -> list[RemoteFile]:
        """Return every file of the artifact.

        Raises:
            ArtifactError: As `files`.
        """
        return whole_tree(self.uri, self._layers())

    def _layers(self) -> list[RemoteFile]:
        from oras.defaults import default_manifest_accepted_media_types

        accepted = ", ".join(default_manifest_accepted_media_types)
        raw = self._get(self._container.manifest_url(), {"Accept": accepted})
        found = "sha256:" + hashlib.sha256(raw).hexdigest()
        if found != self._digest:
            raise ArtifactError(Reason.DIGEST_MISMATCH, f"uri {self.uri}: the registry answers with {found}")
        layers = json.loads(raw).get("layers")
        if not isinstance(layers, list):
            raise not_found(self.uri, "it is no artifact (no layers; an index?)")
        if any(layer.get("mediaType") == _FOLDER_LAYER for layer in layers):
            raise not_found(self.uri, "it holds a packed folder; push the files themselves (cd FOLDER; oras push … *)")
        return [
            RemoteFile(
                name=str((layer.get("annotations") or {}).get(TITLE, "")).removeprefix("./"),
                size=int(layer["size"]),
                tag=str(layer["digest"]),
                address=str(layer["digest"]),
                sha256=str(layer["digest"]).removeprefix("sha256:"),
            )
            for layer in layers
        ]

    def read(self, file: RemoteFile, start: int, length: int) -> bytes:
        """Return so many bytes from an offset.

        Raises:
            ArtifactError: `SOURCE_NOT_FOUND`, `SOURCE_FORBIDDEN` or `SOURCE_UNREACHABLE`.
        """
        if length == 0:
            return b""
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        return self._get(self._container.get_blob_url(file.address), wanted, limit=length)

    def _get(self, address: str, headers: dict[str, str], limit: int | None = None) -> bytes:
        import requests

        try:
            registry = self._registry = self._registry or self._login()
            # Unwrapped: the library's retry sleeps for two minutes on a refused login. The caller tries again anyway.
            ask = type(registry).do_request.__wrapped__
            with ask(registry, f"{registry.prefix}://{address}", headers=headers, stream=True) as answer:
                if answer.status_code in (401, 403):
                    raise forbidden(self.uri, f"{answer.status_code} {answer.reason}")
                if answer.status_code == 404:
                    raise not_found(self.uri, "the registry does not have it")
                if limit is not None and answer.status_code != 206 and int(answer.headers["Content-Length"]) != limit:
                    raise unreachable(self.uri, f"the registry answers {answer.status_code} to a range of a blob")
                answer.raise_for_status()
                return bytes(answer.content)
        except requests.RequestException as error:
            raise unreachable(self.uri, error) from error
        except (ValueError, AttributeError) as error:
            # What the library raises where a registry wants a login and there is none, or another.
            raise forbidden(self.uri, str(error)) from error

    def _login(self) -> Any:
        return login(self._container, self._credentials)


def login(container: Any, given: Credentials) -> Any:
    """Return the library's client of a registry, with a login where there is one.

    Args:
        container: Registry, repository and tag as the library parses them.
        given: Login, certificate authority, and whether the registry speaks plain HTTP.
    """
    import requests
    from oras.provider import Registry

    insecure = (given.get("plainHTTP") or "").lower() == "true"
    verify: bool | str = str(given.ca_file) if given.ca_file else True
    probe = requests.get(
        f"{'http' if insecure else 'https'}://{container.registry}/v2/",
        verify=verify,
        timeout=TIMEOUT_SECONDS,
    )
    basic = probe.headers.get("WWW-Authenticate", "").lower().startswith("basic")
    registry = Registry(insecure=insecure, tls_verify=verify, auth_backend="basic" if basic else "token")
    for scheme in ("http://", "https://"):
        registry.session.mount(scheme, _with_timeout())
    if user := given.get("username"):
        registry.auth.set_basic_auth(user, given.get("password") or "")
    elif given.docker_config is not None:
        registry.auth.load_configs(container, configs=[str(given.docker_config)])
    return registry


def _with_timeout() -> Any:
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        """Gives every request a timeout; the library sets none."""

        def send(self, *arguments: Any, **options: Any) -> Any:
            return super().send(*arguments, **{**options, "timeout": options.get("timeout") or TIMEOUT_SECONDS})

    return Adapter()
