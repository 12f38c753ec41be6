"""Trials of real Harbor runs become rows that the trainer's own reader takes."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import RecordingReporter, obedient, trial_folder
from whetstone_agent.harness import EnvironmentChoice
from whetstone_agent.run import run_benchmark
from whetstone_api.benchmark_collect import Collected
from whetstone_api.jobs import BenchmarkConfig, DatasetFile
from whetstone_api.training_preference import PreferenceSpec
from whetstone_artifacts.data.pairs import fork
from whetstone_artifacts.episodes import from_atif
from whetstone_trainer.dataset import Row, read_rows

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]
BOTH = {"sft": {}, "preference": {}}


async def collected(config: BenchmarkConfig, environment: EnvironmentChoice) -> Collected:
    report = await run_benchmark(config, RecordingReporter(), environment)  # type: ignore[arg-type]
    return Collected.model_validate(report.result["collected"])


def file_of(config: BenchmarkConfig, uri: str) -> Path:
    return Path(config.output_path) / uri.removeprefix(f"{config.output_uri}/")


def read(path: Path, preference: PreferenceSpec | None = None) -> list[Row]:
    return list(read_rows(DatasetFile(name="rows", path=str(path), field="spec.datasets[0]"), preference))


def values(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wavering() -> Callable[[list[dict[str, str]]], str]:
    """Solve a task at one attempt and not at the next; never task 3."""
    seen: dict[str, int] = {}

    def mind(messages: list[dict[str, str]]) -> str:
        asked = messages[1]["content"] if len(messages) > 1 else ""
        if len(messages) == 2:
            seen[asked] = seen.get(asked, 0) + 1
            if seen[asked] % 2 == 0 or "done_3" in asked:
                return "```bash\nls /nowhere\n```"
        return (
            obedient(messages) if messages[-1]["content"].startswith("Exit code: 0") or len(messages) == 2 else "DONE"
        )

    return mind


async def test_solved_trials_become_rows_and_pairs_that_the_trainer_reads(
    configure: Configure, local: EnvironmentChoice, model: StartModel, dataset: Path
) -> None:
    from unit.agent.conftest import write_task

    write_task(dataset, "task-0", file="done_0.txt", metadata='task_digest = "sha256:own"')
    _, url = await model(wavering())
    config = configure(serverUrl=url, attempts=2, concurrency=1, collect=BOTH)
    found = await collected(config, local)
    assert found.sft is not None
    assert found.preference is not None
    rows = read(file_of(config, found.sft.uri))
    assert (found.sft.rows, [row.reward for row in rows]) == (3, [1.0, 1.0, 1.0])
    assert [message["role"] for message in rows[0].messages] == ["system", "user", "assistant", "user", "assistant"]
    assert "touch done_0.txt" in rows[0].messages[2]["content"]
    tasks = json.loads((Path(config.output_path) / "results.json").read_text())["tasks"]
    assert [row.task for row in rows] == ["sha256:own", tasks[1]["digest"], tasks[2]["digest"]]
    pairs = read(file_of(config, found.preference.uri), PreferenceSpec.model_validate({"granularity": "Trajectory"}))
    assert found.preference.rows == len(pairs) == 3
    pair = pairs[0].pair
    assert pair is not None
    assert [message["role"] for message in pair.prompt] == ["system", "user"]
    assert "touch done_0.txt" in pair.chosen[0]["content"]
    assert "ls /nowhere" in pair.rejected[0]["content"]


async def test_what_is_there_is_told_and_other_settings_have_another_place(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(obedient)
    first = configure(serverUrl=url, collect={"sft": {}})
    told = await collected(first, local)
    assert await collected(first, local) == told
    other = await collected(configure(serverUrl=url, collect={"sft": {"per": "Turn"}}), local)
    assert told.sft is not None
    assert other.sft is not None
    assert (told.sft.rows, other.sft.rows) == (4, 8)
    assert file_of(first, told.sft.uri).exists()
    lengths = [len(row["messages"]) for row in values(file_of(first, other.sft.uri))]
    assert lengths == [3, 5] * 4


async def test_bounds_of_reward_and_number_hold(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(wavering())
    config = configure(serverUrl=url, attempts=2, concurrency=1, collect={"sft": {"minimumReward": "0"}})
    every = await collected(config, local)
    same = {"serverUrl": url, "attempts": 2, "concurrency": 1}
    best = await collected(configure(**same, collect={"sft": {"trialsPerTask": 1}}), local)
    none = await collected(configure(**same, collect={"preference": {"minimumDifference": "1.5"}}), local)
    assert every.sft is not None
    assert best.sft is not None
    assert none.preference is not None
    assert (every.sft.rows, best.sft.rows, none.preference.rows) == (8, 3, 0)


async def test_void_trials_are_never_learned_from(
    configure: Configure, local: EnvironmentChoice, model: StartModel
) -> None:
    _, url = await model(obedient)
    config = configure(serverUrl=url, collect={"sft": {}})
    first = await collected(config, local)
    assert first.sft is not None
    result = trial_folder(config, "task-1") / "result.json"
    data = json.loads(result.read_text())
    data["exception_info"] = {"exception_type": "SandboxLostError"}
    result.write_text(json.dumps(data))
    file_of(config, first.sft.uri).unlink()
    file_of(config, f"{config.output_uri}/results.json").unlink()
    # The void trial runs again; what it had said before is in no row.
    again = await collected(config, local)
    assert again.sft is not None
    names = {row["trial"] for row in values(file_of(config, again.sft.uri))}
    assert data["trial_name"] not in names
    assert len(names) == 4


ATIF = [
    {"step_id": 1, "source": "system", "message": "s"},
    {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "find it"}]},
    {
        "step_id": 3,
        "source": "agent",
        "message": "",
        "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
        "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]},
    },
    {"step_id": 4, "source": "agent", "message": "wait", "observation": {"results": [{"content": "still"}]}},
    {"step_id": 5, "source": "agent", "message": "it is a.txt"},
]


def test_tool_calls_of_a_trajectory_stay_calls(tmp_path: Path) -> None:
    messages = from_atif(ATIF)
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "tool", "assistant", "user", "assistant")
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    row = read(path)[0]
    assert row.messages[2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": {"command": "ls"}}
    assert row.messages[3]["content"] == "a.txt"


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        (["u:q", "a:x"], ["u:q", "a:y"], 1),
        (["u:q", "a:x", "u:r1", "a:y"], ["u:q", "a:x", "u:r2", "a:z"], 1),
        (["u:q", "a:x", "u:r", "a:y"], ["u:q", "a:x", "u:r", "a:z"], 3),
        (["u:q", "a:x", "u:r", "a:y"], ["u:q", "a:x"], None),
        (["u:q", "a:x"], ["u:p", "a:x"], None),
    ],
)
def test_conversations_part_at_a_turn_of_the_assistant(one: list[str], other: list[str], place: int | None) -> None:
    roles = {"u": "user", "a": "assistant"}
    sides = [[{"role": roles[text[0]], "content": text[2:]} for text in side] for side in (one, other)]
    assert fork(*sides) == place
