"""The guard: an ASGI application around the engine's."""

import hmac
import json
import os
import secrets
import time
from collections import Counter
from pathlib import Path

from . import measures
from .access import Access, Caller, Policy
from .admission import HEALTH, INFERENCE, MODELS, read_request, route_of, with_usage
from .answers import Answer, ModelList
from .asgi import App, Message, Receive, Refused, Scope, Send, header, read_body, replace_headers, send_json
from .drain import Drain
from .quiet import Quiet, mixes_prompt_logprobs, read_hold
from .routes import Routes, parse_routes
from .sampling import with_defaults
from .splits import session_of
from .stall import Stall
from .table import route_table

GUARD_PATH = "/whetstone/guard"
DRAIN_PATH = "/whetstone/guard/drain"
QUIET_PATH = "/whetstone/guard/quiet"
STALL_PATH = "/whetstone/guard/stall"
TABLE_PATH = "/whetstone/guard/routes"
TOKEN_HEADER = b"x-whetstone-token"
ALONE_HEADER = b"x-whetstone-alone"
TOKEN_FILE_VARIABLE = "WHETSTONE_TOKEN_FILE"  # noqa: S105 - a variable's name
TOKEN_FILE = "/etc/whetstone/access/token"  # noqa: S105 - a path, not a secret
ACCESS_FILE_VARIABLE = "WHETSTONE_ACCESS_FILE"


