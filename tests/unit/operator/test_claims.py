"""Which of two installations works on a namespace, in looptime: its clock jumps over every pause."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from whetstone_api.vocabulary import CLAIM_MARK
from whetstone_operator.kinds import CONFIG_MAP, MODEL_SERVER, Key
from whetstone_operator.kube import Kube, KubeError, Object
from whetstone_operator.runtime.claims import Claims

pytestmark = pytest.mark.looptime
SECONDS = 180.0
SERVER = Key(MODEL_SERVER.plural, "team", "server")


class Cluster:
    """The marks as an API server keeps them; installations that watch hear of every change."""

    def __init__(self) -> None:
        self.marks: dict[str, Object] = {}
        self.watching: list[Claims] = []
        self.refusal: KubeError | None = None
        self.writes = 0
        self._version = 0

    async def create(self, obj: Object) -> Object:
        if self.refusal is not None:
            raise self.refusal
        namespace = obj["metadata"]["namespace"]
        if namespace not in self.marks:
            uid = str(self._version)
            self._store({**obj, "metadata": {**obj["metadata"], "uid": uid}}, change="ADDED")
        return copy.deepcopy(self.marks[namespace])

    async def merge(self, obj: Object, change: Object) -> Object | None:
        stored = self.marks.get(obj["metadata"]["namespace"])
        if stored is None or stored["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            return None
        return copy.deepcopy(self._store({**stored, "data": {**stored["data"], **change["data"]}}, change="MODIFIED"))

    def delete(self, namespace: str) -> None:
        self._tell("DELETED", self.marks.pop(namespace))

    def owner(self, namespace: str) -> str:
        return str(self.marks[namespace]["data"]["operator"])

    def _store(self, obj: Object, *, change: str) -> Object:
        self._version += 1
        self.writes += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self.marks[obj["metadata"]["namespace"]] = stored
        self._tell(change, stored)
        return stored

    def _tell(self, change: str, obj: Object) -> None:
        for one in self.watching:
            one.heard(CONFIG_MAP, {"type": change, "object": copy.deepcopy(obj)})


class Installation:
    """One installation at work."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.due: list[Key] = []
        self.due_at: asyncio.Queue[float] = asyncio.Queue()
        kube = cast("Kube", cluster)
        self.claims = Claims(kube, installation=name, mark=self._mark, answer_seconds=SECONDS)

    def _mark(self, key: Key) -> None:
        self.due.append(key)
        self.due_at.put_nowait(asyncio.get_running_loop().time())

    async def works(self) -> bool:
        return await self.claims.admits(SERVER)


@asynccontextmanager
async def at_work(cluster: Cluster, name: str) -> AsyncIterator[Installation]:
    """An installation that leads and watches; at the end it is gone without a word."""
    one = Installation(cluster, name)
    for mark in cluster.marks.values():
        one.claims.heard(CONFIG_MAP, {"type": None, "object": copy.deepcopy(mark)})
    cluster.watching.append(one.claims)
    task = asyncio.create_task(one.claims.run())
    try:
        yield one
    finally:
        cluster.watching.remove(one.claims)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def refused(operator: str) -> float | None:
    return REGISTRY.get_sample_value("whetstone_namespace_refused", {"namespace": "team", "operator": operator})


async def test_first_one_works_and_the_second_does_not_for_as_long_as_the_first_answers() -> None:
    cluster = Cluster()
    async with at_work(cluster, "a/first") as first, at_work(cluster, "b/second") as second:
        assert await first.works()
        assert not await second.works()
        assert refused("a/first") == 1
        await asyncio.sleep(20 * SECONDS)
        assert (await first.works(), await second.works()) == (True, False)
        assert (cluster.owner("team"), second.due) == ("a/first", [])


async def test_one_installation_alone_writes_its_mark_once() -> None:
    cluster = Cluster()
    async with at_work(cluster, "a/first") as first:
        for _ in range(3):
            assert await first.works()
            await asyncio.sleep(SECONDS)
    async with at_work(cluster, "a/first") as again:
        assert await again.works()
    assert cluster.writes == 1


