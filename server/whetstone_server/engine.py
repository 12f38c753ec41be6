"""The engine (vLLM behind our guard) as the sidecar sees it."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
from pydantic import ValidationError
from whetstone_api.adapter_artifact import TemplateCase
from whetstone_api.pod_state import GUARD_PATH, QUIET_PATH, STALL_PATH, GuardRoutes, GuardState
from whetstone_api.vocabulary import ALONE_HEADER, TOKEN_HEADER

from whetstone_server.settings import Settings

QUICK = aiohttp.ClientTimeout(total=10)
LOAD = aiohttp.ClientTimeout(total=600)
PROBE = aiohttp.ClientTimeout(total=300)
HOLD_SECONDS = 20.0
"""How long clients wait at most should this sidecar die while it holds them back."""
IDLE_POLL_SECONDS = 0.05
PROGRESS = re.compile(
    r"^vllm:(?:generation_tokens_total|prompt_tokens_total|iteration_tokens_total_count|kv_cache_usage_perc"
    r"|num_requests_running|num_requests_waiting)[{ ].*$",
    re.MULTILINE,
)
"""Series of which at least one changes with every step that the engine takes for a request."""


class EngineUnreachableError(Exception):
    """The engine did not answer: it starts, is overloaded or has ended."""


class EngineBusyError(Exception):
    """The engine had no moment without requests, and needs one."""


class EngineRefusedError(Exception):
    """The engine answered with an error.

    Args:
        status: HTTP status.
        message: The engine's words.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})")
        self.status = status
        self.not_finite = "not JSON compliant" in message
        """Whether it could not write its answer down: it held NaN or infinity."""


