"""Sends each request to the adapter of its phase: the header X-Phase decides what `model` says.

For agents that work in phases, know of one model only, and can set a header. A client that can change `model` itself
needs no router: it names the alias.

Variables:
    UPSTREAM: Base URL of the ModelServer, without `/v1`.
    PHASES: Alias of each phase, as in `strategic=planner,tactical=worker`.
    DEFAULT_PHASE: Phase of requests without the header; their `model` stays as it is when empty.
"""

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web

PHASE_HEADER: Final = "X-Phase"
HOP_BY_HOP: Final = frozenset(
    {"connection", "content-length", "content-encoding", "host", "keep-alive", "transfer-encoding", "upgrade"}
)
"""Headers that belong to one connection, or change with the body."""
MOST_BYTES: Final = 64 * 1024**2
SESSION: Final = web.AppKey("session", aiohttp.ClientSession)

log = logging.getLogger("router")


def read_phases(text: str) -> dict[str, str]:
    """Return the alias of each phase.

    Raises:
        ValueError: A part is not `phase=alias`, or there is none.
    """
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    phases = {phase.strip(): alias.strip() for phase, _, alias in parts}
    if not phases or not all(phases) or not all(phases.values()):
        raise ValueError(f"PHASES is {text!r}; give phase=alias, with commas between them")
    return phases


class Router:
    """Passes requests on.

    Args:
        upstream: Base URL of the ModelServer.
        phases: Alias of each phase.
        default: Phase of requests that name none; empty to leave them as they are.

    Raises:
        ValueError: The default is no phase.
    """

    def __init__(self, upstream: str, phases: Mapping[str, str], default: str = "") -> None:
        if default and default not in phases:
            raise ValueError(f"DEFAULT_PHASE is {default!r}; use one of {', '.join(phases)}")
        self._upstream = upstream.rstrip("/")
        self._phases = phases
        self._default = default

    def app(self) -> web.Application:
        """Return the server."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.cleanup_ctx.append(_session)
        app.router.add_get("/healthz", _healthy)
        app.router.add_route("*", "/{path:.*}", self.pass_on)
        return app

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with the ModelServer's answer, piece by piece as it comes."""
        body = await request.read()
        phase = request.headers.get(PHASE_HEADER) or self._default
        if phase and request.method == "POST":
            if phase not in self._phases:
                return _refused(400, f"{PHASE_HEADER} is {phase!r}; use one of {', '.join(self._phases)}")
            try:
                body = _with_model(body, self._phases[phase])
            except ValueError as error:
                return _refused(400, f"the body is no JSON object ({error})")
        session = request.app[SESSION]
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        begun: web.StreamResponse | None = None
        try:
            async with session.request(
                request.method, f"{self._upstream}{request.path_qs}", data=body, headers=headers
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
                begun = web.StreamResponse(status=answer.status, headers=kept)
                await begun.prepare(request)
                async for piece in answer.content.iter_any():
                    await begun.write(piece)
                await begun.write_eof()
                return begun
        except (aiohttp.ClientError, TimeoutError) as error:
            if begun is not None:
                # The client must see that the answer is not whole.
                raise
            log.warning("%s does not answer: %s", self._upstream, error)
            return _refused(502, f"the model server does not answer: {type(error).__name__}")


def _with_model(body: bytes, alias: str) -> bytes:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError(f"but {type(value).__name__}")  # noqa: TRY004 - wrong input, as text that is no JSON
    return json.dumps({**value, "model": alias}).encode()


async def _session(app: web.Application) -> AsyncIterator[None]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=True) as session:
        app[SESSION] = session
        yield


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _refused(status: int, message: str) -> web.Response:
    error: dict[str, Any] = {"message": message, "type": "router_error", "code": status}
    return web.json_response({"error": error}, status=status)


def main() -> None:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.INFO)
    try:
        phases = read_phases(os.environ.get("PHASES", ""))
        router = Router(os.environ["UPSTREAM"], phases, os.environ.get("DEFAULT_PHASE", ""))
    except (KeyError, ValueError) as error:
        sys.exit(f"router: {error}")
    web.run_app(router.app(), port=int(os.environ.get("PORT", "8080")), access_log=None)


if __name__ == "__main__":
    main()
