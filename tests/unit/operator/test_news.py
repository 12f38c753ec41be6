"""Which events of a watch wake an owner."""

from typing import Any

from whetstone_operator.runtime.news import News


def event(kind: str | None = "MODIFIED", *, version: int = 1, **parts: Any) -> dict[str, Any]:
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": str(version), "managedFields": [version]}
    return {"type": kind, "object": {"metadata": metadata, **parts}}


def news() -> News:
    def all_but_status(obj: dict[str, Any]) -> Any:
        return {**obj, "status": None}

    def replicas(obj: dict[str, Any]) -> Any:
        return {**obj, "status": (obj.get("status") or {}).get("replicas")}

    return News({"budgets": all_but_status, "deployments": replicas, "pods": lambda pod: pod.get("problem")})


def test_the_first_word_of_an_object_is_news_and_its_repetition_is_not() -> None:
    heard = news()
    assert heard.is_news("budgets", event(None, spec={"a": 1}))
    assert not heard.is_news("budgets", event(version=2, spec={"a": 1}))


def test_a_status_counts_as_far_as_it_is_read() -> None:
    heard = news()
    for plural in ("budgets", "deployments", "jobs"):
        heard.is_news(plural, event(status={"replicas": 1, "conditions": ["a"]}))
    changed = event(status={"replicas": 1, "conditions": ["b"]})
    assert [heard.is_news(plural, changed) for plural in ("budgets", "deployments", "jobs")] == [False, False, True]
    changed = event(status={"replicas": 2, "conditions": ["b"]})
    assert [heard.is_news(plural, changed) for plural in ("budgets", "deployments", "jobs")] == [False, True, True]


def test_a_changed_spec_or_label_is_news() -> None:
    heard = news()
    heard.is_news("budgets", event(spec={"a": 1}))
    assert heard.is_news("budgets", event(spec={"a": 2}))
    labelled = event(spec={"a": 2})
    labelled["object"]["metadata"]["labels"] = {"l": "v"}
    assert heard.is_news("budgets", labelled)


def test_an_end_is_news_and_so_is_what_comes_after_it() -> None:
    heard = news()
    heard.is_news("budgets", event())
    assert heard.is_news("budgets", event("DELETED"))
    assert heard.is_news("budgets", event("ADDED"))


def test_what_is_not_read_is_no_news_until_there_is_something_and_when_it_is_gone() -> None:
    heard = news()
    told = [event(None), event(spec={"a": 1}), event(problem="x"), event(problem="x"), event(), event()]
    assert [heard.is_news("pods", one) for one in told] == [False, False, True, False, True, False]
    assert not heard.is_news("pods", event("DELETED"))
    heard.is_news("pods", event("ADDED", problem="x"))
    assert heard.is_news("pods", event("DELETED"))
