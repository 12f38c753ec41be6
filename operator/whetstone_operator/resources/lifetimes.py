"""How long an engine pod may take to start and to go: every time limit of its parts, computed in one place. Pure."""

import math
from dataclasses import dataclass

from whetstone_api.modelserver import ModelServerSpec

PROBE_PERIOD_SECONDS = 5
ENDPOINTS_SECONDS = 3
"""Seconds until every node has taken a pod that is going off its Service."""
KEEP_ALIVE_SECONDS = 5
"""Seconds after which the engine closes an idle connection."""
EXIT_SECONDS = 15
"""Seconds that an engine without requests needs to end."""
ROLLOUT_SPARE_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Lifetimes:
    """Time limits of one engine pod, seconds where nothing else is said.

    Args:
        leave_least: Shortest pause before SIGTERM: endpoints forget the pod, and idle connections are closed.
        leave_quiet: Time without a request after which no client holds a connection; then SIGTERM comes.
        leave_limit: Longest pause before SIGTERM, for requests in flight.
        shutdown: What the engine gives requests in flight after SIGTERM, should the pause have failed.
        grace: From the pod's deletion to SIGKILL.
        startup_failures: Failed startup probes, `PROBE_PERIOD_SECONDS` apart, until the engine is restarted.
        engine_ready: What vLLM itself allows its engine process to become ready.
        progress_deadline: After which the Deployment counts a rollout as stuck.
    """

    leave_least: int
    leave_quiet: int
    leave_limit: int
    shutdown: int
    grace: int
    startup_failures: int
    engine_ready: int
    progress_deadline: int


def lifetimes(spec: ModelServerSpec) -> Lifetimes:
    """Return the limits that follow from `spec.startup.timeoutSeconds` and `spec.drain.seconds`."""
    least = ENDPOINTS_SECONDS + KEEP_ALIVE_SECONDS
    limit = least + spec.drain.seconds
    grace = limit + EXIT_SECONDS
    startup = spec.startup.timeout_seconds
    return Lifetimes(
        leave_least=least,
        # The engine's timer starts a little after the answer that we see end.
        leave_quiet=KEEP_ALIVE_SECONDS + 1,
        leave_limit=limit,
        shutdown=spec.drain.seconds,
        grace=grace,
        startup_failures=math.ceil(startup / PROBE_PERIOD_SECONDS),
        engine_ready=startup,
        # A pod is replaced only after the one before it has gone.
        progress_deadline=startup + grace + ROLLOUT_SPARE_SECONDS,
    )
