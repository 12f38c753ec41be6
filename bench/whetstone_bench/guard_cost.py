"""What the guard costs: the same engine, bare and guarded, in turns."""

import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from whetstone_api.pod_state import GUARD_PATH, GuardRoutes
from whetstone_api.vocabulary import TOKEN_HEADER

from whetstone_bench.figures import Figure, spread
from whetstone_bench.stage import cpu_seconds

STREAMS = 16
TOKEN = "bench"
NAME, VERSION = "tiny", "tiny--00000000"
CHAT = {"model": NAME, "messages": [{"role": "user", "content": "word " * 200}], "temperature": 0}


def guard_cost(folder: Path, *, rounds: int, seconds: float) -> list[Figure]:
    """Measure throughput, p99 and processor time with and without the guard; each round measures both."""
    figures: list[Figure] = []
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / "token"
    token.write_text(TOKEN)
    with _engine(token) as bare, _engine(token, "guarded") as guarded:
        asyncio.run(_open(guarded[0]))
        for what, body in (("whole answers", CHAT), ("streams of 64 events", {**CHAT, "stream": True})):
            pairs = []
            for number in range(rounds):
                order = (bare, guarded) if number % 2 == 0 else (guarded, bare)
                measured = {engine: asyncio.run(_load(*engine, body, seconds)) for engine in order}
                pairs.append((measured[bare], measured[guarded]))
            figures += [
                spread(f"{what}: throughput with the guard / without", [g[0] / b[0] for b, g in pairs], ""),
                spread(f"{what}: p99 with the guard minus without", [g[1] - b[1] for b, g in pairs], "ms"),
                spread(f"{what}: requests a second without the guard", [b[0] for b, _ in pairs], "/s", digits=0),
                spread(f"{what}: processor time that the guard adds a request", [g[2] - b[2] for b, g in pairs], "ms"),
            ]
    return figures


Engine = tuple[int, int]


@contextmanager
def _engine(token: Path, *options: str) -> Iterator[Engine]:
    """Give the port and the process of a running engine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "whetstone_bench.engine_app", str(port), str(token), *options]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, env=dict(os.environ)))
        stack.callback(process.send_signal, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port, process.pid


async def _open(port: int) -> None:
    routes = GuardRoutes(open=True, base="base", adapters={NAME: VERSION}, versions=[VERSION])
    body, headers = routes.model_dump(by_alias=True), {TOKEN_HEADER: TOKEN}
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"http://127.0.0.1:{port}{GUARD_PATH}", json=body, headers=headers) as answer,
    ):
        answer.raise_for_status()


async def _load(port: int, pid: int, body: dict[str, Any], seconds: float) -> tuple[float, float, float]:
    """Return requests a second, p99 in ms, and milliseconds of the engine's processor time a request."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    took: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=STREAMS)) as session:

        async def stream(until: float) -> None:
            while (start := time.monotonic()) < until:
                async with session.post(url, json=body) as answer:
                    answer.raise_for_status()
                    await answer.read()
                took.append(time.monotonic() - start)

        await asyncio.gather(*(stream(time.monotonic() + 0.5) for _ in range(STREAMS)))
        took.clear()
        used, start = cpu_seconds(pid), time.monotonic()
        await asyncio.gather(*(stream(start + seconds) for _ in range(STREAMS)))
        elapsed, used = time.monotonic() - start, cpu_seconds(pid) - used
    return len(took) / elapsed, statistics.quantiles(took, n=100)[98] * 1000, used / len(took) * 1000
