"""The door: the one way from an agent to the measured model, a small HTTP server on this machine's own address.

Whatever an agent is made of (litellm, the OpenAI client, a user's own code), its calls go to a URL of its trial, and
the door passes them on to the ModelServer's guard. So each of these holds for every agent and needs no help of it: the
API key (agents never see it), the sampling of the spec, the attempt's seed, the check that the measured version
answered, new tries, time-outs, token counts and budgets. A failure of the server becomes the session's end and thereby
the trial's: an agent that swallows an error answer cannot turn it into a score.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import aiohttp
from aiohttp import web
from whetstone_api.vocabulary import ADAPTER_HEADER, AGENT_SOCKET

from whetstone_agent.agents.absence import Absence
from whetstone_agent.agents.errors import (
    BudgetExceededError,
    ModelRefusedError,
    ModelUnavailableError,
    RunBudgetExceededError,
    TargetChangedError,
)
from whetstone_agent.agents.pace import Pace, Waiting
from whetstone_agent.agents.run_budget import RunBudget
from whetstone_agent.agents.usage import Usage, outgrown
from whetstone_agent.api_key import authorization, without_keys

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 600.0
"""Longest time of one model call; litellm's own limit is the same, and says nothing of the cause."""
PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Before each new try of a call that the server did not answer."""
QUIET_SECONDS: Final = 30.0
"""A call that is unanswered for so long makes the door ask whether the server is there at all, again and again."""
_HEALTH_SECONDS: Final = 10.0
_MISSES: Final = 2
"""Unanswered questions in a row after which the server counts as gone: long before a task's own time is over, which
would make the server's silence the model's failure."""
_BODY_BYTES: Final = 64 << 20
_ROUTES: Final = ("chat/completions", "completions")
_PASSING: Final = frozenset({408, 409, 429})


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What every model call of a run carries, whatever the agent asked for."""

    temperature: float
    top_p: float


@dataclass(kw_only=True)
class Session:
    """The model calls of one trial.

    Args:
        url: Base URL for the agent, ending in `/v1`; it holds an unguessable token.
        seed: Seed of the trial's attempt.
        token_limit: Tokens, prompts and replies together, after which the next call ends the trial.
    """

    url: str
    seed: int
    token_limit: int | None = None
    usage: Usage = field(default_factory=Usage)
    waiting: Waiting = field(default_factory=Waiting)
    end: Exception | None = None
    """What ended it from outside."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, cause: Exception) -> None:
        """End the session; the first cause stays."""
        if self.end is None:
            self.end = cause
            self.ended.set()


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call of an agent: where it came from, where it goes, and what it carries."""

    request: web.Request
    route: str
    session: Session
    body: dict[str, Any]

    @property
    def most_tokens(self) -> int | None:
        """Tokens that the reply may have; None for no limit."""
        limits = [self.body.get(name) for name in ("max_completion_tokens", "max_tokens")]
        return next((limit for limit in limits if isinstance(limit, int)), None)


class _SilentError(Exception):
    """The server answers nothing."""