class Guard:
    """Lets clients reach an allow-list of inference routes, and the holder of the token everything.

    It starts closed. The sidecar opens it once the pod holds what it should, and tells it how names resolve.

    Args:
        app: The engine's application.
        token_file: File of the token; by default the one that `WHETSTONE_TOKEN_FILE` names.
        access_file: File of keys and limits; by default the one that `WHETSTONE_ACCESS_FILE` names, if any.
        mixes: Whether the engine takes prompt log-probabilities beside other requests; found out when None.
    """

    def __init__(
        self,
        app: App,
        token_file: str | Path | None = None,
        access_file: str | Path | None = None,
        *,
        mixes: bool | None = None,
    ) -> None:
        self._app = app
        access = access_file or os.environ.get(ACCESS_FILE_VARIABLE)
        self._access = Access(Path(access) if access else None)
        self._busy = 0
        self._token_file = Path(token_file or os.environ.get(TOKEN_FILE_VARIABLE, TOKEN_FILE))
        self._boot = secrets.token_hex(8)
        self._routes = Routes()
        self._in_flight: Counter[str] = Counter()
        self._drain = Drain()
        self._stall = Stall()
        self._quiet = Quiet(needed=not (mixes_prompt_logprobs() if mixes is None else mixes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI asks."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            send = self._drain.wrap(send)
            try:
                await self._serve(scope, receive, send)
            except Refused as refusal:
                await refusal.answer(send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = header(scope["headers"], TOKEN_HEADER)
        if given is not None:
            self._authenticate(given)
            if scope["path"] == GUARD_PATH:
                await self._control(scope, receive, send)
            elif scope["path"] == DRAIN_PATH:
                await self._begin_drain(scope, send)
            elif scope["path"] == QUIET_PATH:
                await self._hold(scope, receive, send)
            elif scope["path"] == STALL_PATH:
                await self._set_stalled(scope, receive, send)
            elif scope["path"] == TABLE_PATH:
                await send_json(send, route_table(scope))
            elif header(scope["headers"], ALONE_HEADER) is not None:
                with self._quiet.alone(self._clients_in_flight()):
                    await self._app(scope, receive, send)
            else:
                await self._app(scope, receive, send)
            return
        route = route_of(scope)
        if route == HEALTH:
            self._stall.check()
            await self._app(scope, receive, send)
            return
        with self._drain.serving():
            await self._serve_client(scope, receive, send, route=route)

    async def _serve_client(self, scope: Scope, receive: Receive, send: Send, *, route: tuple[str, str]) -> None:
        if route == MODELS or route in INFERENCE:
            policy = self._access.policy()
            caller = policy.authenticate(scope["headers"])
            self._require_open()
            if route == MODELS:
                await self._app(scope, receive, ModelList(send, self._routes, caller.may_use))
            else:
                await self._infer(scope, receive, send, caller=caller, policy=policy)
        else:
            self._require_open()
            await self._app(scope, receive, send)

    def _require_open(self) -> None:
        if not self._routes.open:
            raise Refused(503, "this replica is still starting; try again", code="starting", retry_after=5)

    def _authenticate(self, given: bytes) -> None:
        try:
            token = self._token_file.read_bytes().strip()
        except OSError:
            token = b""
        if not token or not hmac.compare_digest(given, token):
            raise Refused(401, f"the header {TOKEN_HEADER.decode()} is not the operator's", code="invalid_token")

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "PUT":
            before, self._routes = self._routes, parse_routes(await read_body(scope, receive))
            for served in set(before.names().values()) - set(self._routes.names().values()):
                measures.forget(served)
        elif scope["method"] != "GET":
            raise Refused(405, f"{GUARD_PATH} takes GET and PUT", code="method_not_allowed")
        busy = {name: count for name, count in self._in_flight.items() if count > 0}
        await send_json(send, {"boot": self._boot, "routes": self._routes.to_wire(), "inFlight": busy})

    async def _begin_drain(self, scope: Scope, send: Send) -> None:
        """Send clients to other pods from now on."""
        if scope["method"] != "POST":
            raise Refused(405, f"{DRAIN_PATH} takes POST", code="method_not_allowed")
        self._drain.begin()
        await send_json(send, {"draining": True, "quietSeconds": self._drain.quiet_seconds()})

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold clients back for a moment, where the engine needs it; tell how many requests are still in flight."""
        if scope["method"] != "POST":
            raise Refused(405, f"{QUIET_PATH} takes POST", code="method_not_allowed")
        seconds = read_hold(await read_body(scope, receive))
        if self._quiet.needed:
            self._quiet.hold(seconds)
        await send_json(send, {"needed": self._quiet.needed, "inFlight": self._clients_in_flight()})

    def _clients_in_flight(self) -> int:
        return sum(self._in_flight.values())

    async def _set_stalled(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the engine's health check fail for a while, or no longer."""
        if scope["method"] != "POST":
            raise Refused(405, f"{STALL_PATH} takes POST", code="method_not_allowed")
        self._stall.hold(read_hold(await read_body(scope, receive)))
        await send_json(send, {})

    async def _infer(self, scope: Scope, receive: Receive, send: Send, *, caller: Caller, policy: Policy) -> None:
        started = time.monotonic()
        served: str | None = None
        code = 500
        self._busy += 1
        try:
            policy.admit(self._busy)
            request = read_request(await read_body(scope, receive, limit=policy.request_bytes))
            await self._quiet.wait()
            requested = request.get("model")
            caller.check(requested, self._routes)
            served = self._routes.resolve(requested, session=session_of(scope["headers"], request))
            if requested in self._routes.splits or requested in self._routes.aliases:
                measures.count_alias(requested, served)
            request = with_defaults(request, path=scope["path"], sampling=self._routes.sampling)
            wanted, hide_usage = with_usage({**request, "model": served})
            answer = Answer(send, requested=requested, served=served, hide_usage=hide_usage)
            self._in_flight[served] += 1
            try:
                body = json.dumps(wanted).encode()
                inner = {
                    **scope,
                    "headers": [
                        (key, value)
                        for key, value in replace_headers(scope["headers"], content_length=str(len(body)).encode())
                        # Keys are the guard's matter, and of two lengths one would be wrong.
                        if key.lower() not in (b"transfer-encoding", b"authorization")
                    ],
                }
                await self._app(inner, _replay(body, receive), answer)
            finally:
                self._in_flight[served] -= 1
                code = answer.status or 499
        except Refused as refusal:
            code = refusal.status
            raise
        finally:
            self._busy -= 1
            measures.count_request(served=served, code=code, seconds=time.monotonic() - started)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the whole body first and then what the client does."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
