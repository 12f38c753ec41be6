"""Whole BenchmarkRuns with a `toolUse` suite: a fake model server, a real API, real files."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from unit.agent.fake_model import FakeModel, Mind
from unit.tooluse.conftest import KEY, Service, call, instance, native
from whetstone_agent.agents.absence import Absence
from whetstone_agent.failure import RunFailure
from whetstone_agent.shards import Shard
from whetstone_agent.tooluse import benchmark, measuring, services
from whetstone_agent.tooluse.api_client import ApiClient
from whetstone_agent.tooluse.benchmark import run_tool_use
from whetstone_agent.tooluse.selection import select
from whetstone_agent.tooluse.trial_agent import TrialAgent
from whetstone_agent.tooluse.trials import read_record
from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_tooluse import API_KEY_VARIABLE as TOOL_API_KEY_VARIABLE
from whetstone_api.jobs import ToolUseConfig
from whetstone_api.reports import Outcome, ProgressReport, TerminationReport
from whetstone_api.run_artifact import RunArtifact
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.data.trajectories import read_trajectories
from whetstone_artifacts.episodes import read_episodes
from whetstone_artifacts.report.page import make_page
from whetstone_artifacts.tasks.sets import folder_digest

SERVED = "fern--1a2b3c4d"
ASK = call("getEmployee", id="e1")
OTHER = call("listEmployees", team="Harbour")
RIGHT = call("FINAL", answer="ada@fern.example")
WRONG = call("FINAL", answer="nobody@fern.example")
SFT: dict[str, Any] = {"sft": {}}
type Configure = Callable[..., ToolUseConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]


class Reports:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[ProgressReport] = []

    def send(self, report: ProgressReport) -> None:
        self.reports.append(report)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let void trials be run again at once, and the API's client not wait."""
    monkeypatch.setattr(measuring, "PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(services, "ApiClient", partial(ApiClient, pauses_seconds=()))
    monkeypatch.setenv(TOOL_API_KEY_VARIABLE, KEY.removeprefix("Bearer "))


@pytest.fixture
def configure(world_folder: Path, tmp_path: Path, service: Service) -> Configure:
    """Make a configuration of a run over four instances, of which two lack the API."""
    scenarios = ["both", "only_rag"] * 2
    rows = [instance(id=f"i{number}", toolAvailability=one) for number, one in enumerate(scenarios)]
    (world_folder / "test.json").write_text(json.dumps(rows))

    def make(**fields: Any) -> ToolUseConfig:
        name = fields.pop("name", "candidate")
        suite = {
            "environment": {"uri": "pvc://data/world"},
            "instances": {"file": "test.json"},
            "protocol": "Text",
            "api": {"url": service.url, "timeoutSeconds": 1},
            **fields.pop("suite", {}),
        }
        return ToolUseConfig.model_validate(
            {
                "object": {"kind": "BenchmarkRun", "namespace": "team", "name": name, "uid": "u1"},
                "reportUrl": "http://127.0.0.1:9/none",
                "serverUrl": "http://127.0.0.1:9/v1",
                "servedName": SERVED,
                "adapter": "fern",
                "adapterDigest": "sha256:" + "1a2b3c4d" * 8,
                "toolUse": suite,
                "environmentPath": str(world_folder),
                "agent": {"parameters": {"maxTokens": 64}},
                "sampling": {"temperature": "0.5", "topP": "0.90", "seed": 7},
                "attempts": 1,
                "concurrency": 2,
                "outputPath": str(tmp_path / "results" / name),
                "outputUri": f"pvc://data/results/{name}",
                **fields,
            }
        )

    return make


@pytest.fixture
async def model() -> AsyncIterator[StartModel]:
    """Start a fake model server; gives the server's object and its base URL."""
    servers = []

    async def start(mind: Mind, **fields: Any) -> tuple[FakeModel, str]:
        fake = FakeModel(name=SERVED, mind=mind, **fields)
        server = await fake.start()
        servers.append(server)
        return fake, str(server.make_url("/v1"))

    yield start
    for server in servers:
        await server.close()


async def run(config: ToolUseConfig, shard: Shard | None = None) -> TerminationReport:
    return await run_tool_use(config, Reports(), shard)  # type: ignore[arg-type]


def artifact_of(config: ToolUseConfig) -> RunArtifact:
    return RunArtifact.model_validate_json((Path(config.output_path) / "results.json").read_bytes())


def finished(config: ToolUseConfig) -> list[Path]:
    return sorted(Path(config.output_path).glob("episodes/*/*/episode.json"))


def trial_folder(config: ToolUseConfig, instance: str) -> Path:
    return next(Path(config.output_path).glob(f"episodes/*/{instance}__*"))


def saying(*texts: str) -> Mind:
    """Return a model that says texts one after the other in each conversation."""

    def mind(messages: list[dict[str, str]]) -> str:
        said = sum(message["role"] == "assistant" for message in messages)
        text: str = texts[min(said, len(texts) - 1)]
        return text

    return mind


def collected(report: TerminationReport, config: ToolUseConfig, kind: str) -> list[dict[str, Any]]:
    told = report.result["collected"][kind]
    path = Path(config.output_path) / told["uri"].removeprefix(f"{config.output_uri}/")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert told["rows"] == len(rows)
    return rows


async def test_a_run_is_scored_by_the_model_alone(
    configure: Configure, model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "runner-key")
    fake, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url)
    report = await run(config)
    assert (report.outcome, report.reason) == (Outcome.SUCCEEDED, Reason.SUCCEEDED)
    results = report.result["results"]
    assert (results["mean"], results["tasks"], results["trials"], results["void"]) == ("0.5", 4, 4, 0)
    assert results["completionTokens"] == 4 * 2 * 3
    assert "expertSteps" not in results
    assert fake.keys == {"Bearer runner-key"}
    asked = [one for one in fake.requests if one["max_tokens"] == 64]
    assert {(one["temperature"], one["top_p"], one["seed"]) for one in asked} == {(0.5, 0.9, 7)}
    artifact = artifact_of(config)
    assert [(task.task, task.trials[0].reward) for task in artifact.tasks] == [
        *(("i0", 1.0), ("i1", 0.0), ("i2", 1.0), ("i3", 0.0))
    ]
    assert artifact.tool_use is not None
    told = {one.scenario: (one.tasks, one.mean) for one in artifact.tool_use.scenarios}
    assert told == {"both, answerable": (2, 1.0), "only_rag, not answerable": (2, 0.0)}
    assert artifact.tool_use.steps == {"Correct": 2, "Helpful": 2, "ShouldDecline": 2, "UnavailableTool": 2}
    assert artifact.tool_use.ends == {"Final": 4}


