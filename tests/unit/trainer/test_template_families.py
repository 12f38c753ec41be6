"""For each family of models the mask is, token by token, what a server would generate, end of turn included."""

from typing import Any

import pytest
from support.preferences import said
from support.template_families import (
    CALL,
    GRANITE,
    MISTRAL,
    MISTRAL_V3,
    MIXTRAL,
    SPECIALS,
    TALK,
    TOOLS,
    family_tokenizer,
    shipped,
)
from whetstone_trainer.render import IGNORED, Rendered, Renderer, TemplateError

pytestmark = pytest.mark.torch

Parts = list[tuple[str, bool]]
"""Text of a rendered row in pieces, and whether the piece is learned."""
MISTRAL_TOKENS: dict[str, Any] = {"specials": SPECIALS["mistral"], "begin": "<s>", "end": "</s>"}
CHATML_TOKENS: dict[str, Any] = {"specials": SPECIALS["chatml"], "begin": "<|endoftext|>", "end": "<|im_end|>"}
LLAMA_TOKENS: dict[str, Any] = {"specials": SPECIALS["llama"], "begin": "<|begin_of_text|>", "end": "<|eot_id|>"}
GRANITE_TOKENS: dict[str, Any] = {
    "specials": SPECIALS["granite"],
    "begin": "<|end_of_text|>",
    "end": "<|end_of_text|>",
}


def assert_learned(tokenizer: Any, rendered: Rendered, parts: Parts) -> None:
    """Assert that a row has exactly these pieces, each token of which is learned or not."""
    ids: list[int] = []
    labels: list[int] = []
    for text, learned in parts:
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += tokens
        labels += tokens if learned else [IGNORED] * len(tokens)
    decode = tokenizer.decode
    assert decode(rendered.input_ids) == decode(ids)
    assert rendered.input_ids == ids
    found = [decode(rendered.input_ids[start:end]) for start, end in rendered.spans]
    assert found == [text for text, learned in parts if learned]
    assert list(rendered.labels) == labels


def assert_asked_for(tokenizer: Any, rendered: Rendered, messages: list[dict[str, Any]], tools: Any) -> None:
    """Assert that each learned run follows what a server sends the model when it asks for that turn."""
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(turns) >= len(rendered.spans)
    for turn, (start, end) in zip(turns[-len(rendered.spans) :], rendered.spans, strict=True):
        prompt = tokenizer.apply_chat_template(messages[:turn], tools=tools, tokenize=False, add_generation_prompt=True)
        assert rendered.input_ids[:start] == tokenizer(prompt, add_special_tokens=False)["input_ids"]
        assert rendered.input_ids[end - 1] == tokenizer.eos_token_id


def row_of(tokenizer: Any, messages: list[dict[str, Any]], tools: Any = None) -> Rendered:
    """Return the only row that a conversation becomes, checked against what a server asks for."""
    (row,) = Renderer(tokenizer).render_rows(messages, tools=tools)
    assert_asked_for(tokenizer, row, messages, tools)
    return row


DEVSTRAL: Parts = [
    ("<s>[SYSTEM_PROMPT]s[/SYSTEM_PROMPT][AVAILABLE_TOOLS]", False),
    ('[{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]', False),
    ("[/AVAILABLE_TOOLS][INST]q[/INST]", False),
    ('[TOOL_CALLS]ls[ARGS]{"path": "/"}</s>', True),
    ("[TOOL_RESULTS]files[/TOOL_RESULTS]", False),
    ("a</s>", True),
    ("[INST]r[/INST]", False),
    ("b</s>", True),
]


def test_mistral_and_devstral() -> None:
    tokenizer = family_tokenizer(MISTRAL, **MISTRAL_TOKENS)
    assert_learned(tokenizer, row_of(tokenizer, [said("system", "s"), *TALK], TOOLS), DEVSTRAL)


