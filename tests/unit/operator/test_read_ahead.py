"""Reading ahead: at once, and each answer given once only."""

import asyncio
from typing import Any

from whetstone_operator.kinds import CLAIM, POD, SECRET, Kind
from whetstone_operator.runtime.read_ahead import ReadAhead


class Slow:
    """A client all of whose reads wait until the last of them has begun."""

    def __init__(self, reads: int) -> None:
        self._barrier = asyncio.Barrier(reads)
        self.asked: list[str] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        self.asked.append(f"{kind.name} {namespace}/{name}")
        await self._barrier.wait()
        return None if kind is SECRET else {"name": name}

    async def list(self, kind: Kind, namespace: str, labels: dict[str, str]) -> Any:
        self.asked.append(f"{kind.name} {namespace} {labels}")
        await self._barrier.wait()
        return [{"name": "pod"}]


async def test_reads_are_made_at_once_and_given_once() -> None:
    client = Slow(reads=3)
    ahead = ReadAhead(client)  # type: ignore[arg-type]
    labels = {"b": "2", "a": "1"}
    async with asyncio.timeout(10):
        claims = [(CLAIM, "models"), (CLAIM, "models")]
        await ahead.fetch("team", claims, own=[(SECRET, "token")], pods=labels, new=False)
    assert await ahead.get(CLAIM, "team", "models") == {"name": "models"}
    assert await ahead.get(SECRET, "team", "token") is None
    assert await ahead.list(POD, "team", labels) == [{"name": "pod"}]
    assert len(client.asked) == 3
    client._barrier = asyncio.Barrier(1)
    await ahead.get(SECRET, "team", "token")
    await ahead.list(POD, "team", labels)
    assert len(client.asked) == 5


async def test_a_new_object_is_not_asked_for_children() -> None:
    client = Slow(reads=1)
    ahead = ReadAhead(client)  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        await ahead.fetch("team", [(CLAIM, "models")], own=[(SECRET, "token")], pods={"a": "1"}, new=True)
    assert await ahead.get(SECRET, "team", "token") is None
    assert await ahead.list(POD, "team", {"a": "1"}) == []
    assert client.asked == ["PersistentVolumeClaim team/models"]