async def test_results_and_page_break_down_by_the_rungs_of_the_instances(
    configure: Configure, model: StartModel, world_folder: Path
) -> None:
    _, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url)
    rows = json.loads((world_folder / "test.json").read_text())
    before = select(config, Path(config.output_path)).tasks[0].digest
    for row, tag in zip(rows, ("nested", "none", "parallel"), strict=False):
        row["tags"] = [tag]
    (world_folder / "test.json").write_text(json.dumps(rows))
    report = await run(config)
    told = [(one["rung"], one["tasks"], one["mean"], one["success"]) for one in report.result["results"]["rungs"]]
    assert told == [("none", 1, "0", "0"), ("parallel", 1, "1", "1"), ("nested", 1, "1", "1")]
    artifact = artifact_of(config)
    assert [task.tags for task in artifact.tasks] == [["nested"], ["none"], ["parallel"], []]
    # What an instance is tagged with makes no other task of it.
    assert artifact.tasks[0].digest == before
    page = (Path(config.output_path) / "report.html").read_text()
    assert "<h3>By rung of tool use</h3>" in page
    assert '<tr><td>nested</td><td class="n">1</td><td class="n">1</td><td class="n">1</td></tr>' in page


async def test_a_judge_scores_and_an_overseer_ends(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(ASK, WRONG))
    judge = FakeModel(name="j", mind=lambda _: "yes")
    server = await judge.start()
    there = str(server.make_url("/v1"))
    endpoint = {"model": "j", "url": there}
    scored = configure(serverUrl=url, scorerUrl=there, suite={"scorer": {"kind": "Judge", "judge": endpoint}})
    assert (await run(scored)).result["results"]["mean"] == "1"
    overseen = configure(name="overseen", serverUrl=url, overseerUrl=there, suite={"overseer": endpoint})
    await run(overseen)
    await server.close()
    assert {task.trials[0].end for task in artifact_of(overseen).tasks} == {"Hopeless"}
    digests = [artifact_of(one).comparability.tool_use for one in (scored, overseen)]
    assert digests[0] is not None
    assert digests[1] is not None
    assert digests[0].scorer != digests[1].scorer
    assert (digests[0].overseer is None, digests[1].overseer is None) == (True, False)


