"""The Jobs of examples/data-job on the node, in a namespace that takes restricted pods only."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.data_rows import asked, write_rows
from support.loop import Seeded
from support.stand_in_teacher import StandInTeacher, teaching
from support.waiting import eventually
from unit.data.test_data_expand import Mind
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo.kube import Kube
from whetstone_dev.places import CHECKOUT

pytestmark = pytest.mark.cluster
JOB_SECONDS = 150.0
SEEDS = 12


@pytest.fixture
def place(kube: Kube) -> Iterator[Seeded]:
    """A namespace that refuses all but restricted pods, with the claim of the examples and rows in it; no operator."""
    namespace = f"test-{secrets.token_hex(4)}"
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": label}})
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    kube.apply(claim, namespace=namespace)
    seeded = Seeded(kube=kube, namespace=namespace)
    rows = [asked(f"How many {number} are there in {number} times {number + 7}?") for number in range(SEEDS)]
    write_rows(seeded.host_folder("data") / "seeds.jsonl", rows)
    yield seeded
    kube.delete("v1", "Namespace", name=namespace)


@pytest.fixture
def teacher() -> Iterator[StandInTeacher]:
    """A teacher that pods reach."""
    with teaching(Mind(), host=Cluster().ranges.host()) as found:
        yield found


def example(name: str, image: str, teacher: StandInTeacher | None = None) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((CHECKOUT / "examples" / "data-job" / name).read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = image
    if teacher is not None:
        container["args"] = [container["args"][0].replace("http://teacher/v1", teacher.url)]
    return job


def wait_ended(place: Seeded, name: str) -> str:
    """Wait for the end of a Job and return how it ended."""

    def ended() -> str | None:
        job = place.kube.get("batch/v1", "Job", name=name, namespace=place.namespace)
        conditions = (job or {}).get("status", {}).get("conditions", [])
        return next((one["type"] for one in conditions if one["type"] in ("Complete", "Failed")), None)

    return eventually(ended, what=f"the end of Job {name}", seconds=JOB_SECONDS)


def log(place: Seeded, job: str) -> str:
    pods = place.kube.list("v1", "Pod", namespace=place.namespace, labels=f"batch.kubernetes.io/job-name={job}")
    name = pods[-1]["metadata"]["name"]
    return place.kube.logs(namespace=place.namespace, pod=name, container="whetstone", lines=100)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_are_checked_divided_and_expanded_by_jobs(
    place: Seeded, images: dict[str, str], teacher: StandInTeacher
) -> None:
    place.kube.apply(example("check.yaml", images["benchmark"]), namespace=place.namespace)
    assert wait_ended(place, "check-rows") == "Complete", log(place, "check-rows")
    folder = place.host_folder("data")
    train, test = (rows(folder / "divided" / f"{name}.jsonl") for name in ("train", "test"))
    assert len(train) + len(test) == SEEDS
    place.kube.apply(example("expand.yaml", images["benchmark"], teacher), namespace=place.namespace)
    assert wait_ended(place, "expand-rows") == "Complete", log(place, "expand-rows")
    assert len(rows(folder / "expanded" / "rows.jsonl")) == 10 * len(train)
    assert set(teacher.asked.values()) == {1}
    assert "0 errors" in log(place, "expand-rows")


def test_a_wrong_row_fails_the_job_and_its_log_says_which(place: Seeded, images: dict[str, str]) -> None:
    with (place.host_folder("data") / "seeds.jsonl").open("a") as stream:
        stream.write('{"messages": [{"role": "human", "content": "q"}]}\n')
    place.kube.apply(example("check.yaml", images["benchmark"]), namespace=place.namespace)
    assert wait_ended(place, "check-rows") == "Failed"
    assert f"row {SEEDS + 1}: messages[0].role is 'human'" in log(place, "check-rows")
    assert not (place.host_folder("data") / "divided").exists()
