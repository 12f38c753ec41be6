"""A toolshim: the base model says in words what to do, a small adapter makes a call of a tool of it.

It is itself an OpenAI-compatible server, for agents that call tools. The base model stays as it is and never sees the
form of calls; the adapter, trained on one task only, turns its words into JSON. Both are names of one ModelServer.
Requests without tools go to the base model as they are. The answer names the versions that had a part in it, as the
ModelServer does, in the order in which they were asked.

Variables:
    UPSTREAM: Base URL of the ModelServer, without `/v1`.
    BASE: Name of the model that thinks.
    SHIM: Alias or adapter that writes the calls.
    SHIM_TOKENS: Tokens of one of its replies at most; 512.
"""

import json
import logging
import os
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import aiohttp
from aiohttp import web
from jsonschema import Draft202012Validator, SchemaError

TRIES: Final = 2
"""Requests to the shim for one reply: the second one says what was wrong with the first."""
VERSION_HEADER: Final = "X-Whetstone-Adapter"
"""In which a ModelServer names the version that answered."""
SESSION: Final = web.AppKey("session", aiohttp.ClientSession)
_BLOCK: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
SHIM_PROMPT: Final = (
    "Turn the assistant's message into calls of tools. Reply with one JSON object and nothing else:"
    ' {"tool_calls": [{"name": "...", "arguments": {...}}]}, with an empty list where it asks for none.'
)

log = logging.getLogger("toolshim")


class UpstreamError(Exception):
    """The ModelServer gives no reply.

    Args:
        status: What the client is told.
        message: Why.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def words_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation for a model that knows nothing of calls: tools, calls and results as text."""
    told = "\n".join(
        f"- {tool['function']['name']}: {tool['function'].get('description', '')}"
        f" Arguments: {json.dumps(tool['function'].get('parameters', {}).get('properties', {}))}"
        for tool in tools
    )
    system = f"You can use these tools. Say in words which one to use next and with what, or answer.\n{told}"
    found: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "system":
            found[0]["content"] = f"{text}\n\n{system}"
        elif message["role"] == "tool":
            found.append({"role": "user", "content": f"The tool returned:\n{text}"})
        elif message.get("tool_calls"):
            calls = "\n".join(
                f"Use {call['function']['name']} with {call['function']['arguments']}" for call in message["tool_calls"]
            )
            found.append({"role": "assistant", "content": f"{text}\n{calls}".strip()})
        else:
            found.append({"role": message["role"], "content": text})
    return found


