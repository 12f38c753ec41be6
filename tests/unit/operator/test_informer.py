"""How the store follows the API server, in looptime: its clock jumps over every pause."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from whetstone_operator.kinds import JOB, Kind
from whetstone_operator.kube import KubeAio, KubeError, Object
from whetstone_operator.runtime.informer import Informer, Watched
from whetstone_operator.runtime.object_store import ObjectStore

pytestmark = pytest.mark.looptime
JOBS = Watched(kind=JOB, labels={"l": "v", "present": None})


def job(name: str, version: int = 1) -> Object:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}}


def told(change: str, obj: Object) -> Object:
    return {"type": change, "object": obj}


class Server:
    """Answers lists and watches with what a test has laid out, one after the other, and then with silence."""

    def __init__(self, *, lists: list[Any], watches: list[list[Any]]) -> None:
        self._lists, self._watches = lists, watches
        self.from_versions: list[str] = []

    async def pages(self, *_: Any, fields: str | None) -> AsyncIterator[tuple[list[Object], str]]:
        answer = self._lists.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        objects, version = answer
        for one in objects:
            yield [one], version
        if not objects:
            yield [], version

    async def changes(self, *_: Any, version: str, fields: str | None) -> AsyncIterator[Object]:
        self.from_versions.append(version)
        if not self._watches:
            await asyncio.sleep(1_000_000)
        for event in self._watches.pop(0):
            if isinstance(event, KubeError):
                raise event
            yield event


class Follower:
    """An informer, its store and what it has told."""

    def __init__(self, server: Server) -> None:
        self.store = ObjectStore()
        self.heard: list[tuple[Any, str]] = []
        kube = cast("KubeAio", server)
        self.informer = Informer(kube, self.store, watched=JOBS, namespace=None, changed=self._changed)

    def _changed(self, kind: Kind, event: Mapping[str, Any]) -> None:
        held = self.store.get(kind, "ns", event["object"]["metadata"]["name"]) is not None
        assert held == (event["type"] != "DELETED"), "the store has an event before it is told"
        self.heard.append((event["type"], event["object"]["metadata"]["name"]))

    async def follow(self, seconds: float = 100) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.informer.run()
        except TimeoutError:
            pass


async def test_list_and_changes_reach_store_and_listener() -> None:
    server = Server(
        lists=[([job("a"), job("b")], "5")],
        watches=[[told("MODIFIED", job("a", 6)), told("BOOKMARK", job("", 8)), told("DELETED", job("b", 9))]],
    )
    follower = Follower(server)
    await follower.follow()
    assert follower.informer.synced.is_set()
    assert follower.heard == [(None, "a"), (None, "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert server.from_versions == ["5", "9"]


async def test_a_watch_that_breaks_off_goes_on_from_where_it_was() -> None:
    server = Server(
        lists=[([], "5")],
        watches=[
            [told("ADDED", job("a", 6)), KubeError(0, "cut")],
            [KubeError(503, "no")],
            [told("ADDED", job("b", 7))],
        ],
    )
    follower = Follower(server)
    await follower.follow()
    assert server.from_versions == ["5", "6", "6", "7"]
    assert [name for _, name in follower.heard] == ["a", "b"]


@pytest.mark.parametrize("how", ["event", "answer"])
async def test_what_went_while_no_watch_ran_is_told_as_deleted(how: str) -> None:
    gone = told("ERROR", {"code": 410, "message": "too old"}) if how == "event" else KubeError(410, "too old")
    server = Server(lists=[([job("a"), job("b")], "5"), ([job("b")], "20")], watches=[[gone]])
    follower = Follower(server)
    await follower.follow()
    assert follower.heard[2:] == [(None, "b"), ("DELETED", "a")]
    assert server.from_versions == ["5", "20"]


async def test_a_list_that_fails_is_tried_again_and_nothing_is_synced_before() -> None:
    server = Server(lists=[KubeError(429, "busy"), KubeError(401, "expired"), ([job("a")], "5")], watches=[])
    follower = Follower(server)
    await follower.follow(seconds=1)
    assert not follower.informer.synced.is_set()
    await follower.follow()
    assert follower.informer.synced.is_set()


def test_a_watch_tells_of_objects_with_its_labels_only() -> None:
    def labelled(**labels: str) -> Object:
        return {"metadata": {"labels": labels}}

    assert JOBS.matches(labelled(l="v", present=""))
    assert not JOBS.matches(labelled(l="w", present=""))
    assert not JOBS.matches(labelled(l="v"))
    assert not JOBS.matches({"metadata": {}})


def test_of_what_fields_select_no_watch_surely_tells() -> None:
    assert not Watched(kind=JOB, labels={}, fields="status.phase!=Failed").matches({"metadata": {}})
