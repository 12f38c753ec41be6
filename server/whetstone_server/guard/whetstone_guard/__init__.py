"""ASGI middleware that stands before a stock vLLM: `vllm serve … --middleware whetstone_guard.Guard`.

The package is copied alone into the engine's container, so it uses the standard library only (and prometheus_client
where the engine brings it).
"""

from .guard import Guard

__all__ = ["Guard"]
