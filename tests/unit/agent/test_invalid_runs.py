"""A run that the infrastructure spoiled gives no score: not to its page, a comparison, or who adopts it."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import artifact_of, obedient, run
from whetstone_agent.harness import EnvironmentChoice
from whetstone_api.jobs import BenchmarkConfig
from whetstone_artifacts.report import make_page

type Configure = Callable[..., BenchmarkConfig]
TOLD = "2 of 4 trials are void (50.0%); spec.maximumErrorRate allows 10.0%"


@pytest.fixture
async def spoiled(
    configure: Configure, local: EnvironmentChoice, model: Callable[..., Awaitable[tuple[FakeModel, str]]]
) -> BenchmarkConfig:
    """A run of which the server refused two of four trials."""
    fake, url = await model(obedient)

    def refuse_some(messages: list[dict[str, str]]) -> str:
        if any(f"done_{number}" in messages[-1]["content"] for number in (0, 2)):
            fake.faults = [403]
        return obedient(messages)

    fake.mind = refuse_some
    config = configure(name="spoiled", serverUrl=url, concurrency=1)
    await run(config, local)
    fake.mind, fake.faults = obedient, []
    return config


async def test_results_say_that_they_are_no_score_and_so_does_the_page(spoiled: BenchmarkConfig) -> None:
    assert artifact_of(spoiled).results.void == 2
    assert artifact_of(spoiled).invalid == TOLD
    assert f"Not valid: {TOLD}. Mean 1" in (Path(spoiled.output_path) / "report.html").read_text()


async def test_who_adopts_it_judges_anew_by_what_it_allows_itself(
    spoiled: BenchmarkConfig, local: EnvironmentChoice
) -> None:
    page = Path(spoiled.output_path) / "report.html"
    report = await run(spoiled.model_copy(update={"maximum_error_rate": "0.5"}), local)
    assert report.result["adopted"]
    assert "Not valid" not in page.read_text()
    await run(spoiled, local)
    assert "Not valid" in page.read_text()


async def test_no_run_is_compared_with_it_and_it_with_none(
    spoiled: BenchmarkConfig, configure: Configure, local: EnvironmentChoice
) -> None:
    beside = {"serverUrl": spoiled.server_url, "baselineName": "spoiled", "baselinePath": spoiled.output_path}
    good = configure(name="good", **beside)
    compared = (await run(good, local)).result["comparison"]
    assert compared["verdict"] == "NotComparable"
    assert f"the baseline is not valid: {TOLD}" in compared["message"]
    turned = spoiled.model_copy(update={"baseline_name": "good", "baseline_path": good.output_path})
    compared = (await run(turned, local)).result["comparison"]
    assert compared == {"baseline": "good", "verdict": "NotComparable", "message": f"this run is not valid: {TOLD}"}
    text = make_page([Path(spoiled.output_path)], Path(good.output_path))
    assert f"Nothing: spoiled is not valid, {TOLD}." in text


@pytest.mark.parametrize(
    ("told", "verdict"),
    [(None, "Inconclusive"), ("", "Inconclusive"), ("the image became another", "NotComparable")],
)
async def test_what_the_baselines_object_says_counts(
    configure: Configure, local: EnvironmentChoice, told: str | None, verdict: str
) -> None:
    baseline = configure(name="baseline", agent={"name": "nop"})
    await run(baseline, local)
    fields: dict[str, Any] = {"baselineName": "baseline", "baselinePath": baseline.output_path, "baselineInvalid": told}
    compared = (await run(configure(agent={"name": "nop"}, **fields), local)).result["comparison"]
    assert compared["verdict"] == verdict
    assert (told or "") in str(compared.get("message"))


async def test_an_object_that_allows_more_makes_a_baseline_of_it(
    spoiled: BenchmarkConfig, configure: Configure, local: EnvironmentChoice
) -> None:
    beside = {"serverUrl": spoiled.server_url, "baselineName": "spoiled", "baselinePath": spoiled.output_path}
    compared = (await run(configure(**beside, baselineInvalid=""), local)).result["comparison"]
    assert compared["verdict"] == "Inconclusive"


async def test_results_of_an_older_release_say_it_by_their_engines(
    configure: Configure, local: EnvironmentChoice
) -> None:
    baseline = configure(name="baseline", agent={"name": "nop"})
    await run(baseline, local)
    path = Path(baseline.output_path) / "results.json"
    held = json.loads(path.read_text())
    held["engineCheck"] = {"checkedAt": "2026-01-01T00:00:00Z", "change": "the image became another"}
    path.write_text(json.dumps(held))
    fields = {"agent": {"name": "nop"}, "baselineName": "baseline", "baselinePath": baseline.output_path}
    compared = (await run(configure(**fields), local)).result["comparison"]
    assert "the baseline is not valid: the image became another" in compared["message"]
