"""What goes wrong around an agent ends a trial void, or the run without a score: never as the model's failure.

Real Harbor, real verifiers, a fake model server that misbehaves, and local processes in place of pods.
"""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from unit.agent.conftest import write_task
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import RecordingReporter, artifact_of, obedient, run
from whetstone_agent.__main__ import main
from whetstone_agent.agents.absence import Absence
from whetstone_agent.agents.door import Door
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.preflight import check_target
from whetstone_agent.run import run_benchmark
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import TerminationReport
from whetstone_api.vocabulary import Reason

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for a broken server as long as in a real run."""
    monkeypatch.setitem(Door.__init__.__kwdefaults__, "request_seconds", 0.5)
    monkeypatch.setitem(Absence.__init__.__kwdefaults__, "pause_seconds", 0.01)
    monkeypatch.setattr("whetstone_agent.agents.doorway.PAUSES_SECONDS", (0.01,))
    monkeypatch.setattr("whetstone_agent.harness.VOID_RETRIES", 0)


def fail_in(fake: FakeModel, task: str, *statuses: int) -> None:
    """Let the server answer the first calls of one task so."""
    left = list(statuses)

    def mind(messages: list[dict[str, str]]) -> str:
        if task in messages[-1]["content"] and left:
            fake.faults, left[:] = left[1:], []
        return obedient(messages)

    fake.mind = mind


async def test_server_that_restarts_in_the_middle_costs_nothing(
    configure: Configure, local: EnvironmentChoice, model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone_agent.agents.doorway.PAUSES_SECONDS", (0.01, 0.01, 0.01))
    fake, url = await model(obedient)
    fake.faults = [503, 503, 503]
    report = await run(configure(serverUrl=url), local)
    assert (report.result["results"]["mean"], report.result["results"]["void"]) == ("1", 0)


async def test_server_that_is_away_for_longer_than_a_call_is_tried_costs_no_trial(
    configure: Configure, local: EnvironmentChoice, model: StartModel, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone_agent.harness.VOID_RETRIES", 1)
    fake, url = await model(obedient)

    def leave(messages: list[dict[str, str]]) -> str:
        if "done_1" in messages[-1]["content"]:
            fake.away, fake.mind = 5, obedient
        return obedient(messages)

    fake.mind = leave
    report = await run(configure(serverUrl=url, concurrency=1), local)
    assert (report.result["results"]["mean"], report.result["results"]["void"]) == ("1", 0)
    # What missed it are the call that failed and its one new try.
    assert (fake.away, fake.missed) == (0, 2)


@pytest.mark.parametrize("fault", ["broken", "away"])
async def test_server_that_fails_for_good_leaves_no_score(
    configure: Configure,
    local: EnvironmentChoice,
    model: StartModel,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    fake, url = await model(obedient)
    monkeypatch.setitem(check_target.__kwdefaults__, "patience_seconds", 0.0)
    monkeypatch.setitem(Absence.__init__.__kwdefaults__, "patience_seconds", 0.5)

    def break_down(messages: list[dict[str, str]]) -> str:
        if fault == "broken":
            fake.faults = [500] * 1000
        else:
            fake.away = 100_000
        return obedient(messages)

    config = configure(serverUrl=url, concurrency=1)
    fake.mind = lambda messages: break_down(messages) if "done_0" in messages[-1]["content"] else obedient(messages)
    with pytest.raises(RunFailure) as failure:
        await run(config, local)
    assert failure.value.reason is Reason.REFERENCE_NOT_READY
    assert not (Path(config.output_path) / "results.json").exists()
    fake.faults, fake.away, fake.mind = [], 0, obedient
    report = await run(config, local)
    assert (report.result["results"]["mean"], report.result["results"]["void"]) == ("1", 0)


async def test_server_that_hangs_makes_trials_void(
    configure: Configure, local: EnvironmentChoice, model: StartModel, impatient: None
) -> None:
    fake, url = await model(obedient)
    real = fake._chat

    async def chat(request: object) -> object:
        body = await request.json()  # type: ignore[attr-defined]
        if "done_1" in str(body["messages"][-1]["content"]):
            await asyncio.sleep(30)
        return await real(request)  # type: ignore[arg-type]

    fake._chat = chat  # type: ignore[method-assign, assignment]
    fake, url = fake, str((await fake.start()).make_url("/v1"))
    config = configure(serverUrl=url)
    report = await run(config, local)
    assert (report.result["results"]["mean"], report.result["results"]["void"]) == ("1", 1)
    errors = {task.task: task.trials[0].error for task in artifact_of(config).tasks}
    assert errors["task-1"] == "ModelUnavailableError"


@pytest.mark.parametrize("limit", ["task", "budget"])
async def test_server_that_turns_slow_makes_trials_void_that_run_out_of_time(
    configure: Configure,
    local: EnvironmentChoice,
    model: StartModel,
    dataset: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    monkeypatch.setattr("whetstone_agent.agents.pace.START_SECONDS", 0.1)
    seconds = 4
    fake, _ = await model(obedient)
    real, slow = fake._chat, asyncio.Event()

    async def chat(request: object) -> object:
        body = await request.json()  # type: ignore[attr-defined]
        if "done_9" in str(body["messages"]):
            await slow.wait()
        return await real(request)  # type: ignore[arg-type]

    fake._chat = chat  # type: ignore[method-assign, assignment]
    url = str((await fake.start()).make_url("/v1"))
    folder = write_task(dataset, "task-9", file="done_9.txt")
    agent: dict[str, object] = {"name": "whetstone", "parameters": {"maxTurns": 3, "maxTokens": 3}}
    if limit == "task":
        text = (
            (folder / "task.toml")
            .read_text()
            .replace("[agent]\ntimeout_sec = 120", f"[agent]\ntimeout_sec = {seconds}")
        )
        (folder / "task.toml").write_text(text)
    else:
        agent["budget"] = {"wallClockSeconds": seconds}
    config = configure(serverUrl=url, agent=agent, concurrency=1)
    monkeypatch.setattr("whetstone_agent.harness.VOID_RETRIES", 0)
    results = (await run(config, local)).result["results"]
    slow.set()
    assert (results["mean"], results["void"], results["timeouts"]) == ("1", 1, 0)
    [trial] = artifact_of(config).tasks[-1].trials
    assert (trial.reward, trial.error, trial.timed_out) == (None, "ModelSlowError", limit == "task")


async def test_model_that_goes_away_in_the_middle_ends_the_run(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    fake, url = await model(obedient)

    def unload(messages: list[dict[str, str]]) -> str:
        if "done_2" in messages[-1]["content"]:
            fake.name = "other--00000000"
        return obedient(messages)

    fake.mind = unload
    config = configure(serverUrl=url, concurrency=1)
    with pytest.raises(RunFailure) as failure:
        await run(config, local)
    assert failure.value.reason is Reason.TARGET_CHANGED
    assert not (Path(config.output_path) / "results.json").exists()


@pytest.mark.parametrize(
    ("output", "void"),
    [
        ("curl: (6) Could not resolve host: astral.sh\\nuvx: command not found", True),
        ("E: Unable to locate package tmux", True),
        ("bash: line 3: pytest: command not found", True),
        ("FAILED tests.py - AssertionError\\nCould not resolve host\\n1 failed in 0.1s", False),
        ("the file is not there", False),
    ],
)
async def test_verifier_that_cannot_install_grades_nothing(
    configure: Configure, local: EnvironmentChoice, dataset: Path, output: str, void: bool
) -> None:
    folder = write_task(dataset, "offline")
    script = f'printf "{output}\\n"\necho 0 >"$SANDBOX/logs/verifier/reward.txt"\n'
    (folder / "tests" / "test.sh").write_text(script)
    config = configure(agent={"name": "oracle"})
    report = await run(config, local)
    assert report.result["results"]["void"] == (1 if void else 0)
    [trial] = next(task for task in artifact_of(config).tasks if task.task == "offline").trials
    assert (trial.reward, trial.error) == ((None, "VerifierSetupError") if void else (0, None))


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[Path]:
    """A volume with hardly any room."""
    place = tmp_path / "tight"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", str(place)], check=False)
    if done.returncode:
        pytest.skip("a volume cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_volume_is_told_and_leaves_no_score(configure: Configure, tight: Path, tmp_path: Path) -> None:
    config = configure(agent={"name": "oracle"}, outputPath=str(tight / "run"))
    path, told = tmp_path / "config.json", tmp_path / "termination"
    path.write_text(config.to_json())

    async def local_run(config: BenchmarkConfig, _: object) -> TerminationReport:
        local = EnvironmentChoice(import_path="unit.agent.local_process:LocalProcessEnvironment", options={})
        return await run_benchmark(config, RecordingReporter(), local)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whetstone_agent.__main__.run_until_stopped", local_run)
        assert main(["--config", str(path), "--termination", str(told)]) == 1
    report = TerminationReport.model_validate_json(told.read_bytes())
    assert (report.reason, "pvc://data/results/candidate" in report.message) == ("DiskFull", True)
    assert not (tight / "run" / "results.json").exists()
