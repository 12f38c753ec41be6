"""The operator's way to the API server: a small protocol, and its implementation over `kubernetes.aio`.

Objects are plain dicts in wire form. Typed models of a client would silently drop fields that they do not know.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp
from pydantic_core import from_json
from whetstone_api.vocabulary import FIELD_MANAGER, REPORT_AUDIENCE

from whetstone_operator.kinds import CLAIM, EVENT, POD, TOKEN_REVIEW, Kind, kind_of
from whetstone_operator.runtime.ownership import require_own
from whetstone_operator.runtime.unchanged import holds, stamp
from whetstone_operator.transport import KubeError as KubeError
from whetstone_operator.transport import Transport

Object = dict[str, Any]
Objects = list[Object]
_PAGE = 100
"""Parsed objects take ten times the room of their text."""
_WATCH_SECONDS = 300
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=_WATCH_SECONDS + 30, sock_connect=10, sock_read=150)
"""The API server sends a bookmark every minute."""


@dataclass(frozen=True, kw_only=True)
class TokenIdentity:
    """Who a projected service-account token belongs to."""

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str


class Kube(Protocol):
    """What reconcilers may do with the API server. Every method but `get` and `delete` raises `KubeError`."""

    async def serves(self, kind: Kind) -> bool:
        """Return whether the API server knows a kind of a group."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None when it does not exist."""

    async def list(self, kind: Kind, namespace: str | None, labels: dict[str, str] | None = None) -> list[Object]:
        """Return the objects of a namespace (all of them: None) that carry the labels."""

    async def apply(self, obj: Object, *, look: bool = True, stored: Object | None = None) -> Object:
        """Apply a child on the server side, taking over conflicting fields; return what is stored.

        Args:
            obj: The child.
            look: Read it first, and leave it alone when it is stored as wanted; not where it surely is not.
            stored: What was read just now, which is not read once more.

        Raises:
            NameTakenError: An object of somebody else has its name.
        """

    async def apply_status(self, obj: Object) -> Object | None:
        """Apply the `status` of an object of ours; None when the object is gone or is another one by now."""

    async def create(self, obj: Object) -> Object:
        """Create an object; return the existing one when there is one of that name."""

    async def merge(self, obj: Object, change: Object) -> Object | None:
        """Merge a change into an object as it was read; None when it is gone, or another one by now."""

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
        transport: Sends requests; `close` closes it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._shared: dict[str, asyncio.Task[Object | None]] = {}

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None = None, *, hear: Callable[[str | None], None] = lambda _: None
    ) -> Self:
        """Return a client with the credentials that `Transport.connect` finds; `hear` takes the date of each answer."""
        return cls(await Transport.connect(kubeconfig, hear=hear))

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def serves(self, kind: Kind) -> bool:
        found = await self._get(f"/apis/{kind.api_version}")
        return found is not None and any(one["name"] == kind.plural for one in found["resources"])

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
        return [obj async for page, _ in self.pages(kind, namespace, labels) for obj in page]

    async def pages(
        self,
        kind: Kind,
        namespace: str | None,
        labels: Mapping[str, str | None] | None = None,
        *,
        fields: str | None = None,
    ) -> AsyncIterator[tuple[Objects, str]]:
        """Yield the objects with these labels (None: of any value) page by page, each with the list's version.

        Args:
            kind: Their kind.
            namespace: Their namespace; None for all.
            labels: What they carry.
            fields: Field selector that they match.

        Raises:
            KubeError: As `Kube`.
        """
        query: dict[str, Any] = {"limit": _PAGE, "labelSelector": _selector(labels), "fieldSelector": fields}
        while True:
            page = await self._json("GET", kind.path(namespace=namespace), query=query)
            metadata = page.get("metadata", {})
            items = page.get("items", [])
            yield (
                [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in items],
                str(metadata.get("resourceVersion", "")),
            )
            query["continue"] = metadata.get("continue")
            if not query["continue"]:
                return

    async def changes(
        self,
        kind: Kind,
        namespace: str | None,
        labels: Mapping[str, str | None],
        *,
        version: str,
        fields: str | None = None,
    ) -> AsyncIterator[Object]:
        """Yield the events of a watch from a version on, bookmarks among them, until the API server ends it.

        Args:
            kind: The kind.
            namespace: Its namespace; None for all.
            labels: As for `pages`.
            version: The version.
            fields: As for `pages`.

        Raises:
            KubeError: As `Kube`; also when nothing is heard for longer than bookmarks are apart.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": _WATCH_SECONDS}
        query |= {"resourceVersion": version, "labelSelector": _selector(labels), "fieldSelector": fields}
        async for line in self._transport.lines(kind.path(namespace=namespace), query=query, within=_WATCH_TIMEOUT):
            yield from_json(line)

    async def apply(self, obj: Object, *, look: bool = True, stored: Object | None = None) -> Object:
        wanted, kind, metadata = stamp(obj), kind_of(obj), obj["metadata"]
        if stored is None and look:
            stored = await self.get(kind, metadata["namespace"], metadata["name"])
        if stored is None:
            try:
                return await self._apply(wanted, force=False)
            except KubeError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
                # It is there all the same, with fields of somebody else: they go if it is ours.
                stored = await self._listed(kind, metadata["namespace"], metadata["name"])
                if stored is None:
                    raise
        require_own(stored, wanted)
        return stored if holds(stored, wanted) else await self._apply(wanted)

    async def _listed(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object from a list of it: kinds that are followed may be listed, and not read by name."""
        async for page, _ in self.pages(kind, namespace, fields=f"metadata.name={name}"):
            if page:
                return page[0]
        return None

    async def apply_status(self, obj: Object) -> Object | None:
        try:
            return await self._apply(obj, subresource="status")
        except KubeError as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return None
            raise

    async def _apply(self, obj: Object, *, subresource: str | None = None, force: bool = True) -> Object:
        metadata = obj["metadata"]
        path = kind_of(obj).path(namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource)
        return await self._json(
            "PATCH",
            path,
            query={"fieldManager": FIELD_MANAGER, "force": str(force).lower(), "fieldValidation": "Strict"},
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
                existing = await self._get(kind.path(namespace=metadata["namespace"], name=metadata["name"]))
                if existing is not None:
                    return existing
            raise

    async def merge(self, obj: Object, change: Object) -> Object | None:
        metadata = {**change.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
        path = kind_of(obj).path(namespace=obj["metadata"]["namespace"], name=obj["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        body, content_type = {**change, "metadata": metadata}, "application/merge-patch+json"
        try:
            return await self._json("PATCH", path, query=query, body=body, content_type=content_type)
        except KubeError as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return None
            raise

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
            return (await self._transport.request("GET", path, query=query)).decode(errors="replace")
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
        answer: Object = from_json(await self._transport.request(method, path, **options))
        return answer


def _selector(labels: Mapping[str, str | None] | None) -> str | None:
    """Return a label selector in text; None for everything."""
    parts = [name if value is None else f"{name}={value}" for name, value in sorted((labels or {}).items())]
    return ",".join(parts) or None
