"""Which questions the client answers itself, and which it asks the API server."""

import asyncio
from typing import Any

import pytest
from whetstone_api.vocabulary import Label
from whetstone_operator.children import CHILDREN
from whetstone_operator.informed_kube import REQUESTS_AT_ONCE, InformedKube
from whetstone_operator.kinds import CONFIG_MAP, DEPLOYMENT, JOB, LEASE, MODEL_SERVER, POD, SECRET, Kind
from whetstone_operator.kube import KubeError, Object
from whetstone_operator.runtime.ownership import NameTakenError
from whetstone_operator.transport import Transport

OURS = {str(Label.MANAGED_BY): "whetstone", str(Label.MODEL_SERVER): "s"}


def stored(kind: Kind, name: str = "x", *, version: int = 1, labels: dict[str, str] | None = None) -> Object:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}
    metadata["labels"] = OURS if labels is None else labels  # type: ignore[assignment]
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


class Asked(InformedKube):
    """Answers by path what it is given, and counts."""

    def __init__(self, answers: dict[str, Object]) -> None:
        super().__init__(Transport(None))
        self.answers = answers
        self.requests: list[str] = []

    async def _json(self, method: str, path: str, **_: Any) -> Object:
        self.requests.append(f"{method} {path.rpartition('/')[2]}")
        if path not in self.answers:
            raise KubeError(404, "not found")
        return self.answers[path]


def client(*objects: tuple[Kind, Object], informed: bool = True) -> Asked:
    kube = Asked({kind.path(namespace="ns", name=obj["metadata"]["name"]): obj for kind, obj in objects})
    if informed:
        kube.rely_on(CHILDREN)
    return kube


async def test_children_are_read_from_the_store() -> None:
    kube = client()
    kube.store.put(DEPLOYMENT, stored(DEPLOYMENT))
    assert await kube.get(DEPLOYMENT, "ns", "x") == stored(DEPLOYMENT)
    assert await kube.get(DEPLOYMENT, "ns", "absent") is None
    assert kube.requests == []


async def test_nothing_is_taken_for_absent_before_the_store_is_full() -> None:
    kube = client((JOB, stored(JOB)), informed=False)
    assert await kube.get(JOB, "ns", "x") == stored(JOB)
    assert await kube.get(JOB, "ns", "x") == stored(JOB)
    assert kube.requests == ["GET x", "GET x"]


@pytest.mark.parametrize("kind", [CONFIG_MAP, POD, SECRET], ids=lambda kind: kind.name)
async def test_what_is_also_of_others_is_asked_for_each_time(kind: Kind) -> None:
    kube = client((kind, stored(kind, labels={})))
    for _ in range(2):
        assert await kube.get(kind, "ns", "x") == stored(kind, labels={})
    assert kube.requests == ["GET x", "GET x"]


async def test_what_is_written_is_read_at_once() -> None:
    kube = client((JOB, stored(JOB)), (DEPLOYMENT, stored(DEPLOYMENT, version=7)))
    kube.answers[JOB.path(namespace="ns")] = stored(JOB)
    kube.store.put(DEPLOYMENT, stored(DEPLOYMENT, version=3))
    await kube.create(stored(JOB))
    await kube.apply(stored(DEPLOYMENT), look=False)
    kube.requests.clear()
    assert await kube.get(JOB, "ns", "x") == stored(JOB)
    found = await kube.get(DEPLOYMENT, "ns", "x")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "7"
    assert kube.requests == []


async def test_what_is_deleted_is_asked_for_until_the_watch_tells() -> None:
    kube = client((JOB, stored(JOB)))
    kube.store.put(JOB, stored(JOB))
    await kube.delete(JOB, "ns", "x")
    del kube.answers[JOB.path(namespace="ns", name="x")]
    assert await kube.get(JOB, "ns", "x") is None
    assert kube.requests == ["DELETE x", "GET x"]


async def test_pods_are_listed_from_the_store_by_their_owner_and_asked_for_by_their_job_alone() -> None:
    kube = client()
    kube.answers[POD.path(namespace="ns")] = {"items": [], "metadata": {"resourceVersion": "1"}}
    job = {"batch.kubernetes.io/job-name": "j"}
    at_work = stored(POD, "y", labels={**OURS, str(Label.TRAINING_JOB): "t", **job})
    kube.store.put(POD, stored(POD))
    kube.store.put(POD, at_work)
    assert await kube.list(POD, "ns", {str(Label.TRAINING_JOB): "t", **job}) == [at_work]
    assert await kube.list(POD, "ns", {str(Label.TRAINING_JOB): "t", "batch.kubernetes.io/job-name": "other"}) == []
    assert stored(POD) in await kube.list(POD, "ns", {str(Label.MODEL_SERVER): "s"})
    assert kube.requests == []
    assert await kube.list(POD, "ns", job) == []
    assert kube.requests == ["GET pods"]


