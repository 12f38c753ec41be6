"""The program of examples/toolshim, between a real client and a stand-in for a ModelServer with two models."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from openai import AsyncOpenAI, BadRequestError
from support.data_rows import LS
from unit.examples.programs import program
from whetstone_dev.places import CHECKOUT

SHIM = program("toolshim/shim.py")
ASKED = [{"role": "user", "content": "What is in /tmp?"}]
GOOD = json.dumps({"tool_calls": [{"name": "ls", "arguments": {"path": "/tmp"}}]})


class TwoModels:
    """`thinker` says one thing, `writer` what is left of its replies; `asked` are the requests of each."""

    def __init__(self, *replies: str, status: int = 200) -> None:
        self.replies = list(replies)
        self.status = status
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.add(request.headers.get("Authorization"))
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        text = "I look into /tmp." if body["model"] == "thinker" else self.replies.pop(0)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        answer = {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}
        return web.json_response(answer, headers={"x-whetstone-adapter": f"{body['model']}--1a2b3c4d"})


type Clients = tuple[AsyncOpenAI, TestClient[web.Request, web.Application]]


@asynccontextmanager
async def shimmed(models: TwoModels) -> AsyncIterator[Clients]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", models.chat)
    async with TestServer(app) as upstream:
        shim = SHIM.Shim(str(upstream.make_url("")), base="thinker", shim="writer", tokens=64)
        async with TestClient(TestServer(shim.app())) as plain:
            url = str(plain.make_url("/v1"))
            async with AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
                yield client, plain


async def complete(client: AsyncOpenAI, **more: Any) -> Any:
    create: Callable[..., Any] = client.chat.completions.create
    return await create(**{"model": "agent", "messages": ASKED, "tools": [LS], "temperature": 0.5, **more})


async def test_words_of_the_base_model_become_calls_by_the_adapter() -> None:
    models = TwoModels(GOOD)
    async with shimmed(models) as (client, _):
        answer = await complete(client)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("ls", {"path": "/tmp"})
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look into /tmp.")
    assert (answer.model, answer.usage.total_tokens) == ("agent", 26)
    thinking, writing = models.asked
    assert (thinking["model"], writing["model"]) == ("thinker", "writer")
    assert (thinking["temperature"], writing["max_tokens"]) == (0.5, 64)
    assert "tools" not in thinking
    assert "ls: " in thinking["messages"][0]["content"]
    assert "I look into /tmp." in writing["messages"][0]["content"]
    assert models.keys == {"Bearer k"}


@pytest.mark.parametrize(
    ("tools", "versions"), [([LS], "thinker--1a2b3c4d, writer--1a2b3c4d"), ([], "thinker--1a2b3c4d")]
)
async def test_the_answer_names_the_versions_that_had_a_part_in_it(tools: list[dict[str, Any]], versions: str) -> None:
    async with shimmed(TwoModels("nonsense", GOOD)) as (_, plain):
        answer = await plain.post("/v1/chat/completions", json={"messages": ASKED, "tools": tools})
        assert answer.headers["x-whetstone-adapter"] == versions


def test_its_rows_are_what_the_shim_asks_and_takes() -> None:
    lines = (CHECKOUT / "examples" / "toolshim" / "rows" / "calls.jsonl").read_text().splitlines()
    calls = []
    for line in lines:
        asked, answered = json.loads(line)["messages"]
        prompt, tools, words = re.fullmatch(
            r"(.*)\n\nTools:\n(.*)\n\nMessage:\n(.*)", asked["content"], re.DOTALL
        ).groups()
        assert (prompt, bool(words)) == (SHIM.SHIM_PROMPT, True)
        calls.append(len(SHIM.read_calls(answered["content"], [{"function": one} for one in json.loads(tools)])))
    assert {0, 1, 2} == set(calls)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("gladly", "it is no {"),
        ('{"tool_calls": {}}', "is no list"),
        ('{"tool_calls": [{"name": "rm", "arguments": {}}]}', "no tool 'rm'; use one of ls"),
        ('{"tool_calls": [{"name": "ls", "arguments": {"depth": 1}}]}', "'path' is a required property"),
        ('{"tool_calls": [7]}', "no tool None"),
    ],
)
async def test_a_reply_that_does_not_fit_is_asked_for_once_more_with_the_reason(first: str, words: str) -> None:
    models = TwoModels(first, f"```json\n{GOOD}\n```")
    async with shimmed(models) as (client, _):
        answer = await complete(client)
    assert [one.function.name for one in answer.choices[0].message.tool_calls] == ["ls"]
    assert words in models.asked[2]["messages"][-1]["content"]


@pytest.mark.parametrize("replies", [("nonsense", "nonsense"), ('{"tool_calls": []}',)])
async def test_without_a_call_that_fits_the_words_are_the_answer(replies: tuple[str, ...]) -> None:
    models = TwoModels(*replies)
    async with shimmed(models) as (client, _):
        (choice,) = (await complete(client)).choices
    assert (choice.message.tool_calls, choice.finish_reason) == (None, "stop")
    assert choice.message.content == "I look into /tmp."
    assert len(models.asked) == 1 + len(replies)


async def test_without_tools_only_the_base_model_is_asked() -> None:
    models = TwoModels()
    async with shimmed(models) as (client, _):
        await complete(client, tools=[])
    assert [one["messages"] for one in models.asked] == [ASKED]


def test_calls_and_results_of_a_conversation_are_told_as_words() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/"}'}}
    messages = [
        {"role": "system", "content": "Be short."},
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "a b"},
    ]
    told = SHIM.words_of(messages, [LS])
    assert [one["role"] for one in told] == ["system", "user", "assistant", "user"]
    assert told[0]["content"].startswith("Be short.\n\nYou can use these tools.")
    assert told[2]["content"] == 'Use ls with {"path": "/"}'
    assert told[3]["content"] == "The tool returned:\na b"


async def test_what_is_wrong_is_said_and_the_servers_refusal_passes() -> None:
    async with shimmed(TwoModels(status=429)) as (client, plain):
        with pytest.raises(BadRequestError, match="leave out stream"):
            await complete(client, stream=True)
        wrong = {**LS["function"], "parameters": {"type": 7}}  # type: ignore[dict-item]
        with pytest.raises(BadRequestError, match="no chat request with tools"):
            await complete(client, tools=[{"type": "function", "function": wrong}])
        assert (await plain.post("/v1/chat/completions", data="{")).status == 400
        answer = await plain.post("/v1/chat/completions", json={"messages": ASKED, "tools": [LS]})
        assert (answer.status, "thinker" in (await answer.json())["error"]["message"]) == (429, True)
        assert (await plain.get("/healthz")).status == 200
