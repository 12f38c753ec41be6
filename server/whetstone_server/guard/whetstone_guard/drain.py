"""The end of a pod's service: clients on kept-alive connections must turn to other pods before the engine ends."""

from .asgi import Message, Send, replace_headers


class Closing:
    """A `send` whose answer is the last one on its connection.

    Endpoints forget a pod that is going, but that closes no connection: a client would go on using the one it has until
    the engine ends, and lose the request that it sends at that moment.

    Args:
        send: The client's side.
    """

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Take one ASGI message."""
        if message["type"] == "http.response.start":
            message = {**message, "headers": replace_headers(message.get("headers", ()), connection=b"close")}
        await self._send(message)
