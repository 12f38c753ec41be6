"""Sampling for requests that leave it out. The engine's own defaults need a restart and cap what is asked for."""

from collections.abc import Mapping
from typing import Any

from .asgi import Refused

GENERATION = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Paths of requests that sample."""
OTHER_NAMES = {"max_tokens": "max_completion_tokens"}
"""Second name of a field in the chat API."""


def with_defaults(request: dict[str, Any], *, path: str, sampling: Mapping[str, float]) -> dict[str, Any]:
    """Return a request with the server's sampling where it has none of its own; null counts as none.

    Args:
        request: What the client sent.
        path: Path of its route.
        sampling: Default values, by field.
    """
    if path not in GENERATION:
        return request
    missing = {
        field: value
        for field, value in sampling.items()
        if request.get(field) is None and request.get(OTHER_NAMES.get(field, field)) is None
    }
    return {**request, **missing}


def parse_sampling(value: Any) -> dict[str, float]:
    """Read the JSON form.

    Raises:
        Refused: 400.
    """
    if not isinstance(value, dict) or not all(type(one) in (int, float) for one in value.values()):
        raise Refused(400, "sampling must map fields to numbers", code="invalid_routes", param="sampling")
    return value
