"""Types of the ASGI protocol, and how whole answers are read and written in it."""

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAX_BODY = 32 * 1024 * 1024
"""Longest request body where nothing else is said, bytes."""


class Refused(Exception):  # noqa: N818 - it is an answer, not an error of the program
    """A request that the guard answers itself, in the shape of OpenAI's errors.

    Args:
        status: HTTP status.
        message: Sentence that says why and what to do.
        code: Machine-readable cause.
        param: Field of the request that is to blame.
        retry_after: Seconds for the header `Retry-After`.
        headers: Further headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after: int | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.headers = list(headers)

    async def answer(self, send: Send) -> None:
        """Send the refusal."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        body = {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
        extra = [] if self.retry_after is None else [(b"retry-after", str(self.retry_after).encode())]
        await send_json(send, body, status=self.status, headers=[*extra, *self.headers])


async def send_json(
    send: Send, value: object, *, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a whole JSON answer."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    base = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*base, *headers]})
    await send({"type": "http.response.body", "body": body})


async def read_body(scope: Scope, receive: Receive, *, limit: int = MAX_BODY) -> bytes:
    """Read a request's whole body.

    Args:
        scope: The request's scope.
        receive: The client's side.
        limit: Longest body, bytes.

    Raises:
        Refused: 413 above the limit; 499 when the client left before its end.
    """
    declared = header(scope["headers"], b"content-length")
    too_long = Refused(413, f"the body is longer than {limit} bytes; send less", code="body_too_long")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise too_long
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(499, "the client closed the connection", code="disconnected")
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_long
        if not message.get("more_body"):
            return bytes(body)


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the value of a header (lower-case name), or None; of several, the first."""
    return next((value for key, value in headers if key.lower() == name), None)


def replace_headers(headers: Iterable[tuple[bytes, bytes]], **values: bytes) -> Headers:
    """Return headers with some replaced or added; `_` in a keyword stands for `-`."""
    names = {key.replace("_", "-").encode(): value for key, value in values.items()}
    return [(key, value) for key, value in headers if key.lower() not in names] + list(names.items())