async def test_a_witness_sees_results_and_makes_another_run_of_it(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(OTHER, RIGHT))
    fake = FakeModel(name="w", mind=lambda _: "no")
    server = await fake.start()
    there = str(server.make_url("/v1"))
    expert = {"mode": "Informed", "initialLimit": 100}
    alone = configure(serverUrl=url, suite={"expert": expert})
    seen = configure(
        name="seen",
        serverUrl=url,
        witnessUrl=there,
        suite={"expert": {**expert, "witness": {"model": "w", "url": there}}},
    )
    await run(alone)
    await run(seen)
    await server.close()
    # Once to see that it says yes or no, and once for each call beside the trajectory.
    steps = artifact_of(seen).tool_use.steps
    assert len(fake.requests) == 1 + steps["Unhelpful"]
    experts = [artifact_of(one).comparability.tool_use.expert for one in (alone, seen)]
    assert experts[0] != experts[1]


async def test_a_stopped_run_keeps_what_has_ended_and_nothing_else(configure: Configure, model: StartModel) -> None:
    waiting = asyncio.Event()

    class Slow(FakeModel):
        async def _chat(self, request: web.Request) -> web.Response:
            if len(self.requests) == 2:
                waiting.set()
                await asyncio.Event().wait()
            return await super()._chat(request)

    fake = Slow(name=SERVED, mind=saying(RIGHT))
    server = await fake.start()
    config = configure(serverUrl=str(server.make_url("/v1")), concurrency=1)
    task = asyncio.create_task(run(config))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.close()
    assert [path.parent.name.partition("__")[0] for path in finished(config)] == ["i0"]
    _, url = await model(saying(RIGHT))
    assert (await run(config.model_copy(update={"server_url": url}))).result["results"]["trials"] == 4


async def test_each_attempt_has_a_seed_of_its_own(configure: Configure, model: StartModel) -> None:
    fake, url = await model(saying(RIGHT))
    config = configure(serverUrl=url, attempts=3)
    results = (await run(config)).result["results"]
    assert results["trials"] == 12
    assert {one["seed"] for one in fake.requests if one["max_tokens"] == 64} == {7, 8, 9}
    assert [one["k"] for one in results["passAtK"]] == [1, 3]


async def test_tools_are_called_by_the_models_own_template(configure: Configure, model: StartModel) -> None:
    def mind(messages: list[dict[str, str]]) -> str | dict[str, Any]:
        return "ada@fern.example" if messages[-1]["role"] == "tool" else native("getEmployee", id="e1")

    fake, url = await model(mind)
    assert (await run(configure(serverUrl=url, suite={"protocol": "Native"}))).result["results"]["mean"] == "0.5"
    assert "getEmployee" in json.dumps([one.get("tools") for one in fake.requests])


async def test_an_expert_needs_no_model_and_its_runs_become_training_rows(configure: Configure) -> None:
    config = configure(suite={"expert": {"mode": "GroundTruth"}}, collect=SFT)
    report = await run(config)
    results = report.result["results"]
    assert (results["mean"], results["expertSteps"]) == ("1", 2 * 3 + 2 * 1)
    figures = artifact_of(config).tool_use
    assert figures is not None
    assert (figures.agent_steps, figures.expert_steps) == (0, 2 * 3 + 2 * 1)
    rows = collected(report, config, "sft")
    assert len(rows) == 4
    assert rows[0]["messages"][-1]["content"] == RIGHT
    assert {row["taskName"] for row in rows} == {"i0", "i1", "i2", "i3"}
    assert all(row["task"].startswith("sha256:") for row in rows)


async def test_turns_become_rows_and_trials_of_a_task_are_limited(configure: Configure) -> None:
    expert = {"expert": {"mode": "GroundTruth"}}
    config = configure(suite=expert, collect={"sft": {"per": "Turn", "trialsPerTask": 1}}, attempts=2)
    rows = collected(await run(config), config, "sft")
    assert len(rows) == 2 * 3 + 2 * 1
    assert {row["messages"][-1]["role"] for row in rows} == {"assistant"}


