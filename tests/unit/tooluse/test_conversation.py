"""What models are shown, and how their replies are read, in both protocols."""

import json
from typing import Any

import pytest
from unit.tooluse.conftest import MakeEnv, call, native
from whetstone_agent.tooluse.actions import Action, final
from whetstone_agent.tooluse.conversation import Conversation, Protocol, Turn

ASK = call("getEmployee", id="e1")


def talk(make_env: MakeEnv, protocol: Protocol, **fields: Any) -> Conversation:
    env = make_env(**fields)
    question, _ = env.reset(seed=1)
    return Conversation(protocol=protocol, toolbox=env.toolbox, question=question)


def test_text_lists_the_tools_in_the_first_message(make_env: MakeEnv) -> None:
    found = talk(make_env, Protocol.TEXT)
    listed = [
        json.loads(line)["name"] for line in found.messages[0]["content"].splitlines() if line.startswith('{"name"')
    ]
    assert listed == ["retrieve_documents", "getEmployee", "listEmployees", "openTicket", "FINAL"]
    assert found.tools is None
    assert found.messages[1] == {"role": "user", "content": "What is the email of the employee who books trains?"}


def test_native_gives_the_tools_beside_the_messages(make_env: MakeEnv) -> None:
    found = talk(make_env, Protocol.NATIVE)
    assert [one["function"]["name"] for one in found.tools or []] == [
        "retrieve_documents",
        "getEmployee",
        "listEmployees",
        "openTicket",
    ]
    assert "getEmployee" not in found.messages[0]["content"]
    assert talk(make_env, Protocol.NATIVE, toolAvailability="neither").tools is None


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (ASK, ASK),
        (f"I look it up.\n```json\n{ASK}\n```", ASK),
        (f'Given {{"a": 1}}: {ASK} and then {call("FINAL", answer="x")}', ASK),
        ("no call at all", "no call at all"),
        ('{"tool_name": ', '{"tool_name": '),
    ],
)
def test_text_takes_the_first_call_of_a_reply(make_env: MakeEnv, text: str, action: str) -> None:
    read, message = talk(make_env, Protocol.TEXT).read({"role": "assistant", "content": text}, complete=True)
    assert (read, message) == (action, {"role": "assistant", "content": text})


def test_native_takes_the_first_call_of_a_reply_and_drops_the_others(make_env: MakeEnv) -> None:
    reply = native("getEmployee", id="e1")
    reply["tool_calls"] += native("openTicket", title="x")["tool_calls"]
    read, message = talk(make_env, Protocol.NATIVE).read(reply, complete=True)
    assert json.loads(read) == json.loads(ASK)
    assert [(one["id"], one["function"]["name"]) for one in message["tool_calls"]] == [("call00002", "getEmployee")]


def test_a_native_reply_without_a_call_is_the_answer_unless_it_was_cut_off(make_env: MakeEnv) -> None:
    found = talk(make_env, Protocol.NATIVE)
    reply = {"role": "assistant", "content": " 30 days"}
    assert found.read(reply, complete=True)[0] == final("30 days").to_text()
    assert found.read(reply, complete=False)[0] == " 30 days"


def test_native_arguments_that_are_no_json_are_kept_as_text(make_env: MakeEnv) -> None:
    reply = native("getEmployee")
    reply["tool_calls"][0]["function"]["arguments"] = '{"id": '
    read, message = talk(make_env, Protocol.NATIVE).read(reply, complete=True)
    assert (read, message) == ('{"id": ', {"role": "assistant", "content": '{"id": '})


@pytest.mark.parametrize(
    ("protocol", "last"),
    [
        (Protocol.TEXT, {"role": "user", "content": "{}"}),
        (Protocol.NATIVE, {"role": "tool", "tool_call_id": "call00002", "content": "{}"}),
    ],
)
def test_results_answer_the_call(make_env: MakeEnv, protocol: Protocol, last: dict[str, Any]) -> None:
    found = talk(make_env, protocol)
    found.add(found.turn(Action(tool="getEmployee", args={"id": "e1"})), "{}")
    assert found.messages[-1] == last
    found.add(Turn(action="?", message={"role": "assistant", "content": "?"}), "wrong")
    assert found.messages[-1] == {"role": "user", "content": "wrong"}
    found.add(found.turn(final("30")), None)
    assert found.messages[-1]["role"] == "assistant"


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("action", [Action(tool="getEmployee", args={"id": "e1"}), final("30")])
def test_what_an_expert_writes_is_read_as_what_it_meant(make_env: MakeEnv, protocol: Protocol, action: Action) -> None:
    found = talk(make_env, protocol)
    turn = found.turn(action)
    assert turn.action == action.to_text()
    assert found.read(turn.message, complete=True) == (turn.action, turn.message)
