"""The keys of a run's models and judge are nowhere in what it leaves: results, trials, report, log."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.canaries import canary, seen
from unit.agent.fake_model import FakeModel
from unit.agent.test_judge import JUDGE, strict
from unit.agent.test_run import obedient, run
from whetstone_agent.failure import RunFailure
from whetstone_agent.harness import EnvironmentChoice
from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_judge import JUDGE_KEY_VARIABLE
from whetstone_api.jobs import BenchmarkConfig

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]
PLANTED = {"the runner's key": canary("runner"), "the judge's key": canary("judge")}


@pytest.mark.parametrize(
    "faults", [[], [401] * 40, [200] * 2 + [401] * 40], ids=["all is well", "refused at once", "refused later"]
)
async def test_keys_are_not_in_the_results(
    configure: Configure,
    local: EnvironmentChoice,
    model: StartModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    faults: list[int],
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, canary("runner"))
    monkeypatch.setenv(JUDGE_KEY_VARIABLE, canary("judge"))
    fake, url = await model(obedient, faults=list(faults))
    judging, judge_url = await model(strict, name=JUDGE, faults=list(faults))
    config = configure(serverUrl=url, judge={"model": JUDGE, "url": judge_url}, judgeUrl=judge_url)

    with caplog.at_level(logging.INFO):
        try:
            said = (await run(config, local)).to_termination_message()
        except RunFailure as failure:
            said = failure.message

    told = capfd.readouterr()
    texts = {"the report": said, "the log": caplog.text, "output": told.out + told.err}
    for path in Path(config.output_path).rglob("*"):  # noqa: ASYNC240 - the run is over
        if path.is_file():
            texts[str(path.relative_to(config.output_path))] = path.read_bytes().decode(errors="replace")
    assert f"Bearer {canary('runner')}" in fake.keys
    assert faults or f"Bearer {canary('judge')}" in judging.keys
    assert any(name.startswith("harbor/") for name in texts) or faults[:1] == [401]
    assert seen(PLANTED, texts) == []
