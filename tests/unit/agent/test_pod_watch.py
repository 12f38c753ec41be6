"""The watch of trial pods, against a scripted API server: it loses nothing when the connection breaks."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, web
from whetstone_agent.environment import watching
from whetstone_agent.environment.watching import PodState, PodWatch


def pod(name: str, phase: str, version: int) -> PodState:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "status": {"phase": phase}}


class Server:
    """Lists `pods`; each watch sends what the next script says and ends."""

    def __init__(self) -> None:
        self.pods: list[PodState] = []
        self.scripts: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()
        self.lists = 0
        self.watched_from: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": self.pods})
        self.watched_from.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        for event in await self.scripts.get():
            await response.write(json.dumps(event).encode() + b"\n")
        return response


class Api:
    """The one method of `CoreV1Api` that a watch uses."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def list_namespaced_pod_without_preload_content(self, namespace: str, **options: Any) -> Any:
        names = {"watch": "watch", "resource_version": "resourceVersion"}
        return await self._session.get(self._url, params={names[k]: str(v) for k, v in options.items() if k in names})


@pytest.fixture
async def watched(
    monkeypatch: pytest.MonkeyPatch, aiohttp_server: Callable[..., Awaitable[Any]]
) -> AsyncIterator[tuple[Server, PodWatch]]:
    monkeypatch.setattr(watching, "_PAUSE_SECONDS", 0)
    server, app = Server(), web.Application()
    app.router.add_get("/", server.answer)
    running = await aiohttp_server(app)
    async with ClientSession() as session:
        watch = PodWatch(Api(session, str(running.make_url("/"))), namespace="n", selector="a=b")
        watch.begin()
        yield server, watch
        await watch.close()


def phase(state: PodState | None) -> str:
    return "gone" if state is None else str(state["status"]["phase"])


def reaches(wanted: str) -> Callable[[PodState | None], str | None]:
    return lambda state: wanted if phase(state) == wanted else None


async def test_a_pod_is_followed_from_its_creation_to_its_end(watched: tuple[Server, PodWatch]) -> None:
    server, watch = watched
    waiting = asyncio.create_task(watch.until("p", reaches("Running")))
    await server.scripts.put(
        [{"type": "ADDED", "object": pod("p", "Pending", 8)}, {"type": "MODIFIED", "object": pod("p", "Running", 9)}]
    )
    assert await waiting == "Running"
    await server.scripts.put([{"type": "DELETED", "object": pod("p", "Running", 10)}])
    assert await watch.until("p", reaches("gone")) == "gone"
    assert watch.state("p") is None
    assert server.watched_from[:2] == ["7", "9"]
    assert server.lists == 1


async def test_what_happened_while_the_watch_was_away_is_seen_by_a_list(watched: tuple[Server, PodWatch]) -> None:
    server, watch = watched
    await server.scripts.put([{"type": "ADDED", "object": pod("p", "Running", 8)}])
    assert await watch.until("p", reaches("Running"))
    ended = asyncio.create_task(watch.until("p", reaches("gone")))
    server.pods = [pod("q", "Running", 20)]
    await server.scripts.put([{"type": "ERROR", "object": {"code": 410, "message": "too old"}}])
    assert await ended == "gone"
    assert await watch.until("q", reaches("Running"))
    assert server.lists == 2


async def test_a_look_that_raises_ends_the_wait(watched: tuple[Server, PodWatch]) -> None:
    server, watch = watched

    def refuse(state: PodState | None) -> str:
        raise ValueError(phase(state))

    await server.scripts.put([{"type": "ADDED", "object": pod("p", "Failed", 8)}])
    with pytest.raises(ValueError, match="Failed"):
        await watch.until("p", refuse)
