"""The demo's tasks can be solved, are not solved by themselves, and none is in both splits."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from whetstone_dev.tasks import (
    FAMILIES,
    FINISHED,
    POOLS,
    SYSTEM_PROMPT,
    Split,
    Task,
    benchmark_tasks,
    check_script,
    observation,
    training_rows,
    training_tasks,
)
from whetstone_dev.tasks.__main__ import main

SEEDS = (1, 2)
ONE_OF_EACH = [*training_tasks(3, len(FAMILIES)), *benchmark_tasks(3, len(FAMILIES))]


def _place_files(task: Task, folder: Path) -> None:
    for path, text in task.files.items():
        (folder / path).write_text(text)


def _passes(task: Task, folder: Path) -> bool:
    return subprocess.run(["sh", "-c", check_script(task)], cwd=folder, capture_output=True).returncode == 0


@pytest.mark.parametrize("task", ONE_OF_EACH, ids=lambda task: task.name)
def test_reference_solution_solves_the_task_and_prints_what_the_row_says(task: Task, tmp_path: Path) -> None:
    _place_files(task, tmp_path)
    for step in task.steps:
        assert not _passes(task, tmp_path), "solved before the last step"
        run = subprocess.run(["bash", "-c", step.command], cwd=tmp_path, capture_output=True, text=True)
        assert (run.returncode, run.stderr, run.stdout.rstrip("\n")) == (0, "", step.output)
    assert _passes(task, tmp_path)


@pytest.mark.parametrize("task", ONE_OF_EACH, ids=lambda task: task.name)
def test_emptying_the_folder_solves_nothing(task: Task, tmp_path: Path) -> None:
    assert not _passes(task, tmp_path)


def test_deleting_more_than_asked_does_not_count(tmp_path: Path) -> None:
    task = next(task for task in ONE_OF_EACH if task.family.name == "delete-file")
    _place_files(task, tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    assert not _passes(task, tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_training_and_benchmark_share_no_task_no_parameters_and_no_instruction(seed: int) -> None:
    training, benchmark = training_tasks(seed, 600), benchmark_tasks(seed, 150)

    def parameters(task: Task) -> object:
        return tuple(sorted(task.parameters.items()))

    assert not {task.digest for task in training} & {task.digest for task in benchmark}
    assert not {parameters(task) for task in training} & {parameters(task) for task in benchmark}
    assert not {task.instruction for task in training} & {task.instruction for task in benchmark}
    assert len({task.digest for task in training}) == 600
    assert len({task.name for task in benchmark}) == 150


def test_no_word_number_or_wording_is_in_both_splits() -> None:
    training, benchmark = POOLS[Split.TRAINING], POOLS[Split.BENCHMARK]
    assert not {*training.names, *training.words} & {*benchmark.names, *benchmark.words}
    assert not {*training.counts, *training.cuts} & {*benchmark.counts, *benchmark.cuts}
    for family in FAMILIES:
        assert not set(family.wordings) & set(family.held_out), family.name


def test_there_are_a_dozen_families_and_even_a_small_benchmark_has_two_step_tasks() -> None:
    assert len({family.name for family in FAMILIES}) >= 12
    assert sum(len(task.steps) > 1 for task in benchmark_tasks(1, 8)) >= 2


def test_same_seed_gives_same_rows_and_another_seed_gives_others() -> None:
    assert training_rows(5, 45) == training_rows(5, 45)
    assert training_rows(5, 45) != training_rows(6, 45)


def test_row_is_an_episode_in_the_agents_words() -> None:
    for row in training_rows(1, 30):
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["system", "user", *["assistant", "user"] * ((len(roles) - 3) // 2), "assistant"]
        assert len(roles) in (5, 7)
        assert row["messages"][0]["content"] == SYSTEM_PROMPT
        assert row["messages"][2]["content"].startswith("```bash\n")
        assert row["messages"][3]["content"].startswith("Exit code: 0\nOutput:")
        assert row["messages"][-1]["content"] == FINISHED
        assert row["task"].startswith("sha256:")


def test_long_output_is_cut_for_the_model() -> None:
    assert observation(2, "x" * 900) == "Exit code: 2\nOutput:\n" + "x" * 400


def test_command_writes_rows_and_harbor_tasks_and_can_run_again(tmp_path: Path) -> None:
    arguments = [
        "--out",
        str(tmp_path),
        "--train-rows",
        "30",
        "--benchmark-tasks",
        "15",
        "--image",
        "reg/task:1",
    ]
    main(arguments)
    first = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    main(arguments)
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == first
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["tasks", "train.jsonl"]

    assert [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()] == training_rows(1, 30)
    folders = sorted((tmp_path / "tasks").iterdir())
    assert [folder.name for folder in folders] == sorted(task.name for task in benchmark_tasks(1, 15))
    for folder in folders:
        config = tomllib.loads((folder / "task.toml").read_text())
        assert config["schema_version"] == "1.4"
        assert config["environment"]["docker_image"] == "reg/task:1"
        assert config["metadata"]["task_digest"].startswith("sha256:")
        assert not (folder / "environment" / "Dockerfile").exists()
        for script in ("tests/test.sh", "solution/solve.sh"):
            assert subprocess.run(["bash", "-n", folder / script]).returncode == 0
            assert (folder / script).stat().st_mode & 0o111


def test_examples_send_the_system_message_of_the_training_rows() -> None:
    manifests = Path(__file__).parents[3] / "examples" / "loop" / "benchmarks.yaml"
    runs = [run for run in yaml.safe_load_all(manifests.read_text()) if run and run["kind"] == "BenchmarkRun"]
    assert len(runs) == 2
    for run in runs:
        assert run["spec"]["agent"]["parameters"]["systemPrompt"] == SYSTEM_PROMPT, run["metadata"]["name"]
