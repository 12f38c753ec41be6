"""Prometheus series of the sidecar."""

from prometheus_client import Gauge, Histogram

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LOAD_SECONDS = Histogram("whetstone_adapter_load_seconds", "Time of the engine's load call.", buckets=SECONDS)
PROBE_SECONDS = Histogram("whetstone_adapter_probe_seconds", "Time of the effect probe.", buckets=SECONDS)
ADAPTERS = Gauge("whetstone_adapters", "Wanted adapter versions of this pod by standing.", ["standing"])
ENGINE_HEALTHY = Gauge("whetstone_engine_healthy", "1 while the engine answers its health check.")
GUARD_OPEN = Gauge("whetstone_guard_open", "1 while the guard lets requests through.")
ENGINE_BOOTS = Gauge("whetstone_engine_boots", "Engine processes that this sidecar has seen.")
