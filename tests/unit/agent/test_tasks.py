"""Which tasks are admitted, and what is said about those that are not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from unit.agent.conftest import write_task
from whetstone_agent.failure import RunFailure
from whetstone_agent.tasks import admit_tasks, contaminated_tasks, suite_digest
from whetstone_api.benchmark_suite import HarborSuite
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason


def suite(**tasks: object) -> HarborSuite:
    return HarborSuite.model_validate({"dataset": {"uri": "pvc://data/tasks"}, "tasks": tasks or None})


def test_filters_work_by_name_order(dataset: Path) -> None:
    (dataset / ".hidden").mkdir()
    (dataset / "README.md").write_text("not a task")
    names = [task.name for task in admit_tasks(dataset, suite(include=["task-*"], exclude=["*-1"], limit=2))]
    assert names == ["task-0", "task-2"]


def test_suite_digest_follows_content_and_not_place(dataset: Path, tmp_path: Path) -> None:
    first = suite_digest(admit_tasks(dataset, suite()))
    moved = dataset.rename(tmp_path / "moved")
    assert suite_digest(admit_tasks(moved, suite())) == first
    (moved / "task-0" / "instruction.md").write_text("Something else.\n")
    assert suite_digest(admit_tasks(moved, suite())) != first


Spoil = Callable[[Path], object]


def _edit(old: str, new: str) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / "task.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "tests" / "test.sh").unlink(), "has no tests/test.sh"),
        (lambda folder: (folder / "instruction.md").unlink(), "has no instruction.md"),
        (lambda folder: (folder / "task.toml").unlink(), "has no task.toml"),
        (lambda folder: (folder / "task.toml").write_text("= ="), "task.toml cannot be read"),
        (_edit('docker_image = "task:1"', ""), "no [environment] docker_image"),
        (lambda folder: (folder / "environment" / "docker-compose.yaml").write_text("x: 1"), "docker compose"),
        (_edit('docker_image = "task:1"', 'docker_image = "task:1"\nnetwork_mode = "no-network"'), "'no-network'"),
        (_edit('docker_image = "task:1"', 'docker_image = "task:1"\ngpus = 1'), "accelerator"),
        (_edit("cpus = 1", 'cpus = "many"'), "is not a Harbor task"),
        (_edit("[verifier]", '[verifier]\nenvironment_mode = "separate"'), "environment of its own"),
    ],
)
def test_a_task_that_cannot_run_is_named_with_what_is_wrong(dataset: Path, spoil: Spoil, words: str) -> None:
    spoil(dataset / "task-2")
    with pytest.raises(RunFailure) as failure:
        admit_tasks(dataset, suite())
    assert failure.value.reason is Reason.TASKS_INVALID
    assert failure.value.outcome is Outcome.FAILED
    assert "task 'task-2'" in failure.value.message
    assert words in failure.value.message
    assert "spec.suite.harbor.dataset (pvc://data/tasks)" in failure.value.message


def test_a_dataset_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(RunFailure, match=r"pvc://data/tasks"):
            admit_tasks(folder, suite())


def test_filters_that_leave_nothing_show_what_there_is(dataset: Path) -> None:
    with pytest.raises(RunFailure, match=r"leaves none of the 4 tasks.*task-0"):
        admit_tasks(dataset, suite(include=["tsk-*"]))


def test_contamination_goes_by_the_tasks_own_digest_or_its_files(dataset: Path) -> None:
    write_task(dataset, "named", metadata='whetstone_task_digest = "sha256:aaa"')
    tasks = admit_tasks(dataset, suite())
    assert contaminated_tasks(tasks, ["sha256:aaa", tasks[1].digest]) == sorted(["named", tasks[1].name])
    assert contaminated_tasks(tasks, []) == []
