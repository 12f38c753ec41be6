"""The route table of vLLM 0.32, and what the guard decides about each route.

Recorded from the engine's own application (`GET /whetstone/guard/routes` with the operator's token gives that of a
running one). A contract test on the cluster fails when the engine has a route that is not here: decide about it, and
add it.
"""

from collections.abc import Mapping

ALLOWED = frozenset(
    {
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("GET", "/v1/models"),
        ("GET", "/version"),
        ("POST", "/detokenize"),
        ("POST", "/tokenize"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
    }
)
"""Routes that clients may use."""

OTHER_TASKS = frozenset({("POST", "/v1/embeddings")})
"""Routes that clients may use and that only engines of other tasks have."""

_ADMINISTRATION = "it changes what the engine holds or does"
_INSIDE = "it tells of the engine's inside, or of its API's"
_SHORTCUT = "it reaches other routes by another name, past their checks"
_STORED = "it keeps what clients send, and hands it to whoever knows the id"
_UNNAMED = "its answers are not renamed and counted, so an alias would not hold"
_TOKENS = "it is the inner half of a split engine, and trusts what it is sent"

REFUSED: Mapping[tuple[str, str], str] = {
    ("DELETE", "/adapters/{adapter_name}"): _ADMINISTRATION,
    ("POST", "/adapters"): _ADMINISTRATION,
    ("POST", "/is_scaling_elastic_ep"): _ADMINISTRATION,
    ("POST", "/scale_elastic_ep"): _ADMINISTRATION,
    ("POST", "/v1/load_lora_adapter"): _ADMINISTRATION,
    ("POST", "/v1/unload_lora_adapter"): _ADMINISTRATION,
    ("POST", "/inference/v1/abort_requests"): _ADMINISTRATION,
    ("GET", "/docs"): _INSIDE,
    ("GET", "/docs/oauth2-redirect"): _INSIDE,
    ("GET", "/kv_event_sources"): _INSIDE,
    ("GET", "/load"): _INSIDE,
    ("GET", "/openapi.json"): _INSIDE,
    ("GET", "/redoc"): _INSIDE,
    ("HEAD", "/docs"): _INSIDE,
    ("HEAD", "/docs/oauth2-redirect"): _INSIDE,
    ("HEAD", "/openapi.json"): _INSIDE,
    ("HEAD", "/redoc"): _INSIDE,
    ("GET", "/ping"): _SHORTCUT,
    ("POST", "/ping"): _SHORTCUT,
    ("POST", "/invocations"): _SHORTCUT,
    ("*", "/metrics"): "a mount answers every path below it; only the plain path passes",
    ("GET", "/v1/responses/{response_id}"): _STORED,
    ("POST", "/v1/responses"): _STORED,
    ("POST", "/v1/responses/{response_id}/cancel"): _STORED,
    ("POST", "/generative_scoring"): _UNNAMED,
    ("POST", "/v1/chat/completions/batch"): _UNNAMED,
    ("POST", "/v1/messages"): _UNNAMED,
    ("POST", "/v1/messages/count_tokens"): _UNNAMED,
    ("POST", "/v1/systemone"): _UNNAMED,
    ("POST", "/inference/v1/generate"): _TOKENS,
    ("POST", "/v1/chat/completions/derender"): _TOKENS,
    ("POST", "/v1/chat/completions/render"): _TOKENS,
    ("POST", "/v1/completions/derender"): _TOKENS,
    ("POST", "/v1/completions/render"): _TOKENS,
    ("POST", "/v1/messages/render"): _TOKENS,
    ("POST", "/v1/responses/render"): _TOKENS,
}
"""Routes that the engine has and clients do not get, each with the reason."""
