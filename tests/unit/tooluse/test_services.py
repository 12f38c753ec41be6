"""What a run makes sure of before its first trial: the API answers, judge and overseer say yes or no."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel
from unit.tooluse.conftest import KEY, Service
from whetstone_agent.failure import RunFailure
from whetstone_agent.tooluse.services import Services, check_services, open_services
from whetstone_agent.tooluse.world import World
from whetstone_api.benchmark_tooluse import API_KEY_VARIABLE, SCORER_KEY_VARIABLE, WITNESS_KEY_VARIABLE
from whetstone_api.jobs import ToolUseConfig
from whetstone_api.reports import Outcome
from whetstone_api.vocabulary import Reason


def config(*, scorer_url: str | None = None, **suite: Any) -> ToolUseConfig:
    return ToolUseConfig.model_validate(
        {
            "object": {"kind": "BenchmarkRun", "namespace": "team", "name": "run", "uid": "u"},
            "reportUrl": "http://127.0.0.1:9/none",
            "serverUrl": "http://127.0.0.1:9/v1",
            "servedName": "m",
            "toolUse": {"environment": {"uri": "pvc://d/w"}, "instances": {"file": "test.json"}, **suite},
            "environmentPath": "/nowhere",
            "scorerUrl": scorer_url,
            "agent": {},
            "sampling": {},
            "attempts": 1,
            "concurrency": 1,
            "outputPath": "/nowhere",
            "outputUri": "pvc://r/run",
        }
    )


@contextlib.contextmanager
def opened(world: World, told: ToolUseConfig) -> Iterator[Services]:
    with contextlib.ExitStack() as stack:
        yield open_services(told, world, stack)


def headers_of(services: Services) -> dict[str, str]:
    assert services.api is not None
    return dict(services.api._client.headers)


@pytest.mark.parametrize(
    ("api", "header", "value"),
    [({}, "authorization", KEY), ({"header": "X-Api-Key"}, "x-api-key", KEY.removeprefix("Bearer "))],
)
def test_the_key_of_the_api_is_sent_in_its_header(
    world: World, monkeypatch: pytest.MonkeyPatch, api: dict[str, Any], header: str, value: str
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, KEY.removeprefix("Bearer "))
    with opened(world, config(api={"url": "http://api", **api})) as services:
        assert headers_of(services)[header] == value


def test_without_a_key_none_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)
    with opened(world, config(api={"url": "http://api"})) as services:
        assert "authorization" not in headers_of(services)


def test_an_api_that_answers_anything_is_there(world: World, service: Service) -> None:
    service.broken = "failing"
    with opened(world, config(api={"url": service.url})) as services:
        check_services(services)
    assert len(service.requests) == 1


def test_an_api_that_does_not_answer_is_waited_for_and_then_told(world: World) -> None:
    pauses: list[float] = []
    with opened(world, config(api={"url": "http://127.0.0.1:9"})) as services, pytest.raises(RunFailure) as failure:
        check_services(services, patience_seconds=10, clock=lambda: sum(pauses), sleep=pauses.append)
    assert len(pauses) == 3
    assert (failure.value.reason, failure.value.outcome) == (Reason.REFERENCE_NOT_READY, Outcome.RETRY)
    assert failure.value.message.startswith("spec.suite.toolUse.api.url: http://127.0.0.1:9 does not answer")


async def judged(world: World, service: Service, says: str, *, name: str = "j", role: str = "judge") -> FakeModel:
    fake = FakeModel(name="j", mind=lambda _: says)
    server = await fake.start()
    url = str(server.make_url("/v1"))
    model = {"model": name, "url": url}
    suites = {
        "judge": {"scorer": {"kind": "Judge", "judge": model}},
        "overseer": {"overseer": model},
        "witness": {"expert": {"mode": "Informed", "witness": model}},
    }
    told = config(api={"url": service.url}, scorer_url=url, **suites[role])
    told = told.model_copy(update={"overseer_url": url, "witness_url": url})
    try:
        with opened(world, told) as services:
            await asyncio.to_thread(check_services, services)
    finally:
        await server.close()
    return fake


@pytest.mark.parametrize("role", ["judge", "overseer", "witness"])
async def test_a_judge_that_says_yes_or_no_is_asked_once_with_its_key(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setenv(SCORER_KEY_VARIABLE, "judge-key")
    monkeypatch.setenv(WITNESS_KEY_VARIABLE, "witness-key")
    fake = await judged(world, service, "No.", role=role)
    assert len(fake.requests) == 1
    assert fake.keys == {f"Bearer {'none' if role == 'overseer' else f'{role}-key'}"}


@pytest.mark.parametrize(
    ("role", "field"), [("judge", "scorer.judge"), ("overseer", "overseer"), ("witness", "expert.witness")]
)
async def test_a_judge_that_says_neither_is_refused_before_the_first_trial(
    world: World, service: Service, role: str, field: str
) -> None:
    with pytest.raises(RunFailure) as failure:
        await judged(world, service, "Perhaps.", role=role)
    assert failure.value.reason is Reason.INVALID_SPEC
    assert failure.value.message.startswith(f"spec.suite.toolUse.{field}: ")


async def test_a_judge_that_its_server_does_not_know_is_named(world: World, service: Service) -> None:
    with pytest.raises(RunFailure) as failure:
        await judged(world, service, "yes", name="other")
    assert failure.value.reason is Reason.MODEL_NOT_SERVED