async def test_steps_of_model_and_expert_become_pairs(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(call("getEmployee", id="e2"), call("getEmployee", id="e3"), RIGHT))
    expert = {"mode": "Informed", "initialLimit": 1, "recentLimit": 1, "alternates": True}
    asked = {"preference": {"pairs": "Alternates", "pairsPerTask": 100}}
    config = configure(serverUrl=url, suite={"expert": expert, "instances": {"file": "test.json", "limit": 1}})
    config = config.model_copy(update={"collect": configure(collect=asked).collect})
    report = await run(config)
    rows = collected(report, config, "preference")
    assert report.result["results"]["expertSteps"] > 0
    assert rows
    assert all(len(row["chosen"]) == len(row["rejected"]) == 1 for row in rows)
    fewer = configure(collect={"preference": {"pairs": "Alternates", "pairsPerTask": 1}}).collect
    limited = config.model_copy(update={"collect": fewer})
    again = await run(limited)
    assert again.reason == Reason.ADOPTED
    assert len(collected(again, limited, "preference")) == 1


async def test_branches_become_pairs_of_trajectories(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(call("getEmployee", id="e2"), WRONG))
    expert = {"mode": "Informed", "initialLimit": 9, "recentLimit": 9, "alternates": True, "branches": 1}
    one = {"file": "test.json", "limit": 1}
    asked = {"preference": {"pairs": "Branches", "pairsPerTask": 5}}
    config = configure(serverUrl=url, suite={"expert": expert, "instances": one}, collect=asked)
    rows = collected(await run(config), config, "preference")
    assert len(rows) == 1
    assert rows[0]["chosen"][-1]["content"] == RIGHT
    assert rows[0]["rejected"][-1]["content"] == WRONG


async def test_attempts_become_pairs(configure: Configure, model: StartModel) -> None:
    fake, url = await model(lambda _: "")
    fake.mind = lambda _: RIGHT if fake.requests[-1].get("seed") == 7 else WRONG
    one = {"file": "test.json", "limit": 1}
    config = configure(serverUrl=url, suite={"instances": one}, attempts=2, collect={"preference": {}})
    rows = collected(await run(config), config, "preference")
    assert [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows] == [(RIGHT, WRONG)]
    wanting = configure(collect={"preference": {"minimumDifference": "1.5"}}).collect
    assert collected(await run(config.model_copy(update={"collect": wanting})), config, "preference") == []


async def test_a_killed_run_goes_on_where_it_was(configure: Configure, model: StartModel) -> None:
    fake, url = await model(saying(RIGHT))
    config = configure(serverUrl=url)
    await run(config)
    (Path(config.output_path) / "results.json").unlink()
    place = trial_folder(config, "i2") / "episode.json"
    place.write_text(place.read_text()[:100])
    before = len(fake.requests)
    await run(config)
    assert len(fake.requests) - before == 2 + 1  # the target's check before and after, and one trial of one call
    assert [task.task for task in artifact_of(config).tasks] == ["i0", "i1", "i2", "i3"]


async def test_a_finished_run_is_adopted(configure: Configure, model: StartModel) -> None:
    fake, url = await model(saying(RIGHT))
    await run(configure(serverUrl=url))
    before = len(fake.requests)
    assert (await run(configure(serverUrl=url))).reason == Reason.ADOPTED
    assert len(fake.requests) == before


async def test_shards_share_the_trials_and_the_last_one_scores(configure: Configure, model: StartModel) -> None:
    fake, url = await model(saying(RIGHT))
    config = configure(serverUrl=url, shards=2)
    first = await run(config, Shard(0, 2))
    assert "shard 0 of 2" in first.message
    assert not (Path(config.output_path) / "results.json").exists()
    asked = len(fake.requests)
    last = await run(config, Shard(1, 2))
    assert last.result["results"]["trials"] == 4
    assert len(fake.requests) - asked == 2 + 2


async def test_a_trial_that_the_api_spoils_is_void_and_tried_again(
    configure: Configure, model: StartModel, service: Service
) -> None:
    _, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url)
    service.broken = "failing"
    report = await run(config)
    results = report.result["results"]
    assert (results["void"], results["mean"]) == (2, "0")
    artifact = artifact_of(config)
    assert [task.trials[0].error for task in artifact.tasks] == ["ApiUnavailable", None, "ApiUnavailable", None]
    record = read_record(trial_folder(config, "i0"))
    assert record is not None
    assert record.voids == 3
    (Path(config.output_path) / "results.json").unlink()
    service.broken = None
    assert (await run(config)).result["results"]["void"] == 0