class Engine:
    """Calls of the engine's API with the operator's token.

    Every method raises `EngineUnreachableError` or `EngineRefusedError`.
    """

    def __init__(self, session: aiohttp.ClientSession, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._measuring = asyncio.Lock()
        self.asked_at: float | None = None
        """Monotonic time at which the request for tokens was sent that is waited for now; None for none."""

    async def healthy(self) -> bool:
        """Return whether `/health` answers 200."""
        try:
            await self._call("GET", "/health")
        except EngineRefusedError:
            return False
        return True

    async def guard(self) -> GuardState:
        """Return what the guard holds."""
        return _guard_state(await self._call("GET", GUARD_PATH))

    async def set_routes(self, routes: GuardRoutes) -> GuardState:
        """Give the guard new routes."""
        return _guard_state(await self._call("PUT", GUARD_PATH, body=routes.model_dump(by_alias=True)))

    async def adapters(self) -> dict[str, str]:
        """Return the path of every adapter that the engine lists, by its name."""
        answer = await self._call("GET", "/v1/models")
        return {str(card["id"]): str(card.get("root") or "") for card in answer["data"] if card.get("parent")}

    async def load(self, name: str, path: str) -> None:
        """Load an adapter. Never in place: versions have names of their own."""
        await self._call("POST", "/v1/load_lora_adapter", body={"lora_name": name, "lora_path": path}, limit=LOAD)

    async def unload(self, name: str) -> None:
        """Unload an adapter; one that the engine does not know is gone already."""
        try:
            await self._call("POST", "/v1/unload_lora_adapter", body={"lora_name": name})
        except EngineRefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def tokenize(self, model: str, text: str) -> list[int]:
        """Return the token ids of a text."""
        return _tokens(await self._call("POST", "/tokenize", body={"model": model, "prompt": text}))

    async def render(self, model: str, case: TemplateCase) -> list[int]:
        """Return the token ids that the engine's chat template makes of a conversation whose answer is to come."""
        body = {"model": model, "messages": case.messages, "add_generation_prompt": True}
        if case.tools:
            body["tools"] = case.tools
        return _tokens(await self._call("POST", "/tokenize", body=body))

    async def prompt_logprobs(
        self, model: str, sequences: Sequence[list[int]], *, patience: float = HOLD_SECONDS
    ) -> list[list[float]]:
        """Return the natural log-probability of each token but the first, given those before it, by sequence.

        All sequences go in one request where the engine computes them in one batch. Where it takes such a request only
        alone, they go one by one, while clients wait.

        Args:
            model: A served name.
            sequences: Token ids.
            patience: Seconds to wait for requests in flight where the engine needs to be alone.

        Raises:
            EngineBusyError: Requests in flight took longer, or this process was so slow that clients went on meanwhile.
        """
        async with self._measuring, self._alone(patience) as alone:
            if not alone:
                return await self._measure(model, list(sequences))
            found = []
            for tokens in sequences:
                await self._hold(HOLD_SECONDS)
                found += await self._measure_alone(model, tokens)
            return found

    async def progress(self) -> tuple[str, ...]:
        """Return those of the engine's series that change while it works; empty where it keeps none."""
        return tuple(sorted(PROGRESS.findall(str(await self._call("GET", "/metrics")))))

    async def one_token(self, model: str) -> None:
        """Ask for one token, however long it takes; never beside a measurement, which asks for one itself."""
        async with self._measuring:
            await self._generate({"model": model, "prompt": [1], "max_tokens": 1, "temperature": 0})

    async def set_stalled(self, seconds: float) -> None:
        """Let the engine's health check fail for so long; 0 ends that."""
        await self._call("POST", STALL_PATH, body={"seconds": seconds})

    async def _measure_alone(self, model: str, tokens: list[int]) -> list[list[float]]:
        try:
            return await self._measure(model, [tokens], {ALONE_HEADER: "1"})
        except EngineRefusedError as error:
            if error.status == HTTPStatus.CONFLICT:
                raise EngineBusyError(str(error)) from error
            raise

    async def _measure(
        self, model: str, prompts: list[list[int]], headers: Mapping[str, str] | None = None
    ) -> list[list[float]]:
        request = {"model": model, "prompt": prompts, "prompt_logprobs": 0, "max_tokens": 1, "temperature": 0}
        answer = await self._generate(request, headers)
        with _understood("the answer with log-probabilities"):
            by_index = {choice["index"]: choice["prompt_logprobs"] for choice in answer["choices"]}
            return [_logprobs(tokens, by_index[index]) for index, tokens in enumerate(prompts)]

    async def _generate(self, request: dict[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        self.asked_at = time.monotonic()
        try:
            return await self._call("POST", "/v1/completions", body=request, limit=PROBE, headers=headers)
        finally:
            self.asked_at = None

    @asynccontextmanager
    async def _alone(self, patience: float) -> AsyncIterator[bool]:
        """Hold clients back until this is over, where the engine needs it; give whether it does."""
        state = await self._hold(HOLD_SECONDS)
        if not state["needed"]:
            yield False
            return
        deadline = time.monotonic() + patience
        try:
            while state["inFlight"]:
                if time.monotonic() > deadline:
                    raise EngineBusyError(f"{state['inFlight']} requests are still being answered")
                await asyncio.sleep(IDLE_POLL_SECONDS)
                state = await self._hold(HOLD_SECONDS)
            yield True
        finally:
            await self._hold(0)

    async def _hold(self, seconds: float) -> dict[str, Any]:
        answer: dict[str, Any] = await self._call("POST", QUIET_PATH, body={"seconds": seconds})
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        limit: aiohttp.ClientTimeout = QUICK,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        try:
            async with self._session.request(
                method,
                self._settings.engine_url + path,
                json=body,
                timeout=limit,
                headers={TOKEN_HEADER: self._settings.token(), **(headers or {})},
            ) as response:
                if response.status >= 400:
                    raise EngineRefusedError(response.status, _words(await response.text()))
                if response.content_type == "application/json":
                    return await response.json()
                return await response.text()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise EngineUnreachableError(f"{method} {path}: {error or type(error).__name__}") from error


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """Turn an answer of another form than vLLM's into a refusal: it must not end who asks without a word."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EngineRefusedError(HTTPStatus.OK, f"{what} has another form than vLLM's: {error!r}") from error


def _tokens(answer: Any) -> list[int]:
    with _understood("the answer of /tokenize"):
        return [int(token) for token in answer["tokens"]]


def _logprobs(tokens: Sequence[int], entries: Sequence[Any]) -> list[float]:
    return [float(entry[str(token)]["logprob"]) for token, entry in zip(tokens[1:], entries[1:], strict=True)]


def _guard_state(answer: Any) -> GuardState:
    try:
        return GuardState.model_validate(answer)
    except ValidationError as error:
        raise EngineRefusedError(200, f"the guard's answer has another form ({error.error_count()} errors)") from error


def _words(text: str) -> str:
    """Return the sentence inside an error body of vLLM, or its first 500 characters."""
    try:
        body = json.loads(text)
        error = body.get("error", body)
        return str(error["message"])[:500]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:500].strip() or "no message"
