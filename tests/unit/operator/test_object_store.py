"""What is kept of objects, and when it is given out."""

from typing import Any

from whetstone_operator.kinds import DEPLOYMENT, JOB
from whetstone_operator.runtime.object_store import ObjectStore


class Steady:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def job(name: str = "j", *, version: int = 1, uid: str = "u", labels: dict[str, str] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version), "labels": labels or {}}
    return {"metadata": metadata, "status": {"at": version}}


def at(store: ObjectStore, name: str = "j") -> int | None:
    found = store.get(JOB, "ns", name)
    return found["status"]["at"] if found else None


def test_an_object_comes_back_whole_with_its_kind() -> None:
    store = ObjectStore()
    store.put(JOB, job(labels={"a": "b"}))
    assert store.get(JOB, "ns", "j") == {"apiVersion": "batch/v1", "kind": "Job", **job(labels={"a": "b"})}
    assert store.get(JOB, "other", "j") is None
    assert store.get(DEPLOYMENT, "ns", "j") is None


def test_who_wrote_which_part_is_kept_of_deployments_only() -> None:
    store = ObjectStore()
    for kind in (JOB, DEPLOYMENT):
        written = job()
        fields = {"f:spec": {"f:replicas": {}}, "f:metadata": {"f:labels": {"f:a": {}}}}
        written["metadata"]["managedFields"] = [{"manager": "x", "time": "t", "fieldsV1": fields}, {"manager": "y"}]
        store.put(kind, written)
    kept = [(store.get(kind, "ns", "j") or {})["metadata"].get("managedFields") for kind in (JOB, DEPLOYMENT)]
    written_parts = [
        {"manager": "x", "time": "t", "fieldsV1": {"f:spec": {}, "f:metadata": {}}},
        {"manager": "y", "fieldsV1": {}},
    ]
    assert kept == [None, written_parts]


def test_objects_of_a_kind_come_back_however_unlike_the_first_one_they_are() -> None:
    store = ObjectStore()
    wanted = {}
    for number, text in enumerate(["first", "", "z" * 100_000, "first" * 20_000, "\u00e9\u4e16"]):
        one = job(f"j{number}", uid=f"u{number}")
        wanted[f"j{number}"] = one["status"]["text"] = text
        store.put(JOB, one)
    found = {name: (store.get(JOB, "ns", name) or {})["status"]["text"] for name in wanted}
    assert found == wanted


def test_what_is_older_never_replaces_what_is_newer() -> None:
    store = ObjectStore()
    store.put(JOB, job(version=10))
    store.put(JOB, job(version=9))
    assert at(store) == 10


def test_a_late_answer_does_not_bring_back_what_is_gone() -> None:
    store = ObjectStore()
    store.put(JOB, job(version=1))
    store.remove(JOB, "ns", "j", uid="u", version=5)
    store.put(JOB, job(version=4))
    assert at(store) is None
    # One that only left the watch's selection for a while has a newer version.
    store.put(JOB, job(version=6))
    assert at(store) == 6


def test_the_end_of_a_namesake_takes_nothing() -> None:
    store = ObjectStore()
    store.put(JOB, job(version=1, uid="old"))
    store.put(JOB, job(version=7, uid="new"))
    store.remove(JOB, "ns", "j", uid="old", version=6)
    assert at(store) == 7


def test_objects_are_found_by_labels_of_ours() -> None:
    store = ObjectStore()
    mine, other = "whetstone.dev/model-server", "app.kubernetes.io/component"
    store.put(JOB, job("b", labels={mine: "s", other: "engine"}, uid="1"))
    store.put(JOB, job("a", labels={mine: "s", other: "engine"}, uid="2"))
    store.put(JOB, job("c", labels={mine: "s", other: "else"}, uid="3"))
    store.put(JOB, job("d", labels={mine: "t", other: "engine"}, uid="4"))

    def names() -> list[str]:
        found = store.select(JOB, "ns", {mine: "s", other: "engine"})
        return [one["metadata"]["name"] for one in found or []]

    assert names() == ["a", "b"]
    store.put(JOB, job("a", labels={mine: "t", other: "engine"}, uid="2", version=2))
    store.remove(JOB, "ns", "b", uid="1", version=2)
    assert names() == []


def test_what_was_changed_just_now_is_not_given_out_until_it_is_heard_of() -> None:
    store = ObjectStore()
    label = {"whetstone.dev/holds": "s"}
    store.put(JOB, job(labels=label))
    store.doubt(JOB, "ns", "j")
    assert store.doubts(JOB, "ns", "j")
    assert at(store) is None
    assert store.select(JOB, "ns", label) is None
    store.put(JOB, job(version=2, labels=label))
    assert at(store) == 2
    assert len(store.select(JOB, "ns", label) or []) == 1


def test_what_was_heard_too_long_ago_is_not_given_out() -> None:
    clock = Steady()
    store = ObjectStore(clock)
    store.put(JOB, job())
    clock.now = 59
    assert store.get(JOB, "ns", "j", within=60) is not None
    clock.now = 61
    assert store.get(JOB, "ns", "j", within=60) is None
    assert store.get(JOB, "ns", "j") is not None
    store.put(JOB, job())
    assert store.get(JOB, "ns", "j", within=60) is not None


def test_a_list_tells_what_has_vanished() -> None:
    store = ObjectStore()
    for name, version in (("there", 1), ("gone", 2), ("newer", 9)):
        store.put(JOB, job(name, version=version, uid=name))
    gone = store.vanished(JOB, "ns", there=["there"], version=5)
    assert [one["metadata"]["name"] for one in gone] == ["gone"]
    assert store.vanished(JOB, "other", there=[], version=5) == []
    assert len(store.vanished(JOB, None, there=[], version=5)) == 2
