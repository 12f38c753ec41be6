"""A small OpenAI-compatible server whose model answers by a function of the conversation."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

type Mind = Callable[[list[dict[str, str]]], str | dict[str, Any]]
"""What the model says: text, or a whole message, as one with calls of tools is."""


@dataclass(kw_only=True)
class FakeModel:
    """Serves one name.

    `faults` are statuses that the next requests are answered with, 200 for a good answer; while `away` is above 0, all
    requests are answered 503, and each question for the models lowers it; `missed` counts the calls of that time;
    `answers_as` is the version that the header names;
    `keys` are the values of `Authorization` that requests came with.
    """

    name: str
    mind: Mind
    answers_as: str | None = None
    max_model_length: int | None = 4096
    series: str = ""
    faults: list[int] = field(default_factory=list)
    away: int = 0
    missed: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)

    async def start(self, tls: ssl.SSLContext | None = None) -> TestServer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        server = TestServer(app)
        await server.start_server(ssl=tls)
        return server

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.series, status=200 if self.series else 404)

    async def _models(self, request: web.Request) -> web.Response:
        if self.away:
            self.away -= 1
            return web.Response(status=503)
        base = {"id": "base", "max_model_len": self.max_model_length}
        return web.json_response({"data": [base, {"id": self.name, "parent": "base"}]})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        self.keys.add(request.headers.get("Authorization"))
        self.missed += self.away > 0
        status = 503 if self.away else self.faults.pop(0) if self.faults else 200
        if status != 200:
            message = "This model's maximum context length is 8 tokens" if status == 400 else "no"
            # Some servers repeat what they refuse.
            message = f"no such key: {request.headers.get('Authorization')}" if status == 401 else message
            return web.json_response({"error": {"message": message}}, status=status)
        if body["model"] != self.name:
            message = f"The model `{body['model']}` does not exist."
            return web.json_response({"error": {"message": message, "type": "NotFoundError"}}, status=404)
        said = self.mind(body["messages"])
        answer = said if isinstance(said, dict) else {"role": "assistant", "content": said}
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": self.name,
                "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
            },
            headers={"x-whetstone-adapter": self.answers_as or self.name},
        )
