"""The operator's way to the API server: a small protocol, and its implementation over `kubernetes.aio`.

Objects are plain dicts in wire form. Typed models of a client would silently drop fields that they do not know.
"""

import asyncio
import json
import os
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config
from whetstone_api.vocabulary import FIELD_MANAGER, REPORT_AUDIENCE

from whetstone_operator.kinds import CLAIM, EVENT, POD, TOKEN_REVIEW, Kind, kind_of
from whetstone_operator.metrics import KUBE_REQUESTS
from whetstone_operator.runtime.unchanged import holds, stamp

Object = dict[str, Any]
_PAGE = 500
_TIMEOUT_SECONDS = 30
_PROXIES = {"https_proxy", "all_proxy"}


class KubeError(Exception):
    """The API server refused or failed.

    Args:
        status: HTTP status; 0 when no answer came.
        message: The server's own words.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def refused(self) -> bool:
        """Whether the request itself is wrong, so that sending it again changes nothing."""
        return self.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


@dataclass(frozen=True, kw_only=True)
class TokenIdentity:
    """Who a projected service-account token belongs to."""

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str


class Kube(Protocol):
    """What reconcilers may do with the API server. Every method but `get` and `delete` raises `KubeError`."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None when it does not exist."""

    async def list(self, kind: Kind, namespace: str | None, labels: dict[str, str] | None = None) -> list[Object]:
        """Return the objects of a namespace (all of them: None) that carry the labels."""

    async def apply(self, obj: Object, *, look: bool = True) -> Object:
        """Apply an object on the server side, taking over conflicting fields; return what is stored.

        Args:
            obj: The object.
            look: Read it first, and leave it alone when it is stored as wanted; not where it surely is not.
        """

    async def apply_status(self, obj: Object) -> Object | None:
        """Apply the `status` of an object of ours; None when the object is gone or is another one by now."""

    async def create(self, obj: Object) -> Object:
        """Create an object; return the existing one when there is one of that name."""

    async def merge(self, obj: Object, change: Object) -> bool:
        """Merge a change into an object as it was read; False when it is gone, or another one by now."""

    async def judge(self, obj: Object) -> Object:
        """Return an object as the API server would store it, after admission; nothing is stored."""

    async def delete(self, kind: Kind, namespace: str, name: str, *, children_first: bool = False) -> None:
        """Delete an object and, in the background or first, what it owns; an absent one is fine."""

    async def logs(
        self, *, namespace: str, pod: str, container: str, tail_lines: int = 20, previous: bool = False
    ) -> str:
        """Return the last log lines of a container; empty when there are none to be had."""

    async def review_token(self, token: str) -> TokenIdentity | None:
        """Return the pod that a token was projected into; None when the token is not valid for reports."""

    async def record_event(self, event: Object) -> None:
        """Create an `events.k8s.io/v1` Event, or count it up in its series when it exists."""


