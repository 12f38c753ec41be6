"""Runs inside a pod: constant load on a model server, a line for each request that is lost.

    python3 load_client.py URL MODEL

Short requests on kept-alive connections, and one stream after the other that lasts half a minute, as clients send them:
no retries, so whatever goes wrong is told. Every few seconds a line of JSON says how many went well.
"""

import asyncio
import json
import sys
import time

import aiohttp

SHORT_CLIENTS = 2
STREAM_SECONDS = 35.0
STREAM_TOKENS = range(50, 900)
"""Bounds of a stream's length: it is set so that one takes `STREAM_SECONDS` here, as far as the context allows."""
TELL_SECONDS = 2.0
PAUSE_SECONDS = 0.3
"""Between the short requests of a client: a replica that starts beside this one needs the cores too."""
IDLE_SECONDS = 3.0
"""How long an idle connection is used again: less than the 5 s after which the engine closes it, as clients must."""


class Load:
    """Counts what goes well and tells what does not."""

    def __init__(self, url: str, model: str) -> None:
        self._url = f"{url}/completions"
        self._model = model
        self.answered = 0
        self.streams = 0
        self.tokens = 400
        self.longest = 0.0

    async def short(self) -> None:
        """Send short requests for ever on one connection."""
        connector = aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                body = {"model": self._model, "prompt": "echo", "max_tokens": 2, "ignore_eos": True}
                try:
                    async with session.post(self._url, json=body) as response:
                        text = await response.text()
                        if response.status == 200 and json.loads(text)["choices"]:
                            self.answered += 1
                        else:
                            tell(lost="short", status=response.status, body=text[:200])
                except (aiohttp.ClientError, OSError, ValueError) as error:
                    tell(lost="short", error=repr(error))
                await asyncio.sleep(PAUSE_SECONDS)

    async def stream(self) -> None:
        """Read long streams for ever; each must end with its last event."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            while True:
                begun = time.monotonic()
                body = {
                    "model": self._model,
                    "prompt": "Once upon a time",
                    "max_tokens": self.tokens,
                    "ignore_eos": True,
                    "stream": True,
                }
                try:
                    async with session.post(self._url, json=body) as response:
                        text = await response.text()
                        if response.status == 200 and text.rstrip().endswith("data: [DONE]"):
                            self.streams += 1
                            self.took(time.monotonic() - begun)
                        else:
                            tell(lost="stream", status=response.status, body=text[-200:])
                except (aiohttp.ClientError, OSError) as error:
                    tell(lost="stream", error=repr(error), after=round(time.monotonic() - begun, 1))

    def took(self, seconds: float) -> None:
        """Note how long a stream took, and make the next as long as it should be."""
        self.longest = max(self.longest, seconds)
        wanted = int(self.tokens * STREAM_SECONDS / seconds)
        self.tokens = min(max(wanted, STREAM_TOKENS.start), STREAM_TOKENS.stop)

    async def report(self) -> None:
        """Say how it goes."""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            tell(answered=self.answered, streams=self.streams, longest=round(self.longest, 1))


def tell(**fields: object) -> None:
    """Print one line of JSON."""
    print(json.dumps(fields), flush=True)  # noqa: T201 - a program of its own


async def main(url: str, model: str) -> None:
    """Load the server until the process is ended."""
    load = Load(url, model)
    await asyncio.gather(*(load.short() for _ in range(SHORT_CLIENTS)), load.stream(), load.report())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
