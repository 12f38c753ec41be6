"""Push to an OCI registry: an artifact with one layer a file, as `oras push` makes it and our reader reads it."""

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone_api.source import Scheme

from whetstone_artifacts.sources.credentials import Credentials
from whetstone_artifacts.sources.oci import TITLE, login
from whetstone_artifacts.sources.parcel import Parcel, Pushed, occupied
from whetstone_artifacts.sources.push import to_write
from whetstone_artifacts.sources.remote import forbidden, unreachable

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
LAYER_TYPE = "application/octet-stream"
DIGEST_ANNOTATION = "dev.whetstone.digest"
"""Annotation of the manifest: content digest of what it holds."""
CHUNKED_BYTES = 64 << 20
"""From this size on a file goes in pieces: the library reads a smaller one into memory."""
_EMPTY = b"{}"


class OciDestination:
    """A repository of a registry; the tag is given, or made from the digest.

    Args:
        uri: `oci://registry/repo` or `oci://registry/repo:tag`.
        credentials: Login of the registry.
    """

    def __init__(self, uri: str, credentials: Credentials) -> None:
        import oras.client  # noqa: F401 - the package imports in a circle; this order works
        from oras.container import Container

        self.uri = uri
        self._place = uri.removeprefix(f"{Scheme.OCI}://")
        self._container = Container(self._place)
        self._tagged = ":" in self._place.rsplit("/", 1)[1]
        self._credentials = credentials

    def push(self, parcel: Parcel) -> Pushed:
        """Upload the layers that the registry lacks, then the manifest; or find it."""
        return self._guarded(lambda: self._push(parcel))

    def _push(self, parcel: Parcel) -> Pushed:
        registry = login(self._container, self._credentials)
        tag = self._container.tag if self._tagged else parcel.tag
        address = f"{registry.prefix}://{self._container.manifest_url(tag)}"
        manifest = manifest_of(parcel)
        repository = self.uri.removesuffix(f":{tag}") if self._tagged else self.uri
        held = self._ask(registry, address, headers={"Accept": MANIFEST_TYPE})
        if held.status_code != 404:
            held.raise_for_status()
            self._require_held(parcel, held.content, tag)
            digest = hashlib.sha256(held.content).hexdigest()
            return Pushed(uri=f"{repository}@sha256:{digest}", digest=parcel.digest, found=True)
        with tempfile.TemporaryDirectory() as scratch:
            for content in (parcel.record, _EMPTY):
                path = Path(scratch) / hashlib.sha256(content).hexdigest()
                path.write_bytes(content)
                self._upload(registry, path, _descriptor(content, LAYER_TYPE))
            for name, entry in parcel.files.items():
                layer = {"mediaType": LAYER_TYPE, "digest": f"sha256:{entry.sha256}", "size": entry.size}
                self._upload(registry, parcel.folder / name, layer)
        answer = self._ask(registry, address, "PUT", data=manifest, headers={"Content-Type": MANIFEST_TYPE})
        answer.raise_for_status()
        return Pushed(
            uri=f"{repository}@sha256:{hashlib.sha256(manifest).hexdigest()}", digest=parcel.digest, found=False
        )

    def _require_held(self, parcel: Parcel, manifest: bytes, tag: str) -> None:
        try:
            found = (json.loads(manifest).get("annotations") or {}).get(DIGEST_ANNOTATION)
        except (ValueError, AttributeError):
            found = None
        if found != parcel.digest:
            raise occupied(
                self.uri, f"tag {tag} names {found or 'an artifact of another program'}, not {parcel.digest}"
            )

    def _upload(self, registry: Any, path: Path, layer: dict[str, Any]) -> None:
        answer = registry.upload_blob(str(path), self._container, layer, do_chunked=layer["size"] >= CHUNKED_BYTES)
        answer.raise_for_status()

    def _ask(self, registry: Any, address: str, method: str = "GET", **options: Any) -> Any:
        # Unwrapped: the library's retry sleeps for two minutes on a refused login. The caller tries again anyway.
        answer = type(registry).do_request.__wrapped__(registry, address, method, **options)
        if answer.status_code in (401, 403):
            raise to_write(forbidden(self.uri, f"{answer.status_code} {answer.reason}"))
        return answer

    def _guarded[T](self, call: Callable[[], T]) -> T:
        import requests

        try:
            return call()
        except requests.RequestException as error:
            raise unreachable(self.uri, error) from error
        except (ValueError, AttributeError) as error:
            # What the library raises where a registry wants a login and there is none, or another.
            raise to_write(forbidden(self.uri, str(error))) from error


def manifest_of(parcel: Parcel) -> bytes:
    """Return the artifact's manifest; the same content gives the same bytes, hence the same digest."""
    layers = [_titled(_descriptor(parcel.record, LAYER_TYPE), parcel.marker)]
    for name, entry in sorted(parcel.files.items()):
        layer = {"mediaType": LAYER_TYPE, "digest": f"sha256:{entry.sha256}", "size": entry.size}
        layers.append(_titled(layer, name))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": f"application/vnd.whetstone.{parcel.content}.v1",
        "config": _descriptor(_EMPTY, EMPTY_TYPE),
        "layers": layers,
        "annotations": {DIGEST_ANNOTATION: parcel.digest},
    }
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    return {
        "mediaType": media_type,
        "digest": "sha256:" + hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }


def _titled(layer: dict[str, Any], name: str) -> dict[str, Any]:
    return {**layer, "annotations": {TITLE: name}}