async def test_a_server_that_is_away_for_long_costs_no_trial(
    configure: Configure, model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "PAUSES_SECONDS", ())
    monkeypatch.setitem(Absence.__init__.__kwdefaults__, "pause_seconds", 0.01)
    answer = saying(ASK, RIGHT)

    def leave(messages: list[dict[str, str]]) -> str | dict[str, Any]:
        if any(message["role"] == "assistant" for message in messages):
            fake.away, fake.mind = 20, answer
        return answer(messages)

    fake, url = await model(leave)
    config = configure(serverUrl=url, concurrency=1)
    results = (await run(config)).result["results"]
    assert (results["mean"], results["void"]) == ("0.5", 0)
    assert (fake.away, fake.missed) == (0, 1)


async def test_a_trial_that_is_void_too_often_stays_so(
    configure: Configure, model: StartModel, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "MOST_VOIDS", 3)
    _, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url)
    service.broken = "failing"
    await run(config)
    (Path(config.output_path) / "results.json").unlink()
    asked = len(service.requests)
    assert (await run(config)).result["results"]["void"] == 2
    assert len(service.requests) == asked + 1  # only whether it is there


async def test_a_trial_that_used_up_its_tokens_is_scored(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url, agent={"budget": {"tokens": 13}})
    results = (await run(config)).result["results"]
    assert (results["mean"], results["void"]) == ("0", 0)
    assert artifact_of(config).tasks[0].trials[0].end == "BudgetExceeded"


