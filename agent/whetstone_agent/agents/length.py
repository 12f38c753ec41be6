"""The longest conversation of the measured model, as its server says."""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from whetstone_agent.api_key import authorization

_SECONDS = 60.0


async def context_tokens(*, server_url: str, served_name: str) -> int | None:
    """Return `max_model_len` of a served name, or of the model below it: vLLM names it for the base only.

    Args:
        server_url: Base URL of the API, ending in `/v1`.
        served_name: Version that is measured.

    Returns:
        Tokens; None where the server names none, or does not say.
    """
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=authorization()) as session,
            session.get(f"{server_url}/models") as answer,
        ):
            return length_of(served_name, (await answer.json())["data"])
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
        return None


def length_of(served_name: str, cards: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the length that the cards of `GET /v1/models` name for a model: its own, its parent's, the base's."""
    by_name = {str(card["id"]): card for card in cards}
    own = by_name.get(served_name, {})
    parent = by_name.get(str(own.get("parent")), {})
    found = [card.get("max_model_len") for card in (own, parent, *cards)]
    return next((int(length) for length in found if length), None)
