"""Prometheus series of the guard, in the registry that the engine's `/metrics` shows."""

from collections.abc import Mapping
from typing import Any

try:
    from prometheus_client import Counter, Histogram
except ImportError:
    _REQUESTS = _SECONDS = _FIRST = _TOKENS = _ALIASED = None
else:
    _REQUESTS = Counter("whetstone_requests", "Requests by what answered and status.", ["served", "code"])
    _SECONDS = Histogram(
        "whetstone_request_seconds",
        "Time to the end of the answer.",
        ["served"],
        buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
    )
    _FIRST = Histogram(
        "whetstone_time_to_first_token_seconds",
        "Time to the first event of a streamed answer.",
        ["served"],
        buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    )
    _TOKENS = Counter("whetstone_tokens", "Tokens by what answered, where the answer says usage.", ["served", "kind"])
    _ALIASED = Counter("whetstone_alias_requests", "Requests to an alias by what answers.", ["alias", "served"])

OTHER = "other"
"""Label of requests that no known model answered: names that clients make up must not become series."""


def count_request(*, served: str | None, code: int, seconds: float) -> None:
    """Count one ended request; `served` must be a name of the routes, or None."""
    if _REQUESTS is not None and _SECONDS is not None:
        _REQUESTS.labels(served or OTHER, str(code)).inc()
        _SECONDS.labels(served or OTHER).observe(seconds)


def count_first_token(served: str, seconds: float) -> None:
    """Count the wait for the first event of a stream."""
    if _FIRST is not None:
        _FIRST.labels(served).observe(seconds)


def forget(served: str) -> None:
    """Remove the series of a version that is no longer served: versions come and go while an engine runs."""
    for metric in (_REQUESTS, _SECONDS, _FIRST, _TOKENS, _ALIASED):
        # Engine images choose their own release of the library, and old ones cannot do this.
        remove = getattr(metric, "remove_by_labels", None)
        if remove is not None:
            remove({"served": served})


def count_alias(alias: str, served: str) -> None:
    """Count a request to an alias; both must be names of the routes."""
    if _ALIASED is not None:
        _ALIASED.labels(alias, served).inc()


def count_usage(served: str, usage: Any) -> None:
    """Count the tokens of an answer's `usage` object; anything else is ignored."""
    if _TOKENS is None or not isinstance(usage, Mapping):
        return
    for kind in ("prompt", "completion"):
        tokens = usage.get(f"{kind}_tokens")
        if isinstance(tokens, int) and tokens > 0:
            _TOKENS.labels(served, kind).inc(tokens)
