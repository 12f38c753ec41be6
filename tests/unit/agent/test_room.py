"""Tasks that ask for more than a pod of the namespace may have are refused before any pod is made."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from unit.agent.conftest import write_task
from unit.agent.test_run import artifact_of, run
from unit.agent.test_shards import trials_in
from whetstone_agent import run as run_module
from whetstone_agent.admission import admit_tasks
from whetstone_agent.environment.creation import too_large
from whetstone_agent.environment.errors import TooLargeError
from whetstone_agent.environment.room import tasks_too_large
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.request import Request
from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.vocabulary import Reason, TaskRefusal

type Configure = Callable[..., BenchmarkConfig]
LIMIT = (
    'pods "run-1" is forbidden: [maximum memory usage per Container is 1Gi, but limit is 4Gi, maximum cpu usage per'
    " Container is 1, but limit is 2]"
)
QUOTA = (
    'pods "run-1" is forbidden: exceeded quota: trials, requested: limits.memory={asked},requests.cpu=500m, used:'
    " limits.memory=1Gi,requests.cpu=1, limited: limits.memory=2Gi,requests.cpu=1500m"
)


@pytest.mark.parametrize(
    ("answer", "never"),
    [
        (LIMIT, True),
        ('pods "run-1" is forbidden: minimum cpu usage per Pod is 100m, but request is 10m', True),
        (QUOTA.format(asked="4Gi"), True),
        (QUOTA.format(asked="2048Mi"), False),
        (QUOTA.format(asked="1500Mi"), False),
        ('pods "run-1" is forbidden: failed quota: trials: must specify limits.memory for: main', False),
        ('pods is forbidden: User "system:serviceaccount:team:r" cannot create resource "pods"', False),
        ('pods "run-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', False),
    ],
)
def test_what_no_pod_may_have_is_told_from_what_none_may_have_now(answer: str, never: bool) -> None:
    assert too_large(answer) is never


def write_sized(dataset: Path, name: str, *, memory: int, verifier: int | None = None) -> None:
    folder = write_task(dataset, name)
    text = (folder / "task.toml").read_text() + f"memory_mb = {memory}\n"
    if verifier is not None:
        text += f'[verifier.environment]\ndocker_image = "v:1"\nmemory_mb = {verifier}\n'
    (folder / "task.toml").write_text(text)


async def test_every_pod_of_a_task_is_asked_about_and_alike_ones_once(dataset: Path, configure: Configure) -> None:
    write_sized(dataset, "huge", memory=4096)
    write_sized(dataset, "huge-too", memory=4096)
    write_sized(dataset, "judged-by-a-huge-one", memory=512, verifier=8192)
    asked: list[Mapping[str, str]] = []

    async def ask(resources: Mapping[str, str]) -> None:
        asked.append(resources)
        if int(resources.get("memory", "0Mi").removesuffix("Mi")) > 1024:
            raise TooLargeError(LIMIT)

    refused = await tasks_too_large(admit_tasks(dataset, configure().suite).tasks, ask)
    assert [(one.task, one.reason) for one in refused] == [
        ("huge", TaskRefusal.RESOURCES),
        ("huge-too", TaskRefusal.RESOURCES),
        ("judged-by-a-huge-one", TaskRefusal.RESOURCES),
    ]
    assert "asks in [environment] for more" in refused[0].message
    assert "asks in [verifier.environment] for more" in refused[2].message
    assert LIMIT in refused[0].message
    assert "spec.suite.harbor.trialResources" in refused[0].message
    memory = [one.get("memory") for one in asked]
    assert memory == ["4096Mi", "512Mi", "8192Mi", None]


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> EnvironmentChoice:
    """Local processes that take themselves for a cluster in which `task-1` has no room."""

    async def no_room(request: Request, settings: dict[str, Any]) -> list[RefusedTask]:
        names = [task.name for task in request.own_tasks if task.name == "task-1"]
        return [RefusedTask(task=name, reason=TaskRefusal.RESOURCES, message=LIMIT) for name in names]

    path = "unit.agent.local_process:LocalProcessEnvironment"
    monkeypatch.setattr(run_module, "ENVIRONMENT", path)
    monkeypatch.setattr(run_module, "prepare_cluster", no_room)
    return EnvironmentChoice(import_path=path, options={})


def suite(**fields: Any) -> dict[str, Any]:
    return {"dataset": {"uri": "pvc://data/tasks"}, **fields}


async def test_a_task_without_room_fails_the_run_before_its_first_trial(
    configure: Configure, cramped: EnvironmentChoice
) -> None:
    config = configure(agent={"name": "nop"})
    with pytest.raises(RunFailure) as failure:
        await run(config, cramped)
    assert failure.value.reason is Reason.TASKS_INVALID
    assert "task 'task-1'" in failure.value.message
    assert "maximum memory usage per Container is 1Gi" in failure.value.message
    assert trials_in(config) == {}


@pytest.mark.parametrize("oracle", [None, {}])
async def test_a_task_without_room_is_left_out_and_named(
    configure: Configure, cramped: EnvironmentChoice, tmp_path: Path, oracle: dict[str, Any] | None
) -> None:
    places = {"verdictsPath": str(tmp_path / "verdicts"), "verdictsUri": "pvc://data/verdicts"}
    verdicts = {} if oracle is None else places
    config = configure(agent={"name": "nop"}, suite=suite(refused="Exclude", oracle=oracle), **verdicts)
    results = (await run(config, cramped)).result["results"]
    assert (results["tasks"], results["trials"], results["void"]) == (3, 3, 0)
    assert results["refused"] == [{"reason": "Resources", "count": 1, "names": ["task-1"]}]
    assert [one.task for one in artifact_of(config).refused] == ["task-1"]


async def test_a_task_that_has_room_again_is_run_by_the_next_try(
    configure: Configure, cramped: EnvironmentChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(agent={"name": "nop"}, suite=suite(refused="Exclude"))
    await run(config, cramped)
    (Path(config.output_path) / "results.json").unlink()

    async def room(request: Request, settings: dict[str, Any]) -> list[RefusedTask]:
        return []

    monkeypatch.setattr(run_module, "prepare_cluster", room)
    results = (await run(config, cramped)).result["results"]
    assert (results["tasks"], results.get("refused")) == (4, None)
