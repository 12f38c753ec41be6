"""The administrator's client for many requests at a time."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from integration.api import PATHS, Object, Refused

_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_PAUSE_SECONDS: Final = 0.2


class AsyncApi:
    """Sends requests about the objects of one namespace.

    Args:
        session: Trusts the API server, and has the administrator's certificate.
        namespace: Where all is.
    """

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self._session = session
        self.namespace = namespace

    @classmethod
    @asynccontextmanager
    async def connect(cls, server: str, pki: Path, namespace: str) -> AsyncIterator[Self]:
        """Give a client of the API server at a URL."""
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
        async with aiohttp.ClientSession(server, connector=connector, timeout=timeout) as session:
            yield cls(session, namespace)

    async def create(self, obj: Object) -> Object:
        """Create an object."""
        return await self._send("POST", self._path(obj["kind"]), obj)

    async def merge(self, kind: str, name: str, change: Object) -> None:
        """Merge a change into an object."""
        await self._send("PATCH", self._path(kind, name), change, content_type=_MERGE)

    async def write_status(self, kind: str, name: str, status: Object) -> None:
        """Merge into an object's status."""
        await self._send("PATCH", f"{self._path(kind, name)}/status", {"status": status}, content_type=_MERGE)

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object and, in the background, what it owns."""
        await self._send("DELETE", self._path(kind, name), {"propagationPolicy": "Background"})

    async def list(self, kind: str, labels: str = "") -> list[Object]:
        """Return the objects of a kind that carry the labels."""
        found: list[Object] = (await self._send("GET", self._path(kind), query={"labelSelector": labels}))["items"]
        return found

    async def token(self, account: str, spec: Object) -> str:
        """Return a token of a service account."""
        answer = await self._send("POST", f"{self._path('ServiceAccount', account)}/token", {"spec": spec})
        return str(answer["status"]["token"])

    async def watch(self, kind: str) -> AsyncIterator[Object]:
        """Yield an event for each object of a kind as it is, and for every change, until the server ends it."""
        async with self._session.get(self._path(kind), params={"watch": "true"}, read_bufsize=2**22) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                yield json.loads(line)

    async def follow(self, kind: str) -> AsyncIterator[Object]:
        """Yield the same without end: an API server ends each watch after a while, and then all comes once more."""
        while True:
            async for event in self.watch(kind):
                yield event
            await asyncio.sleep(_PAUSE_SECONDS)

    def _path(self, kind: str, name: str = "") -> str:
        root, plural = PATHS[kind]
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    async def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = _JSON,
        query: dict[str, Any] | None = None,
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        async with self._session.request(method, path, data=data, headers=headers, params=query) as answer:
            content: Object = json.loads(await answer.read())
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise Refused(answer.status, f"{method} {path}: {content.get('message')}")
        return content
