"""One chat call to the exact served name: before any trial, and once more after the last."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import ADAPTER_HEADER, Reason

from whetstone_agent.api_key import authorization, without_keys
from whetstone_agent.failure import RunFailure

PATIENCE_SECONDS: Final = 180.0
"""How long a server that does not answer, or answers 5xx, is asked again before the Job is."""
_PAUSE_SECONDS: Final = 2.0
_REQUEST_SECONDS: Final = 300.0
_SHOWN_NAMES: Final = 20


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server said to the call."""

    status: int
    """HTTP status."""
    adapter: str | None
    """The version that answered, as the guard names it."""
    text: str


async def check_target(
    *, server_url: str, served_name: str, patience_seconds: float = PATIENCE_SECONDS, during: bool = False
) -> None:
    """Make sure that `served_name` answers, and that nothing else answers in its place.

    Args:
        server_url: Base URL of the API, ending in `/v1`.
        served_name: Version to ask for.
        patience_seconds: How long an unavailable server is asked again.
        during: The run has begun; anything wrong is a change then.

    Raises:
        RunFailure: `MODEL_NOT_SERVED` naming what is served; `TARGET_CHANGED`; `REFERENCE_NOT_READY`, to be tried
            again, when the server does not answer.
    """
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=authorization()) as session:
        answer = await _ask_until_available(session, server_url, served_name, patience_seconds)
        if answer.status == 404:
            raise await _not_served(session, server_url, served_name, during=during)
    if answer.status != 200:
        raise RunFailure(
            Reason.TARGET_CHANGED if during else Reason.MODEL_NOT_SERVED,
            f"{server_url} answers {answer.status} to a chat call to {served_name!r}: "
            f"{without_keys(answer.text)[:500]}",
        )
    if answer.adapter != served_name:
        raise RunFailure(
            Reason.TARGET_CHANGED,
            f"asked {server_url} for {served_name!r}, and {answer.adapter or 'a server that names no version'!r}"
            f" answered (header {ADAPTER_HEADER}); start the run again when the server is settled",
        )


async def _ask_until_available(
    session: aiohttp.ClientSession, server_url: str, served_name: str, patience_seconds: float
) -> Answer:
    deadline = asyncio.get_running_loop().time() + patience_seconds
    while True:
        try:
            answer = await _ask(session, server_url, served_name)
            if answer.status < 500 and answer.status != 429:
                return answer
            trouble = f"answers {answer.status}: {without_keys(answer.text)[:500]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            trouble = f"does not answer: {error or type(error).__name__}"
        if asyncio.get_running_loop().time() + _PAUSE_SECONDS > deadline:
            raise RunFailure(Reason.REFERENCE_NOT_READY, f"{server_url} {trouble}", outcome=Outcome.RETRY)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _ask(session: aiohttp.ClientSession, server_url: str, served_name: str) -> Answer:
    body: dict[str, Any] = {
        "model": served_name,
        "messages": [{"role": "user", "content": "Say OK."}],
        "max_tokens": 1,
        "temperature": 0,
    }
    async with session.post(f"{server_url}/chat/completions", json=body) as response:
        text = await response.text()
        return Answer(status=response.status, adapter=response.headers.get(ADAPTER_HEADER), text=text)


async def _not_served(session: aiohttp.ClientSession, server_url: str, served_name: str, *, during: bool) -> RunFailure:
    try:
        async with session.get(f"{server_url}/models") as response:
            served = [str(model["id"]) for model in (await response.json())["data"]]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
        served = []
    names = ", ".join(served[:_SHOWN_NAMES]) or "unknown"
    if during:
        return RunFailure(Reason.TARGET_CHANGED, f"{server_url} no longer serves {served_name!r} (it serves: {names})")
    return RunFailure(
        Reason.MODEL_NOT_SERVED,
        f"{server_url} does not serve {served_name!r} (it serves: {names}); fix spec.target or the ModelServer's"
        " adapters and aliases",
    )