async def test_namespace_of_one_that_is_gone_is_taken_over_and_its_objects_are_due() -> None:
    cluster = Cluster()
    async with at_work(cluster, "b/second") as second:
        async with at_work(cluster, "a/first") as first:
            assert await first.works()
            assert not await second.works()
        gone = asyncio.get_running_loop().time()
        async with asyncio.timeout(2 * SECONDS + 1):
            assert await second.due_at.get() >= gone + SECONDS
        assert second.due == [SERVER]
        assert await second.works()
        assert refused("a/first") is None


async def test_one_that_comes_back_in_time_keeps_its_namespace() -> None:
    cluster = Cluster()
    async with at_work(cluster, "b/second") as second:
        async with at_work(cluster, "a/first") as first:
            assert await first.works()
            assert not await second.works()
        await asyncio.sleep(0.6 * SECONDS)
        async with at_work(cluster, "a/first") as again:
            await asyncio.sleep(5 * SECONDS)
            assert (await again.works(), await second.works()) == (True, False)


async def test_one_that_comes_back_too_late_leaves_the_namespace_alone() -> None:
    cluster = Cluster()
    async with at_work(cluster, "b/second") as second:
        async with at_work(cluster, "a/first") as first:
            assert await first.works()
            assert not await second.works()
        await asyncio.sleep(3 * SECONDS)
        async with at_work(cluster, "a/first") as again:
            await asyncio.sleep(5 * SECONDS)
            assert (await again.works(), await second.works()) == (False, True)
            assert refused("b/second") == 1


async def test_of_several_that_wait_one_takes_over() -> None:
    cluster = Cluster()
    async with AsyncExitStack() as stack:
        async with at_work(cluster, "a/first") as first:
            assert await first.works()
            waiting = [await stack.enter_async_context(at_work(cluster, f"{name}/later")) for name in "bcd"]
            assert [await one.works() for one in waiting] == [False] * 3
            await asyncio.sleep(3 * SECONDS)
        await asyncio.sleep(3 * SECONDS)
        assert sorted([await one.works() for one in waiting]) == [False, False, True]
        await asyncio.sleep(5 * SECONDS)
        assert sorted([await one.works() for one in waiting]) == [False, False, True]


async def test_deleted_mark_frees_the_namespace_at_once() -> None:
    cluster = Cluster()
    async with at_work(cluster, "b/second") as second:
        async with at_work(cluster, "a/first") as first:
            assert await first.works()
            assert not await second.works()
        cluster.delete("team")
        assert second.due == [SERVER]
        assert await second.works()
    assert cluster.owner("team") == "b/second"


@pytest.mark.parametrize("status", [403, 404])
async def test_namespace_that_takes_no_mark_is_worked_on(status: int) -> None:
    cluster = Cluster()
    async with at_work(cluster, "a/first") as first:
        cluster.refusal = KubeError(status, "no room")
        assert await first.works()
        cluster.refusal = None
        assert await first.works()
    assert cluster.owner("team") == "a/first"


async def test_api_server_that_does_not_answer_leaves_the_question_open() -> None:
    cluster = Cluster()
    async with at_work(cluster, "a/first") as first:
        cluster.refusal = KubeError(0, "no answer")
        with pytest.raises(KubeError):
            await first.works()


async def test_other_config_maps_are_none_of_its_business() -> None:
    cluster = Cluster()
    async with at_work(cluster, "a/first") as first:
        metadata = {"namespace": "team", "name": "server-desired", "uid": "u", "resourceVersion": "9"}
        foreign: dict[str, Any] = {"metadata": metadata, "data": {"operator": "b/second"}}
        first.claims.heard(CONFIG_MAP, {"type": "ADDED", "object": foreign})
        assert await first.works()
        assert cluster.marks["team"]["metadata"]["name"] == CLAIM_MARK
