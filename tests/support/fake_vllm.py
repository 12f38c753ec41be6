"""A small stand-in for vLLM's adapter protocol, behind the real guard.

Status codes and messages are those of vLLM 0.32; a contract test on the cluster keeps them true. Log-probabilities are
a fixed function of model and tokens, so that probes can be recorded without an engine.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import generate_latest
from uvicorn.server import ServerState
from whetstone_api.adapter_artifact import CONFIG_FILE, Probe, ProbeCase, TemplateCase
from whetstone_server.guard.whetstone_guard import Guard
from whetstone_server.guard.whetstone_guard.asgi import Receive, Scope, Send, read_body, send_json

_OF_GUARD = re.compile(r"(# \w+ )?whetstone_(requests|request_seconds|time_to_first_token|tokens|alias_requests)")
"""Lines of the guard's series, which an engine's page shows beside its own."""

BASE = "tiny"
TOKENS = [5, 11, 7, 2, 9, 4, 13, 8]
ANSWER_START = 4
TEMPLATE = "<{role}>{content}</>"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def base_logprob(token: int, index: int) -> float:
    """Return the fake base model's log-probability of a token at an index."""
    return -0.1 - ((token * 7 + index * 3) % 10) / 5


def effect_of(folder: Path) -> float:
    """Return by how many nats an adapter raises each token: its alpha in hundredths."""
    return float(json.loads((folder / CONFIG_FILE).read_text())["lora_alpha"]) / 100


def record_probe(
    *,
    effect: float,
    fingerprint: str = "sha256:base",
    dtype: str = "float32",
    cases: int = 1,
    conversations: Sequence[str] = (),
) -> Probe:
    """Return the probe that a trainer would record for an adapter of that effect."""
    recorded = [_record_case([*TOKENS, number] if number else TOKENS, effect) for number in range(cases)]
    chats = [[{"role": "user", "content": content}] for content in conversations]
    templates = [TemplateCase(messages=chat, token_ids=tokens_of(render_chat(chat, TEMPLATE))) for chat in chats]
    return Probe(base_fingerprint=fingerprint, dtype=dtype, noise=1e-5, cases=recorded, templates=templates)


def render_chat(messages: list[dict[str, str]], template: str) -> str:
    """Return a conversation as the fake's template puts it."""
    return "".join(template.format(**message) for message in messages)


def tokens_of(text: str) -> list[int]:
    """Return the fake tokenizer's ids of a text."""
    return [ord(letter) % 50 for letter in text]


def _record_case(tokens: list[int], effect: float) -> ProbeCase:
    base = [base_logprob(token, index) for index, token in enumerate(tokens)][ANSWER_START:]
    return ProbeCase(
        token_ids=tokens,
        answer_start=ANSWER_START,
        base_logprobs=base,
        adapter_logprobs=[value + effect for value in base],
    )


