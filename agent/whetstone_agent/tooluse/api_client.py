"""Calls of an API over HTTP."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from whetstone_agent.tooluse.errors import ApiNotJsonError, ApiRefusedError, ApiUnavailableError
from whetstone_agent.tooluse.openapi import Operation, Place

PAUSES_SECONDS: Final = (0.5, 2.0)
"""Pauses before a call is tried again that failed by no doing of the agent's."""
_PASSING: Final = frozenset({408, 429})
_LARGEST_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the API said."""

    status: int
    body: Any

    @property
    def accepted(self) -> bool:
        """Whether it did what was asked; where not, the agent asked for something wrong."""
        return self.status < 400


class ApiClient:
    """Calls operations; threads may share it.

    Args:
        url: Where the API is.
        headers: Sent with every call, such as a Secret's `Authorization`.
        timeout_seconds: Longest time of one call.
        pauses_seconds: A call that fails by the API's own doing is tried again after each of them.
        sleep: Waits for seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._pauses = tuple(pauses_seconds)
        self._sleep = sleep
        self._client = httpx.Client(headers=dict(headers or {}), timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def reach(self) -> None:
        """Make sure that something answers there, whatever it says.

        Raises:
            httpx.HTTPError: Nothing does.
        """
        with self._client.stream("GET", self.url):
            return

    def call(self, operation: Operation, args: Mapping[str, Any]) -> Answer:
        """Call an operation.

        Args:
            operation: What to call.
            args: Arguments that fit its schema.

        Raises:
            ApiUnavailableError: It is down, slow, or fails, also when asked again.
            ApiNotJsonError: The answer is no JSON.
            ApiRefusedError: It refuses the credentials.
        """
        trouble = ""
        for pause in (*self._pauses, None):
            try:
                answer = self._ask(operation, args)
                if answer.status < 500 and answer.status not in _PASSING:
                    return answer
                trouble = f"answers {answer.status}"
            except httpx.TimeoutException:
                trouble = f"gives no answer within {self._timeout:g} s"
            except httpx.TransportError as error:
                trouble = f"does not answer: {error or type(error).__name__}"
            if pause is not None:
                self._sleep(pause)
        raise ApiUnavailableError(f"{operation.method} {self.url}{operation.path} {trouble}")

    def _ask(self, operation: Operation, args: Mapping[str, Any]) -> Answer:
        where = {one.name: one.place for one in operation.parameters}
        path = operation.path
        for name, value in args.items():
            if where[name] is Place.PATH:
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        query = {name: value for name, value in args.items() if where[name] is Place.QUERY}
        body = {name: value for name, value in args.items() if where[name] is Place.BODY}
        # A length of time for the whole answer: httpx's own are for each read, and a slow API may drip for ever.
        ends = time.monotonic() + self._timeout
        sent = self._client.stream(operation.method, f"{self.url}{path}", params=query or None, json=body or None)
        with sent as response:
            content = bytearray()
            for part in response.iter_bytes():
                content += part
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("the answer takes too long")
                if len(content) > _LARGEST_BYTES:
                    raise ApiNotJsonError(f"{operation.id}: the answer is larger than {_LARGEST_BYTES} bytes")
        return _read(operation, response, bytes(content))


def _read(operation: Operation, response: httpx.Response, content: bytes) -> Answer:
    status = response.status_code
    if status in (401, 403):
        raise ApiRefusedError(f"{operation.id}: the API answers {status}: check the key")
    if status >= 500 or status in _PASSING or (not content and not response.is_redirect):
        return Answer(status=status, body=None)
    try:
        return Answer(status=status, body=json.loads(content))
    except (ValueError, RecursionError) as error:
        kind = response.headers.get("content-type", "no content type")
        message = f"{operation.id}: the API answers {status} with {kind}, which is no JSON"
        raise ApiNotJsonError(message) from error
