"""A thin client of a real API server: what a test sends is what the server gets, and the server's words come back."""

import copy
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import httpx
from support.waiting import eventually
from whetstone_api.crdgen import KINDS
from whetstone_api.vocabulary import API_VERSION

Object = dict[str, Any]
PATHS = {kind.kind_name: (f"/apis/{API_VERSION}", kind.plural) for kind in KINDS} | {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Pod": ("/api/v1", "pods"),
    "LimitRange": ("/api/v1", "limitranges"),
    "ResourceQuota": ("/api/v1", "resourcequotas"),
    "Event": ("/apis/events.k8s.io/v1", "events"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Job": ("/apis/batch/v1", "jobs"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
}


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The API server said no.

    Args:
        status: HTTP status.
        message: The server's sentence.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


def accepted(write: Callable[[], object]) -> None:
    """Write what the API server, started just now, may refuse at first; what is there already is written."""

    def tried() -> bool:
        try:
            write()
        except httpx.HTTPError as error:
            raise AssertionError(str(error)) from error
        except Refused as error:
            if error.status == httpx.codes.CONFLICT and "already exists" in error.message:
                return True
            if error.status < httpx.codes.INTERNAL_SERVER_ERROR:
                raise
            raise AssertionError(str(error)) from error
        return True

    eventually(tried, what="the API server accepts")


class Api:
    """Client of one API server as its administrator.

    Args:
        server: URL.
        pki: Folder with `ca.crt`, `admin.crt` and `admin.key`.
    """

    def __init__(self, server: str, pki: Path) -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._user = ""
        self._client = httpx.Client(base_url=server, verify=context, trust_env=False, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def acting_as(self, user: str) -> "Api":
        """Return a client whose requests count as a user's; a service account's groups follow from its name."""
        other = copy.copy(self)
        other._user = user
        return other

    def create(self, obj: Object, *, namespace: str, dry_run: bool = False) -> Object:
        """Create an object with strict field validation."""
        return self._send("POST", self._path(obj["kind"], namespace), obj, dry_run=dry_run)

    def replace(self, obj: Object, *, namespace: str, dry_run: bool = False, status: bool = False) -> Object:
        """Replace an object, or only its status."""
        path = self._path(obj["kind"], namespace, obj["metadata"]["name"]) + ("/status" if status else "")
        return self._send("PUT", path, obj, dry_run=dry_run)

    def merge(self, kind: str, name: str, patch: Object, *, namespace: str, status: bool = False) -> Object:
        """Merge a patch into an object, or into its status."""
        path = self._path(kind, namespace, name) + ("/status" if status else "")
        return self._send("PATCH", path, patch, content_type="application/merge-patch+json")

    def get(self, kind: str, name: str, *, namespace: str) -> Object | None:
        """Return an object, or None."""
        try:
            return self._send("GET", self._path(kind, namespace, name))
        except Refused as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def list(self, kind: str, *, namespace: str, labels: str = "") -> list[Object]:
        """Return the objects of a namespace that carry the labels (`name=value,…`)."""
        items: list[Object] = self._send("GET", self._path(kind, namespace), query={"labelSelector": labels})["items"]
        return items

    def watch(self, kind: str, *, namespace: str, name: str = "") -> Iterator[Object]:
        """Yield the objects of a kind, or one of them, as they are and at every change; ends when nobody asks more."""
        query = {"watch": "true", **({"fieldSelector": f"metadata.name={name}"} if name else {})}
        while True:
            with self._client.stream("GET", self._path(kind, namespace), params=query, timeout=600) as answer:
                if answer.is_success:
                    yield from (json.loads(line)["object"] for line in answer.iter_lines())
                    return
                message = answer.read().decode()
                # The cache of a kind that was defined just now is still being filled.
                if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
                    raise Refused(answer.status_code, message)

    def delete(self, kind: str, name: str, *, namespace: str, propagation: str = "Background") -> None:
        """Delete an object and what it owns: in the background, or first (`Foreground`)."""
        self._send("DELETE", self._path(kind, namespace, name), query={"propagationPolicy": propagation})

    def raw(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send a request to any path."""
        return self._send(method, path, body)

    def patch(self, path: str, patch: Object) -> Object:
        """Merge a patch into the object at any path."""
        return self._send("PATCH", path, patch, content_type="application/merge-patch+json")

    @staticmethod
    def _path(kind: str, namespace: str, name: str = "") -> str:
        root, plural = PATHS[kind]
        return f"{root}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: dict[str, str] | None = None,
        dry_run: bool = False,
        content_type: str = "application/json",
    ) -> Object:
        parameters = dict(query or {})
        if method in ("POST", "PUT", "PATCH"):
            parameters["fieldValidation"] = "Strict"
        if dry_run:
            parameters["dryRun"] = "All"
        headers = {"Content-Type": content_type} | ({"Impersonate-User": self._user} if self._user else {})
        answer = self._client.request(method, f"{path}?{urlencode(parameters)}", json=body, headers=headers)
        content: Object = answer.json()
        if answer.is_error:
            raise Refused(answer.status_code, content.get("message", ""))
        return content
