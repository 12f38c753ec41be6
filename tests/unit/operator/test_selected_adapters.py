"""Which training jobs a selector adds to a server's adapters."""

from typing import Any

from unit.operator.objects import digest, model_server
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.selected_adapters import Selection, select_adapters

SERVER: dict[str, Any] = {
    "adapterSelector": {"matchLabels": {"serve": "here"}},
    "adapters": [
        {"name": "named", "source": {"uri": "pvc://adapters/a", "digest": digest("a")}},
        {"name": "own", "trainingJobRef": {"name": "own"}},
    ],
    "aliases": [{"name": "prod", "targets": [{"adapter": "named"}]}],
}


def job(name: str, *, published: int | None = 1) -> LoRATrainingJob:
    """Return a job that published its adapter at a minute past noon, or has not."""
    adapter = {"uri": "pvc://adapters/x", "digest": digest("b"), "rank": 8, "bytes": 1}
    status = {"adapter": {**adapter, "publishedAt": f"2026-01-01T12:{published:02}:00Z"}} if published else {}
    return LoRATrainingJob.model_validate(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": "u"},
            "spec": {
                "baseModel": {"source": {"uri": "pvc://models/base"}},
                "datasets": [{"name": "d", "source": {"uri": "pvc://data/x"}}],
                "workspace": {"claimName": "w"},
                "output": {"adapter": {"uri": "pvc://adapters/x"}},
            },
            "status": status,
        }
    )


def select(*jobs: LoRATrainingJob) -> Selection:
    return select_adapters(model_server(**SERVER), jobs)


def names(selection: Selection) -> list[str]:
    return [spec.name for spec in selection.adapters]


def test_published_jobs_are_served_under_their_names() -> None:
    selection = select(job("late", published=2), job("early", published=1), job("never", published=None))
    assert names(selection) == ["early", "late"]
    assert [spec.training_job_ref.name for spec in selection.adapters if spec.training_job_ref] == ["early", "late"]
    assert not any(spec.required for spec in selection.adapters)
    assert selection.refused == []


def test_job_that_the_server_names_itself_is_not_selected_again() -> None:
    assert select(job("own")) == Selection(adapters=[], refused=[])


def test_name_that_is_taken_is_told_with_who_has_it() -> None:
    selection = select(job("named"), job("prod"), job("base"), job("free"), job("prod", published=None))
    assert names(selection) == ["free"]
    assert {one.name: (one.reason, one.message.split(" has the name of ")[1]) for one in selection.refused} == {
        "named": (Reason.NAME_CONFLICT, "spec.adapters[named]; rename that, or take the label away"),
        "prod": (Reason.NAME_CONFLICT, "spec.aliases[prod]; rename that, or take the label away"),
        "base": (Reason.NAME_CONFLICT, "spec.model.servedName; rename that, or take the label away"),
    }


def test_those_published_first_stay_where_there_are_too_many() -> None:
    selection = select(*(job(f"j{number:02}", published=59 - number // 2) for number in range(64)))
    assert len(selection.adapters) == 62
    assert {one.name for one in selection.refused} == {"j00", "j01"}
    assert {one.reason for one in selection.refused} == {Reason.TOO_MANY_ADAPTERS}
