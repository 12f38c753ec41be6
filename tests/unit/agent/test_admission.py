"""Which tasks are admitted, and what is said about those that are not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.agent.conftest import write_task
from whetstone_agent.admission import admit_tasks, count_refused
from whetstone_agent.failure import RunFailure
from whetstone_agent.tasks import AdmittedTask, contaminated_tasks, pulled_images, suite_digest
from whetstone_api.benchmark_suite import HarborSuite
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason, TaskRefusal
from whetstone_artifacts.tasks.admission import Offer
from whetstone_artifacts.tasks.folder import read_task, task_folders, tasks_digest

CHECKOUT = Path(__file__).parents[3]
SHELL = CHECKOUT / "examples" / "suites" / "shell"
REFUSED = CHECKOUT / "tests" / "suites" / "refused"
NETWORK = CHECKOUT / "tests" / "suites" / "network"


def suite(*, refused: str = "Fail", images: object = None, **tasks: object) -> HarborSuite:
    fields = {"dataset": {"uri": "pvc://data/tasks"}, "tasks": tasks or None, "refused": refused, "images": images}
    return HarborSuite.model_validate(fields)


def admitted(dataset: Path, **fields: object) -> list[AdmittedTask]:
    return admit_tasks(dataset, suite(**fields)).tasks  # type: ignore[arg-type]


def test_filters_work_by_name_order(dataset: Path) -> None:
    (dataset / ".hidden").mkdir()
    (dataset / "README.md").write_text("not a task")
    names = [task.name for task in admitted(dataset, include=["task-*"], exclude=["*-1"], limit=2)]
    assert names == ["task-0", "task-2"]


def test_suite_digest_follows_content_and_not_place(dataset: Path, tmp_path: Path) -> None:
    first = suite_digest(admitted(dataset))
    moved = dataset.rename(tmp_path / "moved")
    assert suite_digest(admitted(moved)) == first
    (moved / "task-0" / "instruction.md").write_text("Something else.\n")
    assert suite_digest(admitted(moved)) != first


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
        (
            _edit("cpus = 1", 'cpus = 1\nnetwork_mode = "allowlist"\nallowed_hosts = ["*.example.com"]'),
            "*.example.com cannot be enforced",
        ),
        (_edit('docker_image = "task:1"', 'docker_image = "task:1"\ngpus = 1'), "accelerator"),
        (_edit("cpus = 1", "cpus = 1\nstorage_mb = 0"), "storage_mb = 0 is no room to work in"),
        (_edit("cpus = 1", "cpus = 1\nstorage_mb = -5"), "storage_mb = -5 is no room to work in"),
        (_edit("cpus = 1", 'cpus = "many"'), "is not a Harbor task"),
        (_edit("[verifier]", '[verifier]\nnetwork_mode = "no-network"'), "'no-network'"),
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


def test_a_task_that_says_how_much_disk_it_needs_is_run(dataset: Path) -> None:
    _edit("cpus = 1", "cpus = 1\nstorage_mb = 1")(dataset / "task-0")
    assert len(admitted(dataset)) == 4


def test_a_dataset_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(RunFailure, match=r"pvc://data/tasks"):
            admit_tasks(folder, suite())


def test_a_set_of_a_claim_is_held_to_the_digest_that_the_spec_names(dataset: Path) -> None:
    held = tasks_digest({path.name: read_task(path).digest for path in task_folders(dataset)})
    place = {"uri": "pvc://data/tasks"}
    pinned = HarborSuite.model_validate({"dataset": {**place, "digest": held}, "tasks": {"limit": 1}})
    assert [task.name for task in admit_tasks(dataset, pinned).tasks] == ["task-0"]
    (dataset / "task-3" / "instruction.md").write_text("Something else.\n")
    with pytest.raises(RunFailure, match=held) as failure:
        admit_tasks(dataset, pinned)
    assert failure.value.reason is Reason.DIGEST_MISMATCH
    assert "spec.suite.harbor.dataset (pvc://data/tasks)" in failure.value.message


def test_filters_that_leave_nothing_show_what_there_is(dataset: Path) -> None:
    with pytest.raises(RunFailure, match=r"leaves none of the 4 tasks.*task-0"):
        admit_tasks(dataset, suite(include=["tsk-*"]))


def test_contamination_goes_by_the_tasks_own_digest_or_its_files(dataset: Path) -> None:
    write_task(dataset, "named", metadata='whetstone_task_digest = "sha256:aaa"')
    tasks = admitted(dataset)
    assert contaminated_tasks(tasks, ["sha256:aaa", tasks[1].digest]) == sorted(["named", tasks[1].name])
    assert contaminated_tasks(tasks, []) == []


def test_our_own_suite_has_every_sort_of_task_and_lacks_only_images_that_a_bundle_builds() -> None:
    admission = admit_tasks(SHELL, suite(refused="Exclude"))
    tasks = {task.name: task for task in admission.tasks}
    assert len(tasks) + len(admission.refused) >= 30
    assert len({task.image for task in admission.tasks}) > 1
    assert tasks["release-steps"].steps == 3
    assert tasks["sealed-answer"].images == {"environment": "debian:trixie-slim"}
    assert {one.reason for one in admission.refused} == {TaskRefusal.IMAGE_MISSING}
    assert {one.task for one in admission.refused} == {"built-data", "built-tool", "sealed-checker"}
    assert all("whetstone bundle" in one.message for one in admission.refused)


def test_each_sort_of_refused_task_is_named_with_its_reason_and_the_others_are_run(tmp_path: Path) -> None:
    shutil.copytree(REFUSED, tmp_path / "tasks")
    write_task(tmp_path / "tasks", "good")
    admission = admit_tasks(tmp_path / "tasks", suite(refused="Exclude"))
    assert [task.name for task in admission.tasks] == ["good"]
    assert {one.task: one.reason for one in admission.refused} == {
        "accelerator": TaskRefusal.ACCELERATOR,
        "changing-network": TaskRefusal.NETWORK_MODE,
        "compose": TaskRefusal.COMPOSE,
        "mcp-server": TaskRefusal.MCP_SERVERS,
        "no-image": TaskRefusal.IMAGE_MISSING,
        "not-a-task": TaskRefusal.INVALID,
        "windows": TaskRefusal.OPERATING_SYSTEM,
    }
    counted = {one.reason: (one.count, one.names) for one in count_refused(admission.refused) or []}
    assert counted["Compose"] == (1, ["compose"])
    assert len(counted) == 7


def test_a_refused_task_fails_the_run_unless_told_otherwise_and_a_run_without_tasks_fails_always() -> None:
    with pytest.raises(RunFailure, match=r"refused: Exclude runs without such tasks"):
        admit_tasks(REFUSED, suite())
    with pytest.raises(RunFailure, match=r"no task is left, all 7 are refused"):
        admit_tasks(REFUSED, suite(refused="Exclude"))


def test_the_network_of_a_task_must_be_one_that_the_sandbox_enforces() -> None:
    assert len(admit_tasks(NETWORK, suite()).tasks) == 2
    refused = admit_tasks(NETWORK, suite(refused="Exclude"), Offer(network_modes=frozenset({"no-network"}))).refused
    assert [(one.task, one.reason) for one in refused] == [("allowlist", TaskRefusal.NETWORK_MODE)]
    with pytest.raises(RunFailure, match=r"all 2 are refused"):
        admit_tasks(NETWORK, suite(refused="Exclude"), Offer())


@pytest.mark.parametrize(
    ("image", "images", "pulled"),
    [
        ("task:1", {"prefix": "reg:5000/mirror"}, "reg:5000/mirror/library/task:1"),
        ("docker.io/task:1", {"prefix": "reg/m"}, "reg/m/library/task:1"),
        ("docker.io/team/task:1", {"prefix": "reg/m"}, "reg/m/team/task:1"),
        ("ghcr.io/team/task:1", {"prefix": "reg/m"}, "reg/m/ghcr.io/team/task:1"),
        ("reg/m/task:1", {"prefix": "reg/m"}, "reg/m/task:1"),
        ("task:1", {"prefix": "reg/m", "map": {"task:1": "other:2"}}, "other:2"),
        ("task:1", {"map": {"task": "other:2"}}, "task:1"),
    ],
)
def test_images_are_pulled_from_where_the_run_says(dataset: Path, image: str, images: object, pulled: str) -> None:
    _edit('"task:1"', f'"{image}"')(dataset / "task-0")
    tasks = admitted(dataset, include=["task-0"], images=images)
    assert tasks[0].image == pulled
    assert pulled_images(tasks) == {str(dataset / "task-0" / "environment"): pulled}
    assert suite_digest(tasks) == suite_digest(admitted(dataset, include=["task-0"]))


def test_the_images_that_a_bundle_names_are_pulled(tmp_path: Path) -> None:
    source, built = SHELL / "built-tool", "reg/tasks:built-tool-0123"
    shutil.copytree(source, tmp_path / "tasks" / "built-tool")
    image = {"task": "built-tool", "folder": "environment", "reference": built, "origin": "Built"}
    about = {"digest": "d", "tasks": {}, "images": [image], "provenance": {"source": "s"}}
    (tmp_path / "bundle.json").write_text(json.dumps(about))
    assert admitted(tmp_path)[0].image == built
    assert admitted(tmp_path)[0].mapped == {}
    assert admitted(tmp_path, images={"map": {built: "other:2"}})[0].image == "other:2"
    mapped = {**image, "image": "debian", "reference": "other:3", "origin": "Map"}
    (tmp_path / "bundle.json").write_text(json.dumps({**about, "images": [mapped]}))
    assert admitted(tmp_path)[0].mapped == {"debian": "other:3"}
    shutil.copytree(SHELL / "hello-file", tmp_path / "tasks" / "hello-file")
    prefixed = {**image, "task": "hello-file", "image": "debian:trixie-slim", "reference": "reg/debian:1"}
    (tmp_path / "bundle.json").write_text(json.dumps({**about, "images": [{**prefixed, "origin": "Prefix"}]}))
    for images, pulled in ((None, "reg/debian:1"), ({"map": {"debian:trixie-slim": "other:4"}}, "other:4")):
        (task,) = admitted(tmp_path, images=images, include=["hello-file"])
        assert task.image == pulled
    (tmp_path / "bundle.json").write_text("{}")
    with pytest.raises(RunFailure, match=r"is no bundle"):
        admitted(tmp_path)
