"""Which installation works on a namespace: a ConfigMap in it says so, and keeps a second one from acting there.

The mark lies in the namespace that it is about, so a team can do no more with it than to its own objects, and it needs
no right that the operator has not got anyway. Nothing is renewed. Who finds the mark of another installation asks in it
whether that one is still there; one that leads and follows the namespace hears of it and answers. Without an answer the
asker takes over.
"""

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from whetstone_api.vocabulary import CLAIM_MARK, Label

from whetstone_operator.kinds import CONFIG_MAP, Key, Kind
from whetstone_operator.kube import Kube, KubeError, Object
from whetstone_operator.metrics import NAMESPACE_REFUSED
from whetstone_operator.resources.metadata import MANAGED_BY
from whetstone_operator.runtime.news import DELETED

logger = logging.getLogger(__name__)
_AGAIN_SECONDS = 5.0
_OPERATOR, _ASKED, _ANSWERED = "operator", "asked", "answered"


class Claims:
    """The namespaces that this installation works on, and those that it leaves to another.

    Args:
        kube: The client.
        installation: Names this installation: namespace and name of the Lease that its replicas share.
        mark: Makes a key due.
        answer_seconds: How long another installation may take to answer.
    """

    def __init__(self, kube: Kube, *, installation: str, mark: Callable[[Key], None], answer_seconds: float) -> None:
        self._kube, self._installation, self._mark = kube, installation, mark
        self._patience = answer_seconds
        self._marks: dict[str, Object] = {}
        self._refused: defaultdict[str, set[Key]] = defaultdict(set)
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._news: asyncio.Queue[str] = asyncio.Queue()

    async def admits(self, key: Key) -> bool:
        """Return whether an object is this installation's to work on; if not, it becomes due once it is.

        Raises:
            KubeError: Nobody has claimed its namespace, and the API server does not answer.
        """
        if await self.claim(key.namespace):
            return True
        self._refused[key.namespace].add(key)
        return False

    async def claim(self, namespace: str) -> bool:
        """Return whether this installation works on a namespace; one that nobody has claimed becomes its own.

        Raises:
            KubeError: As `admits`.
        """
        if namespace not in self._marks:
            try:
                self._take(await self._kube.create(self._new(namespace)))
            except KubeError as error:
                if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
                    raise
                # It is going, or has no room for a ConfigMap: what is wrong is told on its objects.
                logger.warning("namespace %s is worked on without the mark %s: %s", namespace, CLAIM_MARK, error)
                return True
        return self._owner(namespace) == self._installation

    def refuses(self, namespace: str) -> bool:
        """Return whether a namespace is known to be another installation's."""
        return self._owner(namespace) not in ("", self._installation)

    def heard(self, kind: Kind, event: Mapping[str, Any]) -> None:
        """Take over what a watch tells of a ConfigMap, if it is a mark."""
        metadata = event["object"]["metadata"]
        if kind is not CONFIG_MAP or metadata["name"] != CLAIM_MARK:
            return
        if event.get("type") != DELETED:
            self._take(event["object"])
            return
        namespace = metadata["namespace"]
        if namespace in self._marks and self._marks[namespace]["metadata"]["uid"] == metadata["uid"]:
            owner = self._owner(namespace)
            del self._marks[namespace]
            self._tell(namespace, before=owner)

    async def run(self) -> None:
        """Answer who asks, and ask those whose namespaces this installation is meant to work on, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                namespace = await self._news.get()
                if self.refuses(namespace) and namespace not in self._asking:
                    task = group.create_task(self._ask(namespace))
                    self._asking[namespace] = task
                    task.add_done_callback(partial(self._asked, namespace))
                elif self._owner(namespace) == self._installation:
                    await self._answer(namespace)

    def _asked(self, namespace: str, _: asyncio.Task[None]) -> None:
        del self._asking[namespace]

    async def _answer(self, namespace: str) -> None:
        mark = self._marks[namespace]
        if _is_open(mark) and await self._write(mark, **{_ANSWERED: _data(mark).get(_ASKED, "")}) is None:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._news.put_nowait, namespace)

    async def _ask(self, namespace: str) -> None:
        """Ask for a namespace until it is this installation's."""
        while self.refuses(namespace):
            mark: Object | None = self._marks[namespace]
            # A question that somebody else has asked is as good.
            if mark is not None and not _is_open(mark):
                mark = await self._write(mark, **{_ASKED: uuid.uuid4().hex})
            if mark is None:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            await asyncio.sleep(self._patience)
            now = self._marks.get(namespace)
            if now is not None and self.refuses(namespace) and _data(now) == _data(mark):
                logger.warning("namespace %s: %s does not answer", namespace, self._owner(namespace))
                answered = _data(now).get(_ASKED, "")
                await self._write(now, **{_OPERATOR: self._installation, _ANSWERED: answered})

    async def _write(self, mark: Object, **data: str) -> Object | None:
        """Change a mark as it was read; None when somebody else did, or the API server does not answer."""
        try:
            written = await self._kube.merge(mark, {"data": data})
        except KubeError as error:
            logger.warning("the mark %s cannot be written: %s", CLAIM_MARK, error)
            return None
        if written is not None:
            self._take(written)
        return written

    def _take(self, mark: Object) -> None:
        """Take over a mark, unless a newer state of it is known."""
        metadata = mark["metadata"]
        known = self._marks.get(metadata["namespace"])
        if known is not None and known["metadata"]["uid"] == metadata["uid"] and _version(known) >= _version(mark):
            return
        before = self._owner(metadata["namespace"])
        self._marks[metadata["namespace"]] = mark
        self._news.put_nowait(metadata["namespace"])
        self._tell(metadata["namespace"], before=before)

    def _tell(self, namespace: str, *, before: str) -> None:
        """Say whose a namespace is when that has changed, and take up again what had to be left alone."""
        owner = self._owner(namespace)
        if owner == before:
            return
        if before not in ("", self._installation):
            NAMESPACE_REFUSED.remove_by_labels({"namespace": namespace, "operator": before})
        if self.refuses(namespace):
            NAMESPACE_REFUSED.labels(namespace=namespace, operator=owner).set(1)
            logger.warning(
                "namespace %s is worked on by the operator of %s, so nothing is done there: let one of the two watch"
                " other namespaces (watchNamespaces of the chart), or uninstall it",
                namespace,
                owner,
            )
            return
        for key in self._refused.pop(namespace, ()):
            self._mark(key)

    def _owner(self, namespace: str) -> str:
        """Return the installation that a namespace is marked with; empty while it has no mark."""
        mark = self._marks.get(namespace)
        return _data(mark).get(_OPERATOR) or "unknown" if mark else ""

    def _new(self, namespace: str) -> Object:
        metadata = {"namespace": namespace, "name": CLAIM_MARK, "labels": {str(Label.MANAGED_BY): MANAGED_BY}}
        data = {_OPERATOR: self._installation}
        return {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.name, "metadata": metadata, "data": data}


def _is_open(mark: Mapping[str, Any]) -> bool:
    """Return whether a question in a mark has not been answered."""
    return _data(mark).get(_ASKED, "") != _data(mark).get(_ANSWERED, "")


def _data(mark: Mapping[str, Any]) -> dict[str, str]:
    return mark.get("data") or {}


def _version(mark: Mapping[str, Any]) -> int:
    return int(mark["metadata"]["resourceVersion"])
