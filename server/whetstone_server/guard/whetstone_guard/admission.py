"""What a client may ask for: an allow-list of routes, and bodies without what can harm an engine."""

import json
from typing import Any

from .asgi import Refused, Scope

HEALTH = ("GET", "/health")
MODELS = ("GET", "/v1/models")
PLAIN = frozenset({HEALTH, MODELS, ("GET", "/metrics"), ("GET", "/version")})
"""Routes without a body."""
INFERENCE = frozenset(
    {
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
    }
)
"""Routes whose JSON body names a model."""
FORBIDDEN_FIELDS = {
    "prompt_logprobs": "it runs compiled code on the whole prompt and has ended CPU engines",
    "prompt_embeds": "it makes the engine unpickle what a client sends",
    "chat_template": "a template of the client's runs in the engine's process",
    "kv_transfer_params": "it names other hosts for the engine to exchange its cache with",
    "ec_transfer_params": "it names other hosts for the engine to exchange its cache with",
}
"""Fields that only the operator's side may send, each with the reason."""
MAX_ANSWERS = 128
"""Most answers to one prompt: each takes memory of its own, and the engine's own limit is 16384."""


def route_of(scope: Scope) -> tuple[str, str]:
    """Return method and path of a request whose route is on the allow-list.

    The raw path is compared byte by byte: an encoding, a double slash or a trailing slash may mean another route to the
    engine than to a guard, so nothing but the plain form passes.

    Raises:
        Refused: 403 for everything else.
    """
    raw = scope.get("raw_path")
    path = str(scope["path"])
    route = (str(scope["method"]), path)
    plain = raw is None or bytes(raw).split(b"?", 1)[0] == path.encode("utf-8", "surrogateescape")
    if plain and not scope.get("root_path") and (route in PLAIN or route in INFERENCE):
        return route
    allowed = ", ".join(sorted(f"{method} {path}" for method, path in PLAIN | INFERENCE))
    raise Refused(403, f"this route is not served to clients; served are exactly: {allowed}", code="route_forbidden")


def read_request(body: bytes) -> dict[str, Any]:
    """Return the JSON object of an inference request.

    Raises:
        Refused: 400 when it is not one, or carries a forbidden field.
    """
    try:
        request = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(request, dict):
        raise Refused(400, "the body must be a JSON object", code="invalid_json")
    for field, why in FORBIDDEN_FIELDS.items():
        if request.get(field) is not None:
            raise Refused(400, f"{field} is not served to clients: {why}", code="field_forbidden", param=field)
    answers = request.get("n")
    if isinstance(answers, int | float) and answers > MAX_ANSWERS:
        raise Refused(400, f"n must be at most {MAX_ANSWERS}; send several requests", code="field_forbidden", param="n")
    if request.get("echo") and request.get("logprobs") is not None:
        raise Refused(
            400,
            "echo together with logprobs is not served to clients: it asks for prompt log-probabilities",
            code="field_forbidden",
            param="echo",
        )
    return request


def with_usage(request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Ask for a stream's usage, which tokens are counted by; return whether the client did not ask for it."""
    options = request.get("stream_options")
    if request.get("stream") is not True or not isinstance(options, dict | None):
        return request, False
    options = options or {}
    if options.get("include_usage"):
        return request, False
    return {**request, "stream_options": {**options, "include_usage": True, "continuous_usage_stats": False}}, True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
