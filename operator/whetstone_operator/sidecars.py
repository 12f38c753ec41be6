"""Client of the sidecars in engine pods (`whetstone_api.pod_state`)."""

import logging
from typing import Protocol

import aiohttp
from pydantic import ValidationError
from whetstone_api.pod_state import SIDECAR_PORT, DesiredState, PodState
from whetstone_api.vocabulary import TOKEN_HEADER

logger = logging.getLogger(__name__)
TIMEOUT_SECONDS = 3.0


class Sidecars(Protocol):
    """Talks to the sidecar of one pod."""

    async def put_desired(self, *, address: str, token: str, desired: DesiredState) -> PodState | None:
        """Send what the pod should hold; return what it holds, or None when it does not answer in time."""


class HttpSidecars:
    """`Sidecars` over HTTP.

    Args:
        session: Connection pool; the caller closes it.
        port: Port of the sidecars.
        timeout_seconds: One slow pod must not hold a reconcile for longer.
    """

    def __init__(
        self, session: aiohttp.ClientSession, *, port: int = SIDECAR_PORT, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._session = session
        self._port = port
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def put_desired(self, *, address: str, token: str, desired: DesiredState) -> PodState | None:
        """Send what the pod should hold; return what it holds, or None when it does not answer in time."""
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._session.put(
                f"http://{host}:{self._port}/v1/desired",
                data=desired.to_json(),
                headers={TOKEN_HEADER: token, "Content-Type": "application/json"},
                timeout=self._timeout,
            ) as response:
                response.raise_for_status()
                return PodState.model_validate_json(await response.read())
        except (TimeoutError, aiohttp.ClientError, ValidationError) as error:
            logger.debug("sidecar at %s does not answer: %s", address, error or type(error).__name__)
            return None