class KubeAio:
    """`Kube` over the asyncio half of the official client.

    Args:
        api: The client with its connection pool; `close` closes it.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self._shared: dict[str, asyncio.Task[Object | None]] = {}

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None) -> Self:
        """Return a client.

        Args:
            kubeconfig: File whose current context is used; by default the pod's own cluster, else KUBECONFIG.
        """
        configuration = client.Configuration()
        if not _PROXIES & {name.lower() for name in os.environ}:
            # With it, aiohttp looks for ~/.netrc before every request, in a thread.
            configuration.client_session_kwargs = {"trust_env": False}
        if kubeconfig is not None:
            await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        elif "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            await config.load_kube_config(client_configuration=configuration)
        return cls(client.ApiClient(configuration))

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        path = kind.path(namespace=namespace, name=name)
        if kind is not CLAIM:
            return await self._get(path)
        # Many servers mount the same claims: who asks while a question is on its way shares the answer.
        if path not in self._shared:
            self._shared[path] = asyncio.create_task(self._get(path))
            self._shared[path].add_done_callback(lambda _: self._shared.pop(path))
        return await asyncio.shield(self._shared[path])

    async def _get(self, path: str) -> Object | None:
        try:
            return await self._json("GET", path)
        except KubeError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def list(self, kind: Kind, namespace: str | None, labels: dict[str, str] | None = None) -> list[Object]:
        query: dict[str, Any] = {"limit": _PAGE}
        if labels:
            query["labelSelector"] = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        items: list[Object] = []
        while True:
            page = await self._json("GET", kind.path(namespace=namespace), query=query)
            items += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in page.get("items", [])]
            query["continue"] = page.get("metadata", {}).get("continue")
            if not query["continue"]:
                return items

    async def apply(self, obj: Object, *, look: bool = True) -> Object:
        wanted = stamp(obj)
        if look:
            stored = await self.get(kind_of(obj), obj["metadata"]["namespace"], obj["metadata"]["name"])
            if stored is not None and holds(stored, wanted):
                return stored
        return await self._apply(wanted)

    async def apply_status(self, obj: Object) -> Object | None:
        try:
            return await self._apply(obj, subresource="status")
        except KubeError as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return None
            raise

    async def _apply(self, obj: Object, subresource: str | None = None) -> Object:
        metadata = obj["metadata"]
        path = kind_of(obj).path(namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource)
        return await self._json(
            "PATCH",
            path,
            query={"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"},
            body=obj,
            content_type="application/apply-patch+yaml",
        )

    async def create(self, obj: Object) -> Object:
        kind, metadata = kind_of(obj), obj["metadata"]
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        try:
            return await self._json("POST", kind.path(namespace=metadata["namespace"]), query=query, body=obj)
        except KubeError as error:
            if error.status == HTTPStatus.CONFLICT:
                existing = await self.get(kind, metadata["namespace"], metadata["name"])
                if existing is not None:
                    return existing
            raise

    async def merge(self, obj: Object, change: Object) -> bool:
        metadata = {**change.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
        path = kind_of(obj).path(namespace=obj["metadata"]["namespace"], name=obj["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        body, content_type = {**change, "metadata": metadata}, "application/merge-patch+json"
        try:
            await self._json("PATCH", path, query=query, body=body, content_type=content_type)
        except KubeError as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return False
            raise
        return True

    async def judge(self, obj: Object) -> Object:
        query = {"dryRun": "All", "fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self._json(
            "POST", kind_of(obj).path(namespace=obj["metadata"]["namespace"]), query=query, body=obj
        )

    async def delete(self, kind: Kind, namespace: str, name: str, *, children_first: bool = False) -> None:
        query = {"propagationPolicy": "Foreground" if children_first else "Background"}
        try:
            await self._json("DELETE", kind.path(namespace=namespace, name=name), query=query)
        except KubeError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def logs(
        self, *, namespace: str, pod: str, container: str, tail_lines: int = 20, previous: bool = False
    ) -> str:
        query = {"container": container, "tailLines": tail_lines, "previous": str(previous).lower()}
        path = POD.path(namespace=namespace, name=pod, subresource="log")
        try:
            return (await self._request("GET", path, query=query)).decode(errors="replace")
        except KubeError:
            return ""

    async def review_token(self, token: str) -> TokenIdentity | None:
        body = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.name,
            "spec": {"token": token, "audiences": [REPORT_AUDIENCE]},
        }
        status = (await self._json("POST", TOKEN_REVIEW.path(), body=body)).get("status", {})
        user = status.get("user", {})
        parts = user.get("username", "").split(":")
        extra = user.get("extra", {})
        pod_name = extra.get("authentication.kubernetes.io/pod-name", [""])[0]
        pod_uid = extra.get("authentication.kubernetes.io/pod-uid", [""])[0]
        service_account = parts[:2] == ["system", "serviceaccount"] and len(parts) == 4
        if not (status.get("authenticated") and service_account and pod_name and pod_uid):
            return None
        return TokenIdentity(namespace=parts[2], service_account=parts[3], pod_name=pod_name, pod_uid=pod_uid)

    async def record_event(self, event: Object) -> None:
        metadata = event["metadata"]
        try:
            await self._json("POST", EVENT.path(namespace=metadata["namespace"]), body=event)
        except KubeError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            existing = await self.get(EVENT, metadata["namespace"], metadata["name"])
            count = ((existing or {}).get("series") or {}).get("count", 1)
            await self._json(
                "PATCH",
                EVENT.path(namespace=metadata["namespace"], name=metadata["name"]),
                body={"series": {"count": count + 1, "lastObservedTime": event["eventTime"]}},
                content_type="application/merge-patch+json",
            )

    async def _json(self, method: str, path: str, **options: Any) -> Object:
        answer: Object = json.loads(await self._request(method, path, **options))
        return answer

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        filled = {name: value for name, value in (query or {}).items() if value is not None}
        serialized = await self._api.param_serialize(
            method=method,
            resource_path=path + (f"?{urlencode(filled)}" if filled else ""),
            header_params={"Accept": "application/json, */*", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = await self._api.call_api(*serialized, _request_timeout=_TIMEOUT_SECONDS)
            data: bytes = await response.read()
        except (OSError, TimeoutError, aiohttp.ClientError, client.ApiException) as error:
            KUBE_REQUESTS.labels(verb=method, code="none").inc()
            raise KubeError(0, f"no answer from the API server: {error or type(error).__name__}") from error
        KUBE_REQUESTS.labels(verb=method, code=str(response.status)).inc()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise KubeError(response.status, _message(data))
        return data


def _message(data: bytes) -> str:
    """Return the words of an error answer, which is a `Status` object or plain text."""
    text = data.decode(errors="replace")
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text[:1024]