async def test_ours_are_relied_on_for_a_while_and_asked_for_when_absent() -> None:
    kube = client((MODEL_SERVER, stored(MODEL_SERVER, "other")))
    kube.store.put(MODEL_SERVER, stored(MODEL_SERVER))
    assert await kube.get(MODEL_SERVER, "ns", "x") == stored(MODEL_SERVER)
    assert kube.requests == []
    assert await kube.get(MODEL_SERVER, "ns", "other") == stored(MODEL_SERVER, "other")
    assert await kube.get(MODEL_SERVER, "ns", "absent") is None
    assert kube.requests == ["GET other", "GET absent"]


class Held(Transport):
    """Answers nothing before it is let go; counts what is on its way."""

    def __init__(self) -> None:
        super().__init__(None)
        self.let_go = asyncio.Event()
        self.on_their_way = 0
        self.answered = 0

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        self.on_their_way += 1
        await self.let_go.wait()
        self.on_their_way -= 1
        self.answered += 1
        return b"{}"


async def test_so_many_requests_are_on_their_way_at_once_and_the_lease_waits_for_none() -> None:
    transport = Held()
    kube = InformedKube(transport)
    asked = [asyncio.create_task(kube.get(SECRET, "ns", str(number))) for number in range(3 * REQUESTS_AT_ONCE)]
    await asyncio.sleep(0.01)
    assert transport.on_their_way == REQUESTS_AT_ONCE
    lease = asyncio.create_task(kube.prompt().get(LEASE, "ns", "x"))
    await asyncio.sleep(0.01)
    assert transport.on_their_way == REQUESTS_AT_ONCE + 1
    transport.let_go.set()
    await asyncio.gather(lease, *asked)
    assert transport.answered == len(asked) + 1


class Contested(Asked):
    """Refuses an apply that does not take fields over, and lists what is there."""

    async def _json(self, method: str, path: str, **options: Any) -> Object:
        query = options.get("query") or {}
        if method == "PATCH" and query["force"] == "false":
            self.requests.append("PATCH without force")
            raise KubeError(409, "conflict with somebody")
        if query.get("fieldSelector") == "metadata.name=x":
            self.requests.append("GET of the name in a list")
            return {"items": list(self.answers.values()), "metadata": {"resourceVersion": "9"}}
        return await super()._json(method, path, **options)


@pytest.mark.parametrize("mark", ["label", "owner"])
async def test_fields_of_somebody_else_in_an_object_of_ours_go(mark: str) -> None:
    there = stored(DEPLOYMENT, labels=OURS if mark == "label" else {})
    there["metadata"]["ownerReferences"] = [{"uid": "server" if mark == "owner" else "before"}]
    kube = Contested({DEPLOYMENT.path(namespace="ns", name="x"): there})
    wanted = stored(DEPLOYMENT)
    wanted["metadata"]["ownerReferences"] = [{"kind": "ModelServer", "uid": "server"}]
    await kube.apply(wanted, look=False)
    assert kube.requests == ["PATCH without force", "GET of the name in a list", "PATCH x"]


async def test_an_object_of_somebody_else_is_let_alone() -> None:
    kube = Contested({DEPLOYMENT.path(namespace="ns", name="x"): stored(DEPLOYMENT, labels={})})
    wanted = stored(DEPLOYMENT)
    wanted["metadata"]["ownerReferences"] = [{"kind": "ModelServer", "uid": "server"}]
    for look in (False, True):
        with pytest.raises(NameTakenError, match="Deployment x in namespace ns exists and is not of this ModelServer"):
            await kube.apply(wanted, look=look)
    assert not [one for one in kube.requests if one == "PATCH x"]


async def test_a_conflict_over_what_is_gone_by_now_is_tried_again_later() -> None:
    with pytest.raises(KubeError, match="conflict") as raised:
        await Contested({}).apply(stored(DEPLOYMENT), look=False)
    assert not isinstance(raised.value, NameTakenError)
