"""Many trials at once, and big files: what they ask of the API server and of the runner's memory."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.runner_namespace import runner_namespace
from support.sandbox import environment, started

pytestmark = [pytest.mark.cluster, pytest.mark.long]

PODS = 40
"""As many as one node holds beside everything else that runs there."""
COMMANDS = 5
TINY = {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "32Mi"}}
GIB = 1 << 30
BLOCK = 1 << 20


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what this process asks of the API server, by method."""
    counted: Counter[str] = Counter()
    ask = aiohttp.ClientSession._request

    async def counting(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> Any:
        counted["EXEC" if "/exec" in str(url) else method] += 1
        return await ask(self, method, url, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", counting)
    return counted


async def test_many_trials_at_once_starve_nobody_and_ask_little(
    namespace: str, tmp_path: Path, requests: Counter[str], record_property: Any
) -> None:
    async def trial(number: int) -> float:
        folder = tmp_path / str(number)
        folder.mkdir()
        begun = time.monotonic()
        sandbox = environment(folder, options=TINY)
        try:
            await sandbox.start(force_build=False)
            for command in range(COMMANDS):
                assert (await sandbox.exec(f"echo {command}")).stdout == f"{command}\n"
        finally:
            await sandbox.stop(delete=True)
        return time.monotonic() - begun

    requests.clear()
    seconds = await asyncio.gather(*(trial(number) for number in range(PODS)))
    asked = Counter(requests)
    record_property("requests per trial", sum(asked.values()) / PODS)
    record_property("seconds of the slowest trial", max(seconds))
    # One to make the pod, one to delete it; one for all commands; and the one list and watch of all trials.
    assert asked["POST"] == PODS
    assert asked["DELETE"] == PODS
    assert asked["EXEC"] == PODS
    assert asked["GET"] <= 10


async def test_a_gibibyte_goes_there_and_back_in_little_memory(namespace: str, tmp_path: Path) -> None:
    source, target = tmp_path / "there.bin", tmp_path / "back.bin"
    digest = await asyncio.to_thread(_write, source)
    async with started(tmp_path, options={"requests": {"memory": "64Mi"}}) as sandbox:
        before = _memory()
        await sandbox.upload_file(source, "/app/there.bin")
        summed = await sandbox.exec("sha256sum /app/there.bin")
        assert (summed.stdout or "").split()[0] == digest
        await sandbox.download_file("/app/there.bin", target)
        grown = _peak() - before
    with target.open("rb") as stream:
        assert await asyncio.to_thread(lambda: hashlib.file_digest(stream, "sha256").hexdigest()) == digest
    assert grown < 100 * BLOCK


def _write(path: Path) -> str:
    """Write a file that no compression makes smaller; give its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as stream:
        for number in range(GIB // BLOCK):
            block = hashlib.shake_128(str(number).encode()).digest(BLOCK)
            digest.update(block)
            stream.write(block)
    return digest.hexdigest()


def _memory() -> int:
    """Return the memory that this process has in use, in bytes, and start its peak anew from there."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    """Return the most memory that this process has had since, in bytes."""
    return _status("VmHWM")


def _status(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
