"""The states of a run's trial pods by one watch, instead of a request for each look at each pod."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import aiohttp
from kubernetes.aio.client.exceptions import ApiException

log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 240
"""The server ends a watch after that, before the client's own limit on a request does."""
_PAUSE_SECONDS: Final = 1.0
_GONE: Final = 410

PodState = dict[str, Any]
"""A pod as the API server sent it."""


class PodApi(Protocol):
    """What a watch needs of `CoreV1Api`."""

    async def list_namespaced_pod_without_preload_content(self, namespace: str, **options: Any) -> Any:
        """List or watch, and return the open response."""


class PodWatch:
    """Follows the pods that a selector names.

    Args:
        core: API of the core group.
        namespace: Their namespace.
        selector: Label selector.
    """

    def __init__(self, core: PodApi, *, namespace: str, selector: str) -> None:
        self._core = core
        self._namespace = namespace
        self._selector = selector
        self._pods: dict[str, PodState] = {}
        self._gone: set[str] = set()
        self._changed: dict[str, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start following, unless it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def state(self, name: str) -> PodState | None:
        """Return the latest state of a pod; None where it was not seen yet, or is gone."""
        return self._pods.get(name)

    async def until[T](self, name: str, look: Callable[[PodState | None], T | None]) -> T:
        """Wait until a look at a pod gives something, and return that.

        Args:
            name: The pod.
            look: Called with each state from the first one seen, and with None once the pod was deleted.

        Raises:
            Exception: What `look` raises.
        """
        changed = self._changed.setdefault(name, asyncio.Event())
        while True:
            changed.clear()
            if name in self._gone or name in self._pods:
                found = look(self._pods.get(name))
                if found is not None:
                    return found
            await changed.wait()

    def forget(self, name: str) -> None:
        """Drop what is known of a pod that nobody will ask for again."""
        self._pods.pop(name, None)
        self._gone.discard(name)
        self._changed.pop(name, None)

    async def _follow(self) -> None:
        version: str | None = None
        while True:
            try:
                if version is None:
                    version = await self._list()
                version = await self._watch(version)
            except (aiohttp.ClientError, ApiException, OSError, TimeoutError, ValueError) as error:
                # A list says what happened meanwhile, so nothing is lost but time.
                log.info("the watch of trial pods begins anew: %s", error or type(error).__name__)
                version = None
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _list(self) -> str:
        response = await self._core.list_namespaced_pod_without_preload_content(
            self._namespace, label_selector=self._selector
        )
        async with response:
            data = json.loads(await response.read())
        if response.status != 200:
            raise ValueError(str(data.get("message") or data))
        found = {item["metadata"]["name"]: item for item in data["items"]}
        for name in set(self._pods) - set(found):
            self.set_state(name, None)
        for name, pod in found.items():
            self.set_state(name, pod)
        return str(data["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str | None:
        """Take events until the server ends the watch; return where to go on, None for a new list."""
        response = await self._core.list_namespaced_pod_without_preload_content(
            self._namespace,
            label_selector=self._selector,
            resource_version=version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_SECONDS,
        )
        async with response:
            if response.status != 200:
                raise ValueError(f"the API server answered {response.status}")
            while line := await response.content.readline():
                event = json.loads(line)
                pod = event["object"]
                if event["type"] == "ERROR":
                    if pod.get("code") == _GONE:
                        return None
                    raise ValueError(str(pod.get("message") or pod))
                version = str(pod["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self.set_state(pod["metadata"]["name"], None if event["type"] == "DELETED" else pod)
        return version

    def set_state(self, name: str, pod: PodState | None) -> None:
        """Take a state of a pod, None for one that was deleted, and wake who waits for it."""
        if pod is None:
            self._pods.pop(name, None)
            if name in self._changed:
                self._gone.add(name)
        else:
            self._pods[name] = pod
        if name in self._changed:
            self._changed[name].set()