class Door:
    """Passes model calls on; an asynchronous context manager, and the process's one door while it is open.

    Args:
        server_url: Base URL of the measured server, ending in `/v1`.
        served_name: Version to ask for; the response header must name it.
        sampling: Put into every call.
        context_tokens: Longest conversation of the model, for agents that must know it.
        budget: Of the whole run; None for no limit.
        agent_socket: Where the container of a user's agent is reached.
        request_seconds: Longest time of one call.
        pauses_seconds: Before each new try; as many as there are new tries.
        quiet_seconds: Silence after which the server is asked whether it is there.
    """

    _open: ClassVar["Door | None"] = None

    def __init__(
        self,
        *,
        server_url: str,
        served_name: str,
        sampling: Sampling,
        context_tokens: int | None = None,
        budget: RunBudget | None = None,
        agent_socket: str = AGENT_SOCKET,
        request_seconds: float = REQUEST_SECONDS,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self.served_name = served_name
        self.context_tokens = context_tokens
        self.agent_socket = agent_socket
        self._server_url = server_url
        self._sampling = sampling
        self._budget = budget
        self._pace = Pace()
        self._request_seconds = request_seconds
        self._pauses = tuple(pauses_seconds)
        self._quiet_seconds = quiet_seconds
        self._absence = Absence(self._takes_calls)
        self._sessions: dict[str, Session] = {}
        self._address = ""

    @classmethod
    def current(cls) -> "Door":
        """Return the open door.

        Raises:
            RuntimeError: None is open.
        """
        if cls._open is None:
            raise RuntimeError("an agent that asks the model needs an open door")
        return cls._open

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._request_seconds)
        connector = aiohttp.TCPConnector(limit=0)
        self._client = aiohttp.ClientSession(timeout=timeout, connector=connector, headers=authorization())
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_post("/{token}/v1/{route:.+}", self._answer)
        app.router.add_get("/{token}/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self._address = f"http://127.0.0.1:{port}"
        if self._budget is not None:
            self._budget.open()
        Door._open = self
        return self

    async def __aexit__(self, *exception: object) -> None:
        Door._open = None
        await self._runner.cleanup()
        await self._client.close()
        if self._budget is not None:
            self._budget.close()

    def enter(self, *, seed: int, token_limit: int | None) -> Session:
        """Return a new session for a trial."""
        token = secrets.token_urlsafe(24)
        session = Session(url=f"{self._address}/{token}/v1", seed=seed, token_limit=token_limit)
        self._sessions[token] = session
        return session

    async def until_there(self) -> None:
        """Wait, before a trial begins, for a server that has answered no call of late; not for ever."""
        await self._absence.over()

    def slowness(self, session: Session, *, elapsed: float) -> str | None:
        """Say why what a trial did not reach is the server's doing; None where it is not.

        Args:
            session: The trial's.
            elapsed: Seconds that the agent has worked.
        """
        return session.waiting.blames_server(asyncio.get_running_loop().time(), elapsed, self._pace)

    def leave(self, session: Session) -> None:
        """Forget a session: its URL answers no more."""
        self._sessions = {token: one for token, one in self._sessions.items() if one is not session}

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["token"] not in self._sessions:
            return _error(404, "no trial has this address")
        card = {"id": self.served_name, "object": "model", "max_model_len": self.context_tokens}
        return web.json_response({"object": "list", "data": [card]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        session = self._sessions.get(request.match_info["token"])
        route = request.match_info["route"]
        if session is None or route not in _ROUTES:
            return _error(404, "no trial has this address, or no such route exists")
        try:
            body = await request.json()
            asked = body["model"]
        except (ValueError, KeyError, TypeError):
            return _error(400, "the body must be a JSON object with a model")
        if asked != self.served_name:
            return _error(404, f"the run measures {self.served_name!r}, and {asked!r} was asked for")
        self._spend(session)
        if session.end is not None:
            return _error(503, f"the trial has ended: {session.end}")
        call = _Call(request=request, route=route, session=session, body=self._sampled(body, session))
        return await self._pass_on(call)

    def _spend(self, session: Session) -> None:
        """End the session when a budget is used up."""
        if session.token_limit is not None and session.usage.tokens >= session.token_limit:
            message = f"{session.usage.tokens} tokens used of {session.token_limit}"
            session.stop(BudgetExceededError(f"{message} (spec.agent.budget.tokens)"))
        if self._budget is not None and (told := self._budget.overspent()) is not None:
            session.stop(RunBudgetExceededError(f"{told} (spec.agent.budget.runTokens)"))

    def _sampled(self, body: Mapping[str, Any], session: Session) -> dict[str, Any]:
        sampled = {
            **body,
            "temperature": self._sampling.temperature,
            # Sent even where it changes nothing: a server's default sampling must not enter a benchmark.
            "top_p": self._sampling.top_p,
            "seed": session.seed,
        }
        if body.get("stream"):
            sampled["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return sampled

    async def _pass_on(self, call: _Call) -> web.StreamResponse:
        """Ask the server, again where that can help; a failure ends the session."""
        trouble = ""
        session, clock = call.session, asyncio.get_running_loop().time
        started, before = clock(), session.usage.completion_tokens
        number = session.waiting.begin(started, call.most_tokens)
        try:
            for pause in (*self._pauses, None):
                try:
                    answer = await self._watched(call)
                    if isinstance(answer, web.StreamResponse):
                        return answer
                    trouble = answer
                except _SilentError:
                    trouble = "answers no call, and does not say that it is there"
                    break
                except TimeoutError:
                    trouble = (
                        f"gives no answer within {self._request_seconds:.0f} s; if it is only slow, lower"
                        " spec.concurrency or spec.agent.parameters.maxTokens"
                    )
                    break
                except (aiohttp.ClientError, OSError) as error:
                    trouble = f"does not answer: {error or type(error).__name__}"
                if pause is not None:
                    await asyncio.sleep(pause)
        finally:
            session.usage.seconds += clock() - started
            tokens = session.usage.completion_tokens - before
            session.waiting.end(number, clock(), tokens=tokens or None, pace=self._pace)
        return self._fail_unavailable(call.session, f"{self._server_url} {trouble}")

    async def _watched(self, call: _Call) -> web.StreamResponse | str:
        """Ask the server, and give up on one that is not there any more.

        Raises:
            _SilentError: It is silent, also when asked whether it is there.
        """
        asking = asyncio.ensure_future(self._ask(call))
        misses = 0
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=self._quiet_seconds)
                misses = 0 if asking.done() or await self._is_there() else misses + 1
                if misses == _MISSES:
                    raise _SilentError
            return await asking
        finally:
            asking.cancel()

    async def _is_there(self) -> bool:
        """Say whether the server answers anything at all; what it answers does not matter."""
        url, seconds = f"{self._server_url.removesuffix('/v1')}/health", min(_HEALTH_SECONDS, self._quiet_seconds)
        return await self._status(url, within=seconds) is not None

    async def _takes_calls(self) -> bool:
        """Say whether the server would take a call: it lists its models, which one that is starting does not."""
        status = await self._status(f"{self._server_url}/models", within=_HEALTH_SECONDS)
        return status is not None and not _passes(status)

    async def _status(self, url: str, *, within: float) -> int | None:
        """Return the status that an address answers with; None without an answer in so many seconds."""
        try:
            async with self._client.get(url, timeout=aiohttp.ClientTimeout(total=within)) as answer:
                return answer.status
        except (TimeoutError, aiohttp.ClientError, OSError):
            return None

    async def _ask(self, call: _Call) -> web.StreamResponse | str:
        """Return the answer for the agent, or in words why the server must be asked again."""
        async with self._client.post(f"{self._server_url}/{call.route}", json=call.body) as answer:
            if answer.status == 200:
                return await self._success(call, answer)
            text = without_keys(await answer.text())
            said = f"answers {answer.status}: {text[:500]}"
            if answer.status == 404:
                return self._fail(call.session, TargetChangedError(f"{self.served_name!r} is no longer served: {said}"))
            if _passes(answer.status):
                return said
            if answer.status in (401, 403):
                return self._fail(call.session, ModelRefusedError(f"{self._server_url} {said}"))
            if outgrown(answer.status, text):
                call.session.usage.overflows += 1
            return web.Response(status=answer.status, text=text, content_type="application/json")

    async def _success(self, call: _Call, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        answered = answer.headers.get(ADAPTER_HEADER)
        if answered != self.served_name:
            changed = TargetChangedError(f"asked for {self.served_name!r}, {answered!r} answered")
            return self._fail(call.session, changed)
        self._absence.end()
        headers = {ADAPTER_HEADER: answered}
        if call.body.get("stream"):
            return await self._stream(call, answer, headers)
        payload = await answer.read()
        self._count(call.session, payload)
        return web.Response(body=payload, headers=headers, content_type="application/json")

    async def _stream(
        self, call: _Call, answer: aiohttp.ClientResponse, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Hand pieces on as they come. What has begun cannot be tried again, so a break ends the session."""
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        await response.prepare(call.request)
        try:
            async for line in answer.content:
                if line.startswith(b"data:") and b'"usage"' in line:
                    self._count(call.session, line.removeprefix(b"data:"), stream=True)
                await response.write(line)
        except (TimeoutError, aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            message = f"{self._server_url} broke off an answer: {error or type(error).__name__}"
            self._fail_unavailable(call.session, message)
        await response.write_eof()
        return response

    def _count(self, session: Session, payload: bytes, *, stream: bool = False) -> None:
        before = session.usage.tokens
        try:
            session.usage.add(json.loads(payload), call=not stream)
        except (ValueError, AttributeError, TypeError):
            log.warning("an answer of the model server cannot be counted")
        if self._budget is not None:
            self._budget.spend(session.usage.tokens - before)

    def _fail_unavailable(self, session: Session, message: str) -> web.Response:
        self._absence.begin()
        return self._fail(session, ModelUnavailableError(message))

    @staticmethod
    def _fail(session: Session, cause: Exception) -> web.Response:
        session.stop(cause)
        return _error(503, str(cause))


def _passes(status: int) -> bool:
    """Return whether a failure with this status may be over when the same is asked again."""
    return status >= 500 or status in _PASSING


def _error(status: int, message: str) -> web.Response:
    body = {"error": {"message": message, "type": "whetstone_runner", "param": None, "code": status}}
    return web.json_response(body, status=status, headers={"x-should-retry": "false"})