def test_mistral_version_3_becomes_a_row_a_turn_where_its_tools_move() -> None:
    tokenizer = family_tokenizer(MISTRAL_V3, **MISTRAL_TOKENS)
    offered = '[AVAILABLE_TOOLS] [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", '
    offered += '"properties": {}}}}][/AVAILABLE_TOOLS]'
    call, result = (
        '[TOOL_CALLS] [{"name": "ls", "arguments": {"path": "/"}}]</s>',
        '[TOOL_RESULTS] {"content": "files"}',
    )
    rows = Renderer(tokenizer).render_rows(TALK, tools=TOOLS)
    expected: list[Parts] = [
        [(f"<s>{offered}[INST] q[/INST]", False), (call, True)],
        [(f"<s>{offered}[INST] q[/INST]{call}{result}[/TOOL_RESULTS]", False), (" a</s>", True)],
        [(f"<s>[INST] q[/INST]{call}{result}[/TOOL_RESULTS] a</s>{offered}[INST] r[/INST]", False), (" b</s>", True)],
    ]
    for row, parts, end in zip(rows, expected, (2, 4, 6), strict=True):
        assert_learned(tokenizer, row, parts)
        assert_asked_for(tokenizer, row, TALK[:end], TOOLS)


def test_mistral_version_3_is_one_row_where_it_stays_as_it_was() -> None:
    tokenizer = family_tokenizer(MISTRAL_V3, **MISTRAL_TOKENS)
    row = row_of(tokenizer, [TALK[0], TALK[3], *TALK[4:]])
    parts: Parts = [("<s>[INST] q[/INST]", False), (" a</s>", True), ("[INST] r[/INST]", False), (" b</s>", True)]
    assert_learned(tokenizer, row, parts)


def test_mixtral() -> None:
    tokenizer = family_tokenizer(MIXTRAL, **MISTRAL_TOKENS)
    row = row_of(tokenizer, [TALK[0], TALK[3], *TALK[4:]])
    parts: Parts = [("<s> [INST] q [/INST]", False), (" a</s>", True), (" [INST] r [/INST]", False), (" b</s>", True)]
    assert_learned(tokenizer, row, parts)


def test_mixtral_knows_no_tools() -> None:
    with pytest.raises(TemplateError, match=r"leaves out the call of ls|refuses the conversation"):
        Renderer(family_tokenizer(MIXTRAL, **MISTRAL_TOKENS)).render_rows(TALK[:4], tools=TOOLS)


def test_granite_3() -> None:
    tokenizer = family_tokenizer(GRANITE, **GRANITE_TOKENS)
    row = row_of(tokenizer, TALK, TOOLS)
    turn, end = "<|start_of_role|>", "<|end_of_text|>\n"
    parts: Parts = [
        (f"{turn}system<|end_of_role|>You are Granite.{end}{turn}available_tools<|end_of_role|>", False),
        ('[{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", ', False),
        (f'"properties": {{}}}}}}}}]{end}{turn}user<|end_of_role|>q{end}{turn}assistant<|end_of_role|>', False),
        ('<|tool_call|>[{"name": "ls", "arguments": {"path": "/"}}]<|end_of_text|>', True),
        (f"\n{turn}tool<|end_of_role|>files{end}{turn}assistant<|end_of_role|>", False),
        ("a<|end_of_text|>", True),
        (f"\n{turn}user<|end_of_role|>r{end}{turn}assistant<|end_of_role|>", False),
        ("b<|end_of_text|>", True),
        ("\n", False),
    ]
    assert_learned(tokenizer, row, parts)


def test_llama_3() -> None:
    tokenizer = family_tokenizer(shipped("llama3_1"), **LLAMA_TOKENS)
    row = row_of(tokenizer, [said("system", "s"), *TALK])

    def header(role: str) -> str:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n"

    parts: Parts = [
        (f"<|begin_of_text|>{header('system')}Cutting Knowledge Date: December 2023\n", False),
        ("Today Date: 26 Jul 2024\n\ns<|eot_id|>", False),
        (f"{header('user')}q<|eot_id|>{header('assistant')}", False),
        ('{"name": "ls", "parameters": {"path": "/"}}<|eot_id|>', True),
        (f'{header("ipython")}"files"<|eot_id|>{header("assistant")}', False),
        ("a<|eot_id|>", True),
        (f"{header('user')}r<|eot_id|>{header('assistant')}", False),
        ("b<|eot_id|>", True),
    ]
    assert_learned(tokenizer, row, parts)


