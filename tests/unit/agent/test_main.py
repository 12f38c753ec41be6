"""Exit codes and the termination message, with the real program."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from whetstone_agent.__main__ import main
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR, BenchmarkConfig
from whetstone_api.reports import Outcome, TerminationReport


def run(config: BenchmarkConfig, folder: Path) -> tuple[int, TerminationReport]:
    path = folder / "config.json"
    path.write_text(config.to_json())
    code = main(["--config", str(path), "--termination", str(folder / "termination")])
    return code, TerminationReport.model_validate_json((folder / "termination").read_bytes())


def test_wrong_tasks_are_a_user_error(configure: Callable[..., BenchmarkConfig], dataset: Path, tmp_path: Path) -> None:
    (dataset / "task-0" / "tests" / "test.sh").unlink()
    code, report = run(configure(), tmp_path)
    assert code == EXIT_USER_ERROR
    assert (report.outcome, report.reason) == (Outcome.FAILED, "TasksInvalid")


def test_results_of_another_recipe_are_never_overwritten(
    configure: Callable[..., BenchmarkConfig], tmp_path: Path
) -> None:
    config = configure(agent={"name": "nop"})
    output = Path(config.output_path)
    output.mkdir(parents=True)
    (output / "results.json").write_text("{}")
    code, report = run(config, tmp_path)
    assert code == EXIT_USER_ERROR
    assert report.reason == "OutputOccupied"
    assert (output / "results.json").read_text() == "{}"


def test_a_config_that_cannot_be_read_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    arguments = ["--config", str(tmp_path / "config.json"), "--termination", str(tmp_path / "t")]
    assert main(arguments) == EXIT_USER_ERROR


def test_sigterm_asks_for_another_try_and_counts_as_no_failure(
    configure: Callable[..., BenchmarkConfig], tmp_path: Path
) -> None:
    """The model server does not answer, so the runner waits for it when the signal comes."""
    path = tmp_path / "config.json"
    path.write_text(configure().to_json())
    program = (
        "import sys\n"
        "from whetstone_agent import run\n"
        "from whetstone_agent.harness import EnvironmentChoice\n"
        "run.EnvironmentChoice = lambda: EnvironmentChoice(import_path='no.such:One', options={})\n"
        "check = run.check_target\n"
        "async def told(**arguments):\n"
        "    print('waiting', flush=True)\n"
        "    await check(**arguments)\n"
        "run.check_target = told\n"
        "from whetstone_agent.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program, "--config", str(path), "--termination", str(tmp_path / "termination")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"waiting\n"
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(timeout=60) == EXIT_STOPPED
    runner.stdout.close()
    report = json.loads((tmp_path / "termination").read_text())
    assert report["outcome"] == "Retry"
    assert "stopped" in report["message"]
