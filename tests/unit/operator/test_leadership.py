"""Who of several operators works, in looptime: its clock jumps over every pause."""

import asyncio
import copy
from typing import Any, cast

import pytest
from unit.operator.objects import NOW
from whetstone_operator.kube import Kube, KubeError, Object
from whetstone_operator.runtime.leadership import Candidate, Leadership, LeadershipLostError

pytestmark = pytest.mark.looptime


class Wall:
    """A clock for what people read."""

    def now(self) -> Any:
        return NOW


class Store:
    """The Lease as an API server keeps it; `broken` makes every request fail, `hanging` makes it never answer."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.broken = self.hanging = False
        self._version = 0

    async def _answer(self) -> None:
        if self.hanging:
            await asyncio.sleep(3600)
        if self.broken:
            raise KubeError(0, "no answer")

    async def get(self, *_: Any) -> Object | None:
        await self._answer()
        return copy.deepcopy(self.lease)

    async def create(self, obj: Object) -> Object:
        await self._answer()
        return copy.deepcopy(self.lease or self._store(obj))

    async def merge(self, obj: Object, change: Object) -> Object | None:
        await self._answer()
        assert self.lease is not None
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return None
        metadata = {**self.lease["metadata"], **change.get("metadata", {})}
        merged = {**self.lease, "metadata": metadata, "spec": {**self.lease["spec"], **change["spec"]}}
        return copy.deepcopy(self._store(merged))

    def _store(self, obj: Object) -> Object:
        self._version += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        return self.lease

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


def operator(store: Store, identity: str) -> Leadership:
    candidate = Candidate(namespace="ns", lease="operator", identity=identity, url=f"http://{identity}")
    return Leadership(cast("Kube", store), candidate=candidate, clock=Wall())


async def work() -> None:
    await asyncio.sleep(36000)


async def leading(store: Store, identity: str) -> tuple[Leadership, asyncio.Task[None]]:
    one = operator(store, identity)
    await one.gain()
    return one, asyncio.create_task(one.lead(work()))


async def test_first_operator_leads_and_renews_while_the_second_stands_by() -> None:
    store = Store()
    first, working = await leading(store, "a")
    second = operator(store, "b")
    waiting = asyncio.create_task(second.gain())
    await asyncio.sleep(300)
    assert (store.holder, first.leading, second.leading, second.standing_by) == ("a", True, False, True)
    assert second.leader_url == "http://a"
    assert first.leader_url is None
    working.cancel()
    waiting.cancel()


async def test_second_operator_takes_over_within_seventeen_seconds_of_a_kill() -> None:
    store = Store()
    _, working = await leading(store, "a")
    second = operator(store, "b")
    waiting = asyncio.create_task(second.gain())
    await asyncio.sleep(100)
    working.cancel()
    killed = asyncio.get_running_loop().time()
    await waiting
    assert 13 <= asyncio.get_running_loop().time() - killed <= 17
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 1


async def test_released_lease_is_taken_at_the_next_try() -> None:
    store = Store()
    first, working = await leading(store, "a")
    second = operator(store, "b")
    waiting = asyncio.create_task(second.gain())
    await asyncio.sleep(20)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await first.release()
    released = asyncio.get_running_loop().time()
    await waiting
    assert asyncio.get_running_loop().time() - released <= 2
    assert not first.leading


async def test_container_that_starts_again_in_its_pod_leads_at_once() -> None:
    store = Store()
    _, working = await leading(store, "a")
    await asyncio.sleep(20)
    working.cancel()
    before = asyncio.get_running_loop().time()
    again = operator(store, "a")
    await again.gain()
    assert asyncio.get_running_loop().time() == before
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 0


@pytest.mark.parametrize("fault", ["broken", "hanging"])
async def test_leader_that_cannot_renew_stops_before_another_may_begin(fault: str) -> None:
    store = Store()
    first, working = await leading(store, "a")
    await asyncio.sleep(20)
    setattr(store, fault, True)
    since = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLostError, match="could not be renewed for 10 s"):
        await working
    assert asyncio.get_running_loop().time() - since <= 12
    assert not first.leading


async def test_short_outage_of_the_api_server_costs_nothing() -> None:
    store = Store()
    _, working = await leading(store, "a")
    await asyncio.sleep(20)
    store.broken = True
    await asyncio.sleep(7)
    store.broken = False
    await asyncio.sleep(100)
    assert (store.holder, working.done()) == ("a", False)
    working.cancel()


async def test_leader_that_finds_another_one_stops_at_once() -> None:
    store = Store()
    _, working = await leading(store, "a")
    assert store.lease is not None
    await store.merge(store.lease, {"spec": {"holderIdentity": "b"}})
    with pytest.raises(LeadershipLostError, match="b leads"):
        await working


async def test_end_of_the_work_is_the_end_of_leading_and_its_error_is_told() -> None:
    async def failing() -> None:
        await asyncio.sleep(1)
        raise ValueError("the watch broke")

    one = operator(Store(), "a")
    await one.gain()
    with pytest.raises(ValueError, match="the watch broke"):
        await one.lead(failing())