async def test_a_trial_that_used_up_its_time_is_scored(
    configure: Configure, model: StartModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = await model(saying(ASK, RIGHT))
    config = configure(serverUrl=url, agent={"budget": {"wallClockSeconds": 60}})
    ticks = iter(range(0, 100000, 61))
    monkeypatch.setattr(measuring, "TrialAgent", partial(TrialAgent, clock=lambda: float(next(ticks))))
    results = (await run(config)).result["results"]
    assert (results["timeouts"], results["void"]) == (4, 0)


async def test_a_budget_of_the_whole_run_ends_it_and_keeps_trials(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(RIGHT))
    config = configure(serverUrl=url, agent={"budget": {"runTokens": 26}}, concurrency=1)
    with pytest.raises(RunFailure, match="runTokens") as failure:
        await run(config)
    assert failure.value.reason is Reason.BUDGET_EXCEEDED
    assert len(finished(config)) == 2
    assert not (Path(config.output_path) / "results.json").exists()
    with pytest.raises(RunFailure, match="runTokens"):
        await run(config)
    assert len(finished(config)) == 2


async def test_a_budget_of_the_whole_run_is_one_for_all_shards(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(RIGHT))
    config = configure(serverUrl=url, shards=2, agent={"budget": {"runTokens": 39}}, concurrency=2)
    await run(config, Shard(0, 2))
    with pytest.raises(RunFailure, match="39 tokens used of 39"):
        await run(config, Shard(1, 2))
    assert len(finished(config)) == 3
    assert not (Path(config.output_path) / "results.json").exists()


async def test_another_version_that_answers_ends_the_run(configure: Configure, model: StartModel) -> None:
    fake, url = await model(lambda _: RIGHT)

    def mind(_: list[dict[str, str]]) -> str:
        fake.answers_as = SERVED if len(fake.requests) < 2 else "fern--00000000"
        return RIGHT

    fake.mind = mind
    with pytest.raises(RunFailure) as failure:
        await run(configure(serverUrl=url, concurrency=1))
    assert failure.value.reason is Reason.TARGET_CHANGED


async def test_runs_are_compared_and_what_differs_is_named(configure: Configure, model: StartModel) -> None:
    _, url = await model(saying(WRONG))
    before = configure(serverUrl=url, name="before")
    await run(before)
    baseline = {"baselineName": "before", "baselinePath": before.output_path}
    _, url = await model(saying(RIGHT))
    digest = "sha256:" + "2" * 64
    report = await run(configure(serverUrl=url, name="after", adapterDigest=digest, **baseline))
    assert report.result["comparison"]["difference"] == "0.5"
    other = configure(serverUrl=url, name="other", suite={"horizon": 3, "tools": {"topK": 5}}, **baseline)
    compared = (await run(other)).result["comparison"]
    assert compared["verdict"] == "NotComparable"
    assert "horizon" in compared["message"]
    assert "suite.toolUse.tools" in compared["message"]


async def test_addresses_make_no_other_recipe_and_settings_do(configure: Configure, service: Service) -> None:
    expert = {"expert": {"mode": "GroundTruth"}}
    await run(configure(suite=expert))
    moved = service.url.replace("127.0.0.1", "localhost")
    assert (await run(configure(suite={**expert, "api": {"url": moved}}))).reason == Reason.ADOPTED
    for other in ({"horizon": 9}, {"tools": {"mode": "Selection"}}, {"scorer": {"kind": "Exact"}}):
        with pytest.raises(Exception, match="another recipe"):
            await run(configure(suite={**expert, **other}))


async def test_instances_are_selected(configure: Configure, world_folder: Path) -> None:
    expert = {"expert": {"mode": "GroundTruth"}}

    async def names(**fields: Any) -> list[str]:
        config = configure(name=str(len(fields)), suite={**expert, "instances": {"file": "test.json", **fields}})
        await run(config)
        return [task.task for task in artifact_of(config).tasks]

    assert await names(include=["i[12]"]) == ["i1", "i2"]
    assert await names(include=["i*"], limit=3) == ["i0", "i1", "i2"]
    with pytest.raises(RunFailure, match=r"leaves none of the 4 instances of test\.json"):
        await names(order="ApiBeforeRag", include=["i*"], limit=1)


@pytest.mark.parametrize(
    ("suite", "reason", "said"),
    [
        ({"instances": {"file": "none.json"}}, Reason.TASKS_INVALID, "none.json: cannot be read"),
        ({"api": {}}, Reason.INVALID_SPEC, "api.url: the API's document names no server; set it"),
    ],
)
async def test_what_cannot_be_run_is_said_before_anything_runs(
    configure: Configure, suite: dict[str, Any], reason: Reason, said: str
) -> None:
    with pytest.raises(RunFailure, match=said) as failure:
        await run(configure(suite={"expert": {"mode": "GroundTruth"}, **suite}))
    assert failure.value.reason is reason


async def test_an_environment_of_a_claim_is_held_to_its_digest(configure: Configure, world_folder: Path) -> None:
    async def with_digest(digest: str) -> None:
        environment = {"uri": "pvc://data/world", "digest": digest}
        await run(configure(suite={"expert": {"mode": "GroundTruth"}, "environment": environment}))

    await with_digest(folder_digest(world_folder))
    with pytest.raises(RunFailure, match=r"environment \(pvc://data/world\): digest: the folder is ") as failure:
        await with_digest(f"sha256:{'0' * 64}")
    assert failure.value.reason is Reason.DIGEST_MISMATCH


async def test_a_missing_folder_is_named(configure: Configure) -> None:
    config = configure().model_copy(update={"environment_path": "/nowhere"})
    with pytest.raises(RunFailure, match=r"environment \(pvc://data/world\) is not a folder"):
        await run(config)


async def test_an_api_without_a_document_is_refused(configure: Configure, world_folder: Path) -> None:
    (world_folder / "openapi.yaml").unlink()
    (world_folder / "test.json").write_text(json.dumps([instance(trajectory=[], order=None)]))
    with pytest.raises(RunFailure, match=r"toolUse\.api: the environment has no openapi\.yaml"):
        await run(configure(suite={"expert": {"mode": "GroundTruth"}}))


async def test_the_page_shows_each_step_and_data_tools_read_the_run(configure: Configure) -> None:
    config = configure(suite={"expert": {"mode": "GroundTruth"}, "protocol": "Native"})
    await run(config)
    page = make_page([Path(config.output_path)])
    for shown in (
        "who books trains",
        "Trains are booked by the team Harbour",
        "Expected",
        "Expert",
        "ada@fern.example",
    ):
        assert shown in page, shown
    assert "both, answerable" in page
    assert len(list(read_trajectories(Path(config.output_path)))) == 4
    [episode] = read_episodes(Path(config.output_path), artifact_of(config).tasks[0].trials[0])
    record = read_record(trial_folder(config, "i0"))
    assert record is not None
    assert (episode.messages, episode.tools) == (record.episode.messages, record.episode.tools)
