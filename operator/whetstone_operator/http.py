"""The operator's HTTP server: health, metrics, and the endpoint that pods report to.

GET  /healthz   200 while reconciles make progress
GET  /readyz    200 once the watches run, and on an operator that stands by
GET  /metrics   Prometheus; with `name[]`, repeated, only the series of these names
POST /v1/reports/{plural}/{namespace}/{name}   bearer token of a pod of that object; body `ProgressReport`
POST /v1/engine-checks/benchmarkruns/{namespace}/{name}   the same with an `EngineIdentity`; answers an `EngineCheck`
POST /v1/turns/benchmarkruns/{namespace}/{name}   the same with an empty body; answers a `Turn`
POST /v1/trainer-status/{plural}/{namespace}/{name}   the same with the body of Kubeflow's trainer-status protocol
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from pydantic import ValidationError
from whetstone_api.benchmark_target import EngineCheck, EngineIdentity
from whetstone_api.reports import ProgressReport, Turn
from whetstone_api.trainer_status import TrainerStatusMessage

from whetstone_operator.children import owner_of
from whetstone_operator.kinds import BENCHMARK_RUN, OUR_KINDS, POD, Key
from whetstone_operator.kube import Kube, KubeError, TokenIdentity
from whetstone_operator.metrics import REPORTS
from whetstone_operator.runtime.clock import Clock
from whetstone_operator.runtime.progress import ProgressBoard

BODY_LIMIT = 16 * 1024
_CACHE_SECONDS = 300.0
_CACHE_SIZE = 4096
_PLURALS = frozenset(kind.plural for kind in OUR_KINDS)


class Reporters:
    """Decides whose pod a token belongs to.

    Args:
        kube: Reviews tokens and reads pods.
        clock: Ages the cache, by steady time: a token counts no longer because a clock was set back.
    """

    def __init__(self, kube: Kube, *, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._known: dict[str, tuple[float, Key]] = {}

    async def owner(self, token: str) -> Key | None:
        """Return the object that the token's pod works for; None when the token is not valid.

        Raises:
            PermissionError: The token is valid, and its pod works for none of our objects.
        """
        now = self._clock.steady()
        known = self._known.get(token)
        if known and now - known[0] < _CACHE_SECONDS:
            return known[1]
        identity = await self._kube.review_token(token)
        if identity is None:
            return None
        owner = await self._owner_of_pod(identity)
        self._known = {one: told for one, told in self._known.items() if now - told[0] < _CACHE_SECONDS}
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        self._known[token] = (now, owner)
        return owner

    async def _owner_of_pod(self, identity: TokenIdentity) -> Key:
        pod = await self._kube.get(POD, identity.namespace, identity.pod_name)
        if pod is None or pod["metadata"].get("uid") != identity.pod_uid:
            raise PermissionError(f"pod {identity.pod_name} of the token does not exist any more")
        owner = owner_of(pod["metadata"].get("labels") or {}, identity.namespace)
        if owner is None:
            raise PermissionError(f"pod {identity.pod_name} works for no object of Whetstone")
        return owner


class OperatorHttp:
    """Builds the application.

    Args:
        reporters: Checks tokens.
        board: Takes the reports.
        mark: Makes a key due after some seconds.
        check_engines: Compares the engines that a run began with with what they are.
        take_turn: Says whether it is a run's turn to measure its server.
        healthy: Whether reconciles make progress.
        ready: Whether the watches run.
    """

    def __init__(
        self,
        *,
        reporters: Reporters,
        board: ProgressBoard,
        mark: Callable[[Key, float], None],
        check_engines: Callable[[Key, EngineIdentity], Awaitable[EngineCheck]],
        take_turn: Callable[[Key], Awaitable[Turn]],
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
    ) -> None:
        self._reporters = reporters
        self._board = board
        self._mark = mark
        self._check_engines = check_engines
        self._take_turn = take_turn
        self._healthy = healthy
        self._ready = ready

    def application(self, *middlewares: Middleware) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=BODY_LIMIT, middlewares=middlewares)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/reports/{plural}/{namespace}/{name}", self._report)
        app.router.add_post("/v1/engine-checks/{plural}/{namespace}/{name}", self._engine_check)
        app.router.add_post("/v1/turns/{plural}/{namespace}/{name}", self._turn)
        app.router.add_post("/v1/trainer-status/{plural}/{namespace}/{name}", self._trainer_status)
        return app

    async def _healthz(self, _: web.Request) -> web.Response:
        return _text(HTTPStatus.OK, "ok") if self._healthy() else _text(HTTPStatus.SERVICE_UNAVAILABLE, "no progress")

    async def _readyz(self, _: web.Request) -> web.Response:
        return _text(HTTPStatus.OK, "ok") if self._ready() else _text(HTTPStatus.SERVICE_UNAVAILABLE, "starting")

    async def _metrics(self, request: web.Request) -> web.Response:
        names = request.query.getall("name[]", [])
        registry = REGISTRY.restricted_registry(names) if names else REGISTRY
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _report(self, request: web.Request) -> web.Response:
        response = await self._answer(request, ProgressReport.model_validate_json, HTTPStatus.ACCEPTED)
        REPORTS.labels(code=str(response.status)).inc()
        return response

    async def _trainer_status(self, request: web.Request) -> web.Response:
        # The protocol's clients take no other code for success.
        response = await self._answer(request, _read_trainer_status, HTTPStatus.OK)
        REPORTS.labels(code=str(response.status)).inc()
        return response

    async def _engine_check(self, request: web.Request) -> web.Response:
        key = _key(request)
        refusal = await self._refusal_of_run(request, key)
        if refusal is not None:
            return refusal
        try:
            check = await self._check_engines(key, EngineIdentity.model_validate_json(await request.read()))
        except ValidationError as error:
            return _text(HTTPStatus.BAD_REQUEST, f"the body is no engine identity: {error.errors()[0]['msg']}")
        except KubeError as error:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"cannot read the engines: {error}")
        return web.json_response(check.to_wire())

    async def _turn(self, request: web.Request) -> web.Response:
        key = _key(request)
        refusal = await self._refusal_of_run(request, key)
        if refusal is not None:
            return refusal
        try:
            turn = await self._take_turn(key)
        except KubeError as error:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"cannot read or mark the run's Jobs: {error}")
        if not turn.granted:
            # Its status says what it waits for: when it was written last, nobody may have measured yet.
            self._mark(key, 0.0)
        return web.Response(text=turn.to_json(), content_type="application/json")

    async def _answer(
        self, request: web.Request, read: Callable[[bytes], ProgressReport], success: HTTPStatus
    ) -> web.Response:
        key = _key(request)
        if key.plural not in _PLURALS:
            return _text(
                HTTPStatus.NOT_FOUND, f"{key.plural} take no reports; use one of {', '.join(sorted(_PLURALS))}"
            )
        refusal = await self._refusal(request, key)
        if refusal is not None:
            return refusal
        try:
            report = read(await request.read())
        except ValidationError as error:
            return _text(HTTPStatus.BAD_REQUEST, f"the body is no progress report: {error.errors()[0]['msg']}")
        self._mark(key, self._board.put(key, report))
        return web.Response(status=success)

    async def _refusal_of_run(self, request: web.Request, key: Key) -> web.Response | None:
        """As `_refusal`, for what only runs may ask."""
        if key.plural != BENCHMARK_RUN.plural:
            return _text(HTTPStatus.NOT_FOUND, f"{key.plural} measure no engines; {BENCHMARK_RUN.plural} do")
        return await self._refusal(request, key)

    async def _refusal(self, request: web.Request, key: Key) -> web.Response | None:
        """Refuse whoever is no pod of the object; None lets it pass."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return _text(HTTPStatus.UNAUTHORIZED, "send the projected token as bearer")
        try:
            owner = await self._reporters.owner(token.strip())
        except PermissionError as error:
            return _text(HTTPStatus.FORBIDDEN, str(error))
        except KubeError as error:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"cannot check the token: {error}")
        if owner is None:
            return _text(HTTPStatus.UNAUTHORIZED, "the token is not valid for reports")
        if owner != key:
            return _text(HTTPStatus.FORBIDDEN, f"the token's pod works for {owner}, not for {key}")
        return None


def _key(request: web.Request) -> Key:
    parts = request.match_info
    return Key(parts["plural"], parts["namespace"], parts["name"])


def _read_trainer_status(body: bytes) -> ProgressReport:
    return TrainerStatusMessage.model_validate_json(body).report()


def _text(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n")