def test_llama_3_with_tools_offered() -> None:
    tokenizer = family_tokenizer(shipped("llama3_1"), **LLAMA_TOKENS)
    row = row_of(tokenizer, TALK, TOOLS)
    learned = [tokenizer.decode(row.input_ids[start:end]) for start, end in row.spans]
    assert learned == ['{"name": "ls", "parameters": {"path": "/"}}<|eot_id|>', "a<|eot_id|>", "b<|eot_id|>"]


def chatml(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


HEAD = "<|im_start|>assistant\n"
SAID_CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "/"}}\n</tool_call>'
RESULT = chatml("user", "\n<tool_response>\nfiles\n</tool_response>").replace("user\n\n", "user\n")


def test_qwen3_becomes_a_row_a_turn_since_it_drops_earlier_reasoning() -> None:
    tokenizer = family_tokenizer(shipped("qwen3"), **CHATML_TOKENS)
    thought = "<think>\nhm\n</think>\n\n"
    talk = [TALK[0], said("assistant", f"{thought}look", tool_calls=CALL["tool_calls"]), TALK[2]]
    talk += [said("assistant", f"{thought}a"), TALK[4], said("assistant", "b")]
    rows = Renderer(tokenizer).render_rows(talk)
    asked = chatml("user", "q") + HEAD
    first = f"{thought}look\n{SAID_CALL}<|im_end|>"
    expected: list[Parts] = [
        [(asked, False), (first, True), ("\n", False)],
        [(f"{asked}{first}\n{RESULT}{HEAD}", False), (f"{thought}a<|im_end|>", True), ("\n", False)],
        [
            (f"{asked}look\n{SAID_CALL}<|im_end|>\n{RESULT}{HEAD}a<|im_end|>\n{chatml('user', 'r')}{HEAD}", False),
            ("<think>\n\n</think>\n\nb<|im_end|>", True),
            ("\n", False),
        ],
    ]
    for row, parts, end in zip(rows, expected, (2, 4, 6), strict=True):
        assert_learned(tokenizer, row, parts)
        assert_asked_for(tokenizer, row, talk[:end], None)


def test_qwen3_without_reasoning_modes_is_one_row() -> None:
    tokenizer = family_tokenizer(shipped("qwen3_instruct_2507"), **CHATML_TOKENS)
    row = row_of(tokenizer, [said("system", "s"), *TALK])
    parts: Parts = [
        (f"{chatml('system', 's')}{chatml('user', 'q')}{HEAD}", False),
        (f"{SAID_CALL}<|im_end|>", True),
        (f"\n{RESULT}{HEAD}", False),
        ("a<|im_end|>", True),
        (f"\n{chatml('user', 'r')}{HEAD}", False),
        ("b<|im_end|>", True),
        ("\n", False),
    ]
    assert_learned(tokenizer, row, parts)


def test_nemotron_3_with_reasoning() -> None:
    tokenizer = family_tokenizer(shipped("nemotron_3_nano"), **CHATML_TOKENS)
    talk = [
        said("system", "s"),
        TALK[0],
        said("assistant", "<think>\nhm\n</think>\nlook", tool_calls=CALL["tool_calls"]),
    ]
    talk += [TALK[2], said("assistant", "<think>\nso\n</think>\na")]
    row = row_of(tokenizer, talk)
    call = "<tool_call>\n<function=ls>\n<parameter=path>\n/\n</parameter>\n</function>\n</tool_call>\n"
    parts: Parts = [
        (f"{chatml('system', 's')}{chatml('user', 'q')}{HEAD}<think>\n", False),
        (f"hm\n</think>\nlook\n{call}<|im_end|>", True),
        (f"\n<|im_start|>user\n<tool_response>\nfiles\n</tool_response>\n<|im_end|>\n{HEAD}<think>\n", False),
        ("so\n</think>\na<|im_end|>", True),
        ("\n", False),
    ]
    assert_learned(tokenizer, row, parts)


def test_nemotron_3_without_reasoning_is_refused() -> None:
    tokenizer = family_tokenizer(shipped("nemotron_3_nano"), **CHATML_TOKENS)
    with pytest.raises(TemplateError, match="generation prompt"):
        Renderer(tokenizer).render_rows(TALK)
