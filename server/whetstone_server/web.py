"""The sidecar's HTTP server (protocol: `whetstone_api.pod_state`)."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import ValidationError
from whetstone_api.pod_state import DesiredState, PodState
from whetstone_api.vocabulary import TOKEN_HEADER

from whetstone_server.settings import Settings
from whetstone_server.sidecar import Sidecar

LONGEST_WAIT_SECONDS = 10.0
FRESH_SECONDS = 5.0
"""Longest time that `GET /v1/state` spends on reading the engine before it answers with what is known."""
OPEN_PATHS = frozenset({"/readyz", "/metrics"})


def make_app(sidecar: Sidecar, settings: Settings) -> web.Application:
    """Return the application that serves one sidecar."""

    @web.middleware
    async def authenticate(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            token = settings.token().encode()
            given = request.headers.get(TOKEN_HEADER, "").encode("utf-8", "surrogateescape")
            if not token or not hmac.compare_digest(given, token):
                return web.json_response({"error": f"the header {TOKEN_HEADER} is not the operator's"}, status=401)
        return await handler(request)

    async def put_desired(request: web.Request) -> web.Response:
        try:
            desired = DesiredState.model_validate_json(await request.read())
            wait = min(float(request.query.get("wait", "0")), LONGEST_WAIT_SECONDS)
        except (ValidationError, ValueError) as error:
            return web.json_response({"error": f"not a desired state: {error}"}, status=400)
        sidecar.set_desired(desired)
        if wait > 0:
            await sidecar.wait_settled(wait)
        return _answer(sidecar.answer())

    async def get_state(request: web.Request) -> web.Response:  # noqa: ARG001 - the framework's signature
        try:
            async with asyncio.timeout(FRESH_SECONDS):
                await sidecar.compare()
        except TimeoutError:
            pass
        return _answer(sidecar.state())

    async def readyz(request: web.Request) -> web.Response:  # noqa: ARG001 - the framework's signature
        state = sidecar.state()
        if state.engine_healthy and state.open:
            return web.Response(text="ok\n")
        missing = [
            f"{a.served_name}: {a.reason or 'loading'} {a.message}".strip()
            for a in state.adapters
            if not (a.loaded and a.effect.effective)
        ]
        if state.engine_stalled:
            text = "the engine takes requests and generates nothing"
        elif not state.engine_healthy:
            text = "the engine is not healthy"
        elif state.base.status == "False":
            text = f"base: {state.base.reason} {state.base.message}"
        else:
            text = "adapters: " + "; ".join(missing)
        return web.Response(status=503, text=text + "\n")

    async def metrics(request: web.Request) -> web.Response:  # noqa: ARG001 - the framework's signature
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[authenticate], client_max_size=4 * 1024 * 1024)
    app.router.add_put("/v1/desired", put_desired)
    app.router.add_get("/v1/state", get_state)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


def _answer(state: PodState) -> web.Response:
    return web.Response(text=state.to_json(), content_type="application/json")