class FakeVllm:
    """An engine whose faults a test can choose.

    Args:
        token_file: File of the operator's token, for the guard.
        access_file: File of keys and limits, for the guard; None for neither.
    """

    def __init__(self, token_file: Path, access_file: Path | None = None) -> None:
        self._token_file = token_file
        self._access_file = access_file
        self.healthy = True
        self.base_shift = 0.0
        """Added to the base's log-probabilities: another base model."""
        self.base_is_constant = False
        """All tokens are equally likely to the base."""
        self.without_effect: set[str] = set()
        """Adapters that are listed and silently do nothing."""
        self.shifts: dict[str, float] = {}
        """Added to an adapter's log-probabilities: it computes something else."""
        self.gone_before_unload: set[str] = set()
        """Adapters that are listed, and forgotten when their unload is asked for."""
        self.refuse_loads: dict[str, tuple[int, str]] = {}
        """Answer to a load, by adapter."""
        self.refuse_probes: tuple[int, str] | None = None
        """Answer to every request for prompt log-probabilities."""
        self.speaks_otherwise = False
        """Its answers to /tokenize have another form than vLLM's."""
        self.fragile = False
        """Ends when prompt log-probabilities meet another request, as vLLM does on CPUs with LoRA."""
        self.ended = False
        """A fragile engine has met what ends it."""
        self._answering = 0
        self._measuring = False
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        """Method, path and body of every request that reached the engine."""
        self.headers: dict[bytes, bytes] = {}
        """Headers of the last of them."""
        self.hold_answers = asyncio.Event()
        self.hold_answers.set()
        self.end_streams = asyncio.Event()
        self.end_streams.set()
        """Cleared, streams stay open after their first bytes."""
        self.loads_go_on = asyncio.Event()
        self.loads_go_on.set()
        self.lists_go_on = asyncio.Event()
        self.lists_go_on.set()
        self.generates = asyncio.Event()
        self.generates.set()
        """Cleared, the engine hangs: it takes requests, generates nothing and calls itself healthy."""
        self.keeps_series = True
        self.shows_guard = False
        """Whether its page has the guard's series too, as an engine's has; all engines of a test process share them."""
        self.refuse_tokens: tuple[int, str] | None = None
        """Answer to every request for one token."""
        self.chat_template: str | None = TEMPLATE
        self.stream_chunks = 3
        self.port = 0
        self.restart()

    def restart(self) -> None:
        """Become a new process: adapters are forgotten, the guard is closed and has another boot identity."""
        self.adapters: dict[str, str] = {}
        self.generated = 0
        """Tokens of the current process."""
        self.guard = Guard(self._app, self._token_file, self._access_file, mixes=not self.fragile)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection through the current guard."""
        await self.guard(scope, receive, send)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve on a free port of this machine; give the address."""
        # Only uvicorn's protocol: its server waits tenths of a second to stop, and takes the process's signals.
        config = uvicorn.Config(self, lifespan="off", log_config=None, access_log=False)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
            host="127.0.0.1",
            port=0,
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            self.hold_answers.set()
            self.end_streams.set()
            self.loads_go_on.set()
            self.lists_go_on.set()
            self.generates.set()
            server.close()
            for connection in list(state.connections):
                connection.shutdown()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        raw = await read_body(scope, receive)
        body = json.loads(raw) if raw else {}
        self.headers = dict(scope["headers"])
        self.calls.append((method, path, body))
        routes = {
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/load_lora_adapter"): self._load,
            ("POST", "/v1/unload_lora_adapter"): self._unload,
            ("POST", "/v1/completions"): self._complete,
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/tokenize"): self._tokenize,
        }
        handler = routes.get((method, path))
        if handler is None:
            await send_json(send, {"detail": "Not Found"}, status=404)
        elif handler in (self._complete, self._chat):
            await self._answer(handler(body, send), receive, body=body)
        else:
            await handler(body, send)

    async def _answer(self, answer: Coroutine[Any, Any, None], receive: Receive, *, body: dict[str, Any]) -> None:
        self._answering += 1
        self._measuring = self._measuring or body.get("prompt_logprobs") is not None
        prompts = body["prompt"] if isinstance(body.get("prompt"), list) else []
        several = self._answering > 1 or len([one for one in prompts if isinstance(one, list)]) > 1
        self.ended = self.ended or (self.fragile and self._measuring and several)
        try:
            await _until_disconnect(answer, receive)
        finally:
            self._answering -= 1
            self._measuring = self._measuring and self._answering > 0

    async def _health(self, body: dict[str, Any], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200 if self.healthy else 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def _metrics(self, body: dict[str, Any], send: Send) -> None:
        labels = f'{{engine="0",model_name="{BASE}"}}'
        values: dict[str, float] = {"generation_tokens_total": self.generated, "num_requests_running": 0}
        values |= {"num_requests_waiting": 0, "kv_cache_usage_perc": 0}
        shown = values if self.keeps_series else {}
        text = "".join(f"vllm:{name}{labels} {value:.1f}\n" for name, value in shown.items())
        if self.shows_guard:
            text += "".join(f"{line}\n" for line in generate_latest().decode().splitlines() if _OF_GUARD.match(line))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _models(self, body: dict[str, Any], send: Send) -> None:
        await self.lists_go_on.wait()
        cards = [{"id": BASE, "object": "model", "root": "/models/tiny", "parent": None}]
        cards += [{"id": name, "object": "model", "root": root, "parent": BASE} for name, root in self.adapters.items()]
        await send_json(send, {"object": "list", "data": cards})

    async def _load(self, body: dict[str, Any], send: Send) -> None:
        adapters = self.adapters
        await self.loads_go_on.wait()
        name, path = body.get("lora_name"), body.get("lora_path")
        if name in self.refuse_loads:
            status, message = self.refuse_loads[name]
            await _error(send, status, message)
        elif not name or not path:
            await _error(send, 400, "Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput")
        elif name == BASE:
            text = f"The lora adapter '{name}' conflicts with a served base model."
            await _error(send, 400, text, kind="InvalidUserInput")
        elif name in adapters:
            text = (
                f"The lora adapter '{name}' has already been loaded. "
                "If you want to load the adapter in place, set 'load_inplace' to True."
            )
            await _error(send, 400, text, kind="InvalidUserInput")
        elif not (Path(path) / CONFIG_FILE).is_file():
            await _error(send, 404, f"Loading lora {name} failed: No adapter found for {path}")
        else:
            # Of the process that took the request: a restart in between has forgotten it.
            adapters[name] = path
            await _text(send, f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, body: dict[str, Any], send: Send) -> None:
        name = body["lora_name"]
        if self.adapters.pop(name, None) is None or name in self.gone_before_unload:
            await _error(send, 404, f"The lora adapter '{name}' cannot be found.")
        else:
            await _text(send, f"Success: LoRA adapter '{name}' removed successfully.")

    async def _tokenize(self, body: dict[str, Any], send: Send) -> None:
        if "messages" in body and self.chat_template is None:
            await _error(send, 400, "As of transformers v4.44, default chat template is no longer allowed")
            return
        text = render_chat(body["messages"], self.chat_template or "") if "messages" in body else body["prompt"]
        tokens = tokens_of(text)
        answer = {"tokens": tokens, "count": len(tokens), "max_model_len": 2048}
        await send_json(send, {"ids": tokens} if self.speaks_otherwise else answer)

    def _shift(self, model: str) -> float:
        if model == BASE or model in self.without_effect:
            return self.base_shift
        return self.base_shift + self.shifts.get(model, 0.0) + effect_of(Path(self.adapters[model]))

    def _prompt_logprobs(self, tokens: list[int], shift: float) -> list[dict[str, Any] | None]:
        values = [0.0 if self.base_is_constant else base_logprob(token, index) for index, token in enumerate(tokens)]
        return [
            None if index == 0 else {str(token): {"logprob": values[index] + shift, "rank": 1}}
            for index, token in enumerate(tokens)
        ]

    async def _serves(self, model: str, send: Send) -> bool:
        """Wait while answers are held; refuse a model that is not there."""
        if model != BASE and model not in self.adapters:
            await _error(send, 404, f"The model `{model}` does not exist. Valid aliases: {BASE}.", param="model")
            return False
        await self.hold_answers.wait()
        await self.generates.wait()
        self.generated += 1
        return True

    async def _complete(self, body: dict[str, Any], send: Send) -> None:
        model = body["model"]
        if body["prompt"] == [1] and self.refuse_tokens is not None:
            await _error(send, *self.refuse_tokens)
            return
        if not await self._serves(model, send):
            return
        if body.get("prompt_logprobs") is not None and self.refuse_probes is not None:
            await _error(send, *self.refuse_probes)
            return
        answer: dict[str, Any] = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": model}
        choice: dict[str, Any] = {"index": 0, "text": f"from {model}", "finish_reason": "length"}
        if body.get("prompt_logprobs") is not None:
            shift = self._shift(model)
            if not math.isfinite(shift):
                # JSON has no word for it.
                await _error(send, 400, f"Out of range float values are not JSON compliant: {shift}")
                return
            prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
            answer["choices"] = [
                {**choice, "index": number, "prompt_logprobs": self._prompt_logprobs(prompt, shift)}
                for number, prompt in enumerate(prompts)
            ]
            await send_json(send, {**answer, "usage": USAGE})
        elif body.get("stream"):
            await self._stream(body, send, [{**answer, "choices": [choice]}] * 2)
        else:
            await send_json(send, {**answer, "choices": [choice], "usage": USAGE})

    async def _chat(self, body: dict[str, Any], send: Send) -> None:
        model = body["model"]
        if not await self._serves(model, send):
            return
        answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
        message = {"role": "assistant", "content": f"from {model}"}
        if body.get("stream"):
            answer["object"] = "chat.completion.chunk"
            first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            last = {"index": 0, "delta": {"content": message["content"]}, "finish_reason": "length"}
            await self._stream(body, send, [{**answer, "choices": [choice]} for choice in (first, last)])
        else:
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            await send_json(send, {**answer, "choices": [choice], "usage": USAGE})

    async def _stream(self, body: dict[str, Any], send: Send, events: list[dict[str, Any]]) -> None:
        """Send server-sent events cut at places that fit no line."""
        if (body.get("stream_options") or {}).get("include_usage"):
            events = [*events, {**events[0], "choices": [], "usage": USAGE}]
        lines = "".join(f"data: {json.dumps(event, separators=(',', ':'))}\n\n" for event in events)
        data = f"{lines}data: [DONE]\n\n".encode()
        size = max(1, len(data) // self.stream_chunks)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(data), size):
            if start:
                await self.end_streams.wait()
            await send({"type": "http.response.body", "body": data[start : start + size], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_disconnect(answer: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Answer, but give up when the client leaves, as vLLM does."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(answer), asyncio.create_task(left())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if not tasks[0].cancelled():
        tasks[0].result()


async def _text(send: Send, text: str) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


async def _error(send: Send, status: int, message: str, *, kind: str | None = None, param: str | None = None) -> None:
    kinds = {404: "NotFoundError", 500: "InternalServerError"}
    error = {"message": message, "type": kind or kinds.get(status, "BadRequestError"), "param": param, "code": status}
    await send_json(send, {"error": error}, status=status)
