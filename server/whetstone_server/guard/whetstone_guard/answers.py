"""The engine's answers on their way to the client: `model` as requested, a header for the version that answered."""

import json
import time
from collections.abc import Callable
from typing import Any

from . import measures
from .asgi import Headers, Message, Send, header, replace_headers
from .routes import Routes

ADAPTER_HEADER = b"x-whetstone-adapter"


class Answer:
    """A `send` that rewrites one answer.

    JSON answers are held until they are whole; event streams pass event by event, untouched when there is nothing to
    change.

    Args:
        send: The client's side.
        requested: Name that the client used, or None.
        served: Name that the engine knows.
        hide_usage: The client did not ask for a stream's usage; its event is counted and left out.
        clock: Gives monotonic seconds.
    """

    def __init__(
        self,
        send: Send,
        *,
        requested: str | None,
        served: str,
        hide_usage: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._hide_usage = hide_usage
        self._usage: Any = None
        self._left_out = False
        self._clock = clock
        self._waits_since: float | None = clock()
        self._served = served
        self._rename = requested if requested not in (None, served) else None
        self._needle = b'"model":' + json.dumps(served).encode()
        self._replacement = b'"model":' + json.dumps(requested).encode()
        self._start: Message | None = None
        self._stream = False
        self._held = bytearray()
        self.status = 0
        """Status of the answer; 0 before its start."""

    async def __call__(self, message: Message) -> None:
        """Take one ASGI message of the engine."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._start is not None:
            await self._hold(message)
        elif self._stream:
            self._count_first(message)
            await self._send({**message, "body": self._events(message)})
        else:
            await self._send(message)

    async def _begin(self, message: Message) -> None:
        self.status = int(message["status"])
        headers: Headers = [*message.get("headers", ()), (ADAPTER_HEADER, self._served.encode())]
        start = {**message, "headers": headers}
        kind = (header(headers, b"content-type") or b"").split(b";")[0].strip()
        self._stream = kind == b"text/event-stream"
        if kind == b"application/json" and self.status < 400:
            self._start = start
        else:
            await self._send(start)

    async def _hold(self, message: Message) -> None:
        self._held += message.get("body", b"")
        if message.get("more_body") or self._start is None:
            return
        body = self._document(bytes(self._held))
        headers = replace_headers(self._start["headers"], content_length=str(len(body)).encode())
        await self._send({**self._start, "headers": headers})
        self._start = None
        await self._send({"type": "http.response.body", "body": body})

    def _document(self, body: bytes) -> bytes:
        document = _parse(body)
        if document is None:
            return body
        measures.count_usage(self._served, document.get("usage"))
        if self._rename is None or "model" not in document:
            return body
        document["model"] = self._rename
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    def _count_first(self, message: Message) -> None:
        if self._waits_since is not None and message.get("body"):
            measures.count_first_token(self._served, self._clock() - self._waits_since)
            self._waits_since = None

    def _events(self, message: Message) -> bytes:
        """Return the whole lines so far; a line may come in several messages."""
        self._held += message.get("body", b"")
        last = not message.get("more_body")
        cut = len(self._held) if last else self._held.rfind(b"\n") + 1
        lines, self._held = bytes(self._held[:cut]), self._held[cut:]
        if self._rename is not None or self._left_out or b'"usage"' in lines:
            lines = b"".join(self._event(line) for line in lines.splitlines(keepends=True))
        if last:
            # Once: a client may have asked for the usage so far in every event.
            measures.count_usage(self._served, self._usage)
        return lines

    def _event(self, line: bytes) -> bytes:
        if self._left_out:
            # The empty line that ends an event.
            self._left_out = False
            return b"" if not line.strip() else line
        if not line.startswith(b"data:"):
            return line
        if b'"usage":{' in line and (document := _parse(line[5:])) is not None:
            self._usage = document.get("usage")
            if self._hide_usage and not document.get("choices"):
                self._left_out = True
                return b""
        if self._rename is None:
            return line
        # Quotes inside JSON strings are escaped, so one unescaped occurrence is the key itself.
        if line.count(self._needle) == 1:
            return line.replace(self._needle, self._replacement)
        document = _parse(line[5:])
        if document is None or "model" not in document:
            return line
        document["model"] = self._rename
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"
        return b"data: " + text.encode("utf-8", "surrogatepass")


class ModelList:
    """A `send` that shows a client the names it may use, in place of the engine's own list.

    Args:
        send: The client's side.
        routes: Which names there are.
        may_use: Tells whether this client may use a name.
    """

    def __init__(self, send: Send, routes: Routes, may_use: Callable[[str], bool]) -> None:
        self._send = send
        self._routes = routes
        self._may_use = may_use
        self._start: Message = {}
        self._held = bytearray()

    async def __call__(self, message: Message) -> None:
        """Take one ASGI message of the engine."""
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._held += message.get("body", b"")
            if not message.get("more_body"):
                body = self._rewrite(bytes(self._held))
                headers = replace_headers(self._start.get("headers", ()), content_length=str(len(body)).encode())
                await self._send({**self._start, "headers": headers})
                await self._send({"type": "http.response.body", "body": body})
        else:
            await self._send(message)

    def _rewrite(self, body: bytes) -> bytes:
        document = _parse(body)
        if document is None or not isinstance(document.get("data"), list):
            return body
        cards = {card["id"]: card for card in document["data"] if isinstance(card, dict) and "id" in card}
        shown: list[dict[str, Any]] = []
        for name, served in self._routes.names().items():
            if served not in cards or not self._may_use(name):
                continue
            card = dict(cards[served])
            if name != served:
                card |= {"id": name, "root": served, "parent": self._routes.base}
            shown.append(card)
        return json.dumps({**document, "data": shown}, separators=(",", ":")).encode()


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
