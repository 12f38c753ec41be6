"""Models are asked through an OpenAI-compatible endpoint (a stand-in answers), also through the runner's door."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from unit.agent.fake_model import FakeModel, Mind
from unit.tooluse.conftest import MakeEnv, call, native
from whetstone_agent.agents.door import Door, Sampling
from whetstone_agent.agents.errors import ModelRefusedError
from whetstone_agent.tooluse.agents import ModelAgent, ModelSettings
from whetstone_agent.tooluse.conversation import Protocol
from whetstone_agent.tooluse.episode import EpisodeRecord, run_episode
from whetstone_agent.tooluse.outcomes import End

ADAPTER = "tools--1a2b3c4d"
type Start = Callable[..., Awaitable[tuple[FakeModel, str]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a stand-in for a model server; gives it and its base URL."""
    servers = []

    async def begin(mind: Mind, **fields: Any) -> tuple[FakeModel, str]:
        fake = FakeModel(name=ADAPTER, mind=mind, **fields)
        servers.append(await fake.start())
        return fake, str(servers[-1].make_url("/v1"))

    yield begin
    for server in servers:
        await server.close()


def calling(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A model that searches, asks and answers by native calls."""
    replies = [
        native("retrieve_documents", collection="handbook", query="who books trains"),
        native("getEmployee", id="e1"),
        {"role": "assistant", "content": "ada@fern.example"},
    ]
    return replies[sum(one["role"] == "assistant" for one in messages)]


async def ran(make_env: MakeEnv, url: str, protocol: Protocol = Protocol.NATIVE, **fields: Any) -> EpisodeRecord:
    env = make_env()
    settings = ModelSettings(url=url, model=fields.pop("model", ADAPTER), **fields)
    with ModelAgent(settings, api_key="secret", retries=0) as agent:
        return await asyncio.to_thread(run_episode, env, "i1", agent=agent, protocol=protocol)


async def test_a_model_solves_an_instance_by_native_calls(make_env: MakeEnv, start: Start) -> None:
    fake, url = await start(calling)
    record = await ran(make_env, url, temperature=0.5, top_p=0.9, max_tokens=77, seed=3)
    assert (record.success, record.prompt_tokens, record.completion_tokens) == (True, 30, 9)
    first, _, last = fake.requests
    assert {name: first[name] for name in ("model", "temperature", "top_p", "max_tokens", "seed")} == {
        "model": ADAPTER,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 77,
        "seed": 3,
    }
    assert first["tools"][0]["function"]["name"] == "retrieve_documents"
    assert [one["role"] for one in last["messages"]] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert fake.keys == {"Bearer secret"}


async def test_a_model_works_by_text(make_env: MakeEnv, start: Start) -> None:
    fake, url = await start(lambda _: call("FINAL", answer="ada@fern.example"))
    record = await ran(make_env, url, Protocol.TEXT)
    assert record.success
    assert "tools" not in fake.requests[0]


@pytest.mark.parametrize(("fault", "end"), [(500, End.MODEL_FAILED), (400, End.CONTEXT_LENGTH)])
async def test_failures_of_the_server_are_told_from_those_of_the_model(
    make_env: MakeEnv, start: Start, fault: int, end: End
) -> None:
    _, url = await start(calling, faults=[fault])
    assert (await ran(make_env, url)).end is end


async def test_a_server_that_is_not_there_voids(make_env: MakeEnv) -> None:
    record = await ran(make_env, "http://127.0.0.1:9/v1")
    assert (record.end, record.void) == (End.MODEL_FAILED, True)
    assert "http://127.0.0.1:9/v1 does not answer" in (record.error or "")


async def test_a_name_that_is_not_served_ends_the_run(make_env: MakeEnv, start: Start) -> None:
    _, url = await start(calling)
    with pytest.raises(ModelRefusedError, match="answers 404"):
        await ran(make_env, url, model="other")


async def test_the_runners_door_puts_in_its_sampling_and_counts(make_env: MakeEnv, start: Start) -> None:
    fake, url = await start(calling)
    sampling = Sampling(temperature=0.25, top_p=0.75)
    async with Door(server_url=url, served_name=ADAPTER, sampling=sampling) as door:
        session = door.enter(seed=11, token_limit=None)
        record = await ran(make_env, session.url)
        assert (record.success, session.usage.tokens) == (True, 39)
    assert [(one["temperature"], one["top_p"], one["seed"]) for one in fake.requests] == [(0.25, 0.75, 11)] * 3