def read_calls(text: str, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls that the shim's reply holds, as OpenAI's API has them.

    Args:
        text: The reply.
        tools: Functions that may be called.

    Raises:
        ValueError: It holds none of the form, or a call does not fit its tool; the message says which.
    """
    block = _BLOCK.search(text)
    try:
        calls = json.loads(block[1] if block else text)["tool_calls"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError('it is no {"tool_calls": [...]}') from error
    if not isinstance(calls, list):
        raise ValueError("tool_calls is no list")  # noqa: TRY004 - wrong text, not a wrong type of ours
    offered = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
    found = []
    for call in calls:
        name, arguments = (call.get("name"), call.get("arguments", {})) if isinstance(call, dict) else (None, None)
        if name not in offered:
            raise ValueError(f"there is no tool {name!r}; use one of {', '.join(offered)}")
        problem = next(Draft202012Validator(offered[name]).iter_errors(arguments), None)
        if problem is not None or not isinstance(arguments, dict):
            raise ValueError(f"{name}: {problem.message if problem else 'arguments is no object'}")
        function = {"name": name, "arguments": json.dumps(arguments)}
        found.append({"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function})
    return found


class Shim:
    """Answers requests with calls of tools.

    Args:
        upstream: Base URL of the ModelServer.
        base: Name of the model that thinks.
        shim: Alias or adapter that writes the calls.
        tokens: Tokens of one of its replies at most.
    """

    def __init__(self, upstream: str, *, base: str, shim: str, tokens: int = 512) -> None:
        self._place = f"{upstream.rstrip('/')}/v1/chat/completions"
        self._base = base
        self._shim = shim
        self._tokens = tokens

    def app(self) -> web.Application:
        """Return the server."""
        app = web.Application(client_max_size=64 * 1024**2)
        app.cleanup_ctx.append(_session)
        app.router.add_get("/healthz", _healthy)
        app.router.add_post("/v1/chat/completions", self.complete)
        return app

    async def complete(self, request: web.Request) -> web.Response:
        """Answer a chat request."""
        try:
            body = await request.json()
            messages, tools = body["messages"], body.get("tools") or []
            for tool in tools:
                Draft202012Validator.check_schema(tool["function"].get("parameters") or {})
            asked = words_of(messages, tools) if tools else messages
        except (ValueError, LookupError, TypeError, AttributeError, SchemaError) as error:
            return _refused(400, f"this is no chat request with tools as OpenAI's API has them ({error})")
        if body.get("stream"):
            return _refused(400, "the toolshim answers whole requests; leave out stream")
        key = request.headers.get("Authorization")
        ask = _Upstream(request.app[SESSION], self._place, key)
        own = {name: value for name, value in body.items() if name not in ("tools", "tool_choice", "messages", "model")}
        try:
            said = await ask({**own, "model": self._base, "messages": asked})
            calls = await self._calls(ask, said.text, tools) if tools else []
        except UpstreamError as error:
            return _refused(error.status, error.message)
        message: dict[str, Any] = {"role": "assistant", "content": said.text}
        if calls:
            message["tool_calls"] = calls
        return web.json_response(
            {
                "id": f"chatcmpl-{uuid.uuid4().hex}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": body.get("model") or self._base,
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else said.finish}],
                "usage": ask.usage,
            },
            headers={VERSION_HEADER: ", ".join(ask.versions)} if ask.versions else None,
        )

    async def _calls(self, ask: "_Upstream", text: str, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the calls that a text asks for; none where the shim makes nothing of it that fits."""
        functions = json.dumps([tool["function"] for tool in tools])
        prompt = f"{SHIM_PROMPT}\n\nTools:\n{functions}\n\nMessage:\n{text}"
        messages = [{"role": "user", "content": prompt}]
        for _ in range(TRIES):
            reply = await ask({"model": self._shim, "messages": messages, "temperature": 0, "max_tokens": self._tokens})
            try:
                return read_calls(reply.text, tools)
            except ValueError as error:
                log.info("the shim's reply is not taken: %s", error)
                again = {"role": "user", "content": f"That cannot be used: {error}. Reply with the JSON object alone."}
                messages = [*messages, {"role": "assistant", "content": reply.text}, again]
        return []


class _Reply:
    def __init__(self, text: str, finish: str) -> None:
        self.text = text
        self.finish = finish


class _Upstream:
    """Asks the ModelServer for one client, and adds up what it uses."""

    def __init__(self, session: aiohttp.ClientSession, place: str, key: str | None) -> None:
        self._session = session
        self._place = place
        self._headers = {"Authorization": key} if key else {}
        self.usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        self.versions: list[str] = []

    async def __call__(self, body: dict[str, Any]) -> _Reply:
        try:
            async with self._session.post(self._place, json=body, headers=self._headers) as response:
                if response.status != 200:
                    raise UpstreamError(response.status, f"{body['model']}: {(await response.text())[:500]}")
                data = await response.json()
            version = response.headers.get(VERSION_HEADER)
            if version and version not in self.versions:
                self.versions.append(version)
            for name in self.usage:
                self.usage[name] += int((data.get("usage") or {}).get(name) or 0)
            choice = data["choices"][0]
            return _Reply(choice["message"].get("content") or "", choice.get("finish_reason") or "stop")
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
            raise UpstreamError(502, f"the model server does not answer: {type(error).__name__}") from error


async def _session(app: web.Application) -> AsyncIterator[None]:
    timeout = aiohttp.ClientTimeout(total=600, sock_connect=10)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        app[SESSION] = session
        yield


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _refused(status: int, message: str) -> web.Response:
    error: dict[str, Any] = {"message": message, "type": "toolshim_error", "code": status}
    return web.json_response({"error": error}, status=status)


def main() -> None:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.INFO)
    try:
        tokens = int(os.environ.get("SHIM_TOKENS", "512"))
        shim = Shim(os.environ["UPSTREAM"], base=os.environ["BASE"], shim=os.environ["SHIM"], tokens=tokens)
    except KeyError as error:
        sys.exit(f"toolshim: {error} is not set")
    except ValueError as error:
        sys.exit(f"toolshim: SHIM_TOKENS: {error}")
    web.run_app(shim.app(), port=int(os.environ.get("PORT", "8080")), access_log=None)


if __name__ == "__main__":
    main()
