"""A way to an API server that a test can make slow, busy or dead."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal

_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "content-length", "content-encoding", "host"}


class FaultProxy:
    """Hands requests on to an API server, watches as they come.

    Args:
        server: URL of the API server.
        authority: Certificate that the server's is checked by.
        certificate: Certificate that the proxy shows.
        key: Its key.
        address: Where it listens.
        port: The port there; 0 for any that is free.
    """

    def __init__(
        self,
        server: str,
        *,
        authority: Path,
        certificate: Path,
        key: Path,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._server, self._address, self._port = server, address, port
        self._towards = ssl.create_default_context(cafile=str(authority))
        self._shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._shown.load_cert_chain(certificate, key)
        self._stack = ExitStack()
        self._handling: set[asyncio.Task[Any]] = set()
        self.delay = 0.0
        """Seconds before each request is handed on."""
        self.refuse: Callable[[str, str], bool] = lambda method, path: False
        """Which requests are answered with 429 and the wish to come back after a second."""
        self.forbid: Callable[[str, str], bool] = lambda method, path: False
        """Which requests are answered with 403, as by an API server that does not know the roles yet."""
        self.refused = 0
        """How many were answered so, either way."""

    def __enter__(self) -> "FaultProxy":
        self._portal = self._stack.enter_context(start_blocking_portal())
        self.url: str = self._portal.call(self._start)
        self._stack.callback(self._portal.call, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def cut(self) -> None:
        """Lose every byte from now on, in both directions: nothing is closed and nobody is told."""
        self._portal.call(self._open.clear)

    def heal(self) -> None:
        """Let bytes through again; whoever waits on a connection of before is told that it is gone."""
        self._portal.call(self._break_off)
        self._portal.call(self._open.set)

    def break_off(self) -> None:
        """End all connections, as a server does that starts anew."""
        self._portal.call(self._break_off)

    async def _start(self) -> str:
        self._open = asyncio.Event()
        self._open.set()
        connector = aiohttp.TCPConnector(ssl=self._towards, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host=self._address, port=self._port, ssl_context=self._shown)
        await site.start()
        return f"https://{self._address}:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._break_off()
        await self._runner.cleanup()
        await self._session.close()

    async def _break_off(self) -> None:
        for task in list(self._handling):
            task.cancel()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        await self._open.wait()
        if self.refuse(request.method, request.path_qs):
            self.refused += 1
            return web.json_response(
                {"kind": "Status", "message": "too many"}, status=429, headers={"Retry-After": "1"}
            )
        if self.forbid(request.method, request.path_qs):
            self.refused += 1
            words = f'it is forbidden: User "operator" cannot {request.method.lower()} resource "{request.path}"'
            return web.json_response({"kind": "Status", "message": words}, status=403)
        await asyncio.sleep(self.delay)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        body = await request.read()
        asking = self._session.request(
            request.method,
            self._server + request.path_qs,
            headers=headers,
            data=body or None,
            skip_auto_headers=("Content-Type", "User-Agent"),
        )
        try:
            async with asking as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await self._open.wait()
                await response.prepare(request)
                await self._pump(answer, response)
                return response
        except aiohttp.ClientError:
            # As a server that is gone, or a client: the connection ends without an answer.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    async def _pump(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        async for chunk in answer.content.iter_any():
            await self._open.wait()
            await response.write(chunk)
        await response.write_eof()
