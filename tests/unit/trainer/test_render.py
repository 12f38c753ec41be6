"""The loss covers exactly what the assistant says, end of turn included."""

from typing import Any

import pytest
from support.trainer_job import SMOLLM2_TEMPLATE, byte_tokenizer
from whetstone_api.training_data import LossTarget
from whetstone_trainer.render import IGNORED, Renderer, TemplateError, is_optimal

pytestmark = pytest.mark.torch


def messages(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in pairs]


def test_mask_of_chatml_token_by_token() -> None:
    tokenizer = byte_tokenizer()
    rendered = Renderer(tokenizer).render(
        messages(("system", "s"), ("user", "q"), ("assistant", "ab"), ("user", "r"), ("assistant", "c"))
    )
    expected = [
        ("<|im_start|>system\ns<|im_end|>\n", False),
        ("<|im_start|>user\nq<|im_end|>\n", False),
        ("<|im_start|>assistant\n", False),
        ("ab<|im_end|>", True),
        ("\n", False),
        ("<|im_start|>user\nr<|im_end|>\n", False),
        ("<|im_start|>assistant\n", False),
        ("c<|im_end|>", True),
        ("\n", False),
    ]
    ids: list[int] = []
    labels: list[int] = []
    for text, learned in expected:
        tokens = tokenizer(text)["input_ids"]
        ids += tokens
        labels += tokens if learned else [IGNORED] * len(tokens)
    assert rendered.input_ids == ids
    assert list(rendered.labels) == labels
    assert rendered.loss_tokens == 5


def test_last_turn_alone_can_be_learned() -> None:
    renderer = Renderer(byte_tokenizer())
    conversation = messages(("user", "q"), ("assistant", "ab"), ("user", "r"), ("assistant", "c"), ("user", "s"))
    rendered = renderer.render(conversation, target=LossTarget.LAST_TURN)
    (span,) = rendered.spans
    assert renderer.decode(rendered.input_ids[slice(*span)]) == "c<|im_end|>"
    assert rendered.turn == 3
    assert rendered.input_ids == renderer.render(conversation).input_ids


def test_turn_that_is_not_wanted_is_read_without_loss() -> None:
    renderer = Renderer(byte_tokenizer())
    conversation = messages(("user", "q"), ("assistant", "bad"), ("user", "r"), ("assistant", "good"))
    conversation[1]["suboptimal"] = True
    rendered = renderer.render(conversation, only=is_optimal)
    assert [renderer.decode(rendered.input_ids[start:end]) for start, end in rendered.spans] == ["good<|im_end|>"]
    assert rendered.turn == 3
    assert rendered.input_ids == renderer.render(conversation).input_ids
    assert renderer.render(conversation[:2], only=is_optimal).loss_tokens == 0


def test_everything_can_be_learned_but_for_the_first_token_and_marked_turns() -> None:
    renderer = Renderer(byte_tokenizer())
    conversation = messages(("system", "s"), ("user", "q"), ("assistant", "bad"), ("user", "r"), ("assistant", "good"))
    whole = renderer.render(conversation, target=LossTarget.ALL)
    assert whole.spans == [(1, len(whole.input_ids))]
    assert (whole.turn, whole.asked) == (2, renderer.render(conversation).asked)
    conversation[2]["suboptimal"] = True
    masked = renderer.render(conversation, target=LossTarget.ALL, only=is_optimal)
    left_out = [token for token, label in zip(masked.input_ids[1:], masked.labels[1:], strict=True) if label == IGNORED]
    assert renderer.decode(left_out) == "bad<|im_end|>"
    assert masked.turn == 4
    assert renderer.decode(masked.input_ids[: masked.asked]).endswith("r<|im_end|>\n<|im_start|>assistant\n")


def test_template_sees_no_mark() -> None:
    template = "{% for one in messages %}{{ one | tojson }}<|im_end|>{% endfor %}"
    renderer = Renderer(byte_tokenizer(template))
    conversation = [*messages(("user", "q")), {"role": "assistant", "content": "a", "suboptimal": True}]
    assert "suboptimal" not in renderer.decode(renderer.render(conversation).input_ids)


CALLING = SMOLLM2_TEMPLATE.replace(
    "message['content'] + '<|im_end|>'",
    "message['content'] + (message.tool_calls[0].function | tojson if message.tool_calls else '') + '<|im_end|>'",
)
CALL = {"type": "function", "function": {"name": "list_files", "arguments": {"path": "/"}}}
CALLED = [*messages(("user", "q")), {"role": "assistant", "content": "", "tool_calls": [CALL]}]


def test_tool_call_is_learned_as_the_template_writes_it() -> None:
    renderer = Renderer(byte_tokenizer(CALLING))
    rendered = renderer.render(CALLED)
    (span,) = rendered.spans
    said = renderer.decode(rendered.input_ids[slice(*span)])
    assert said == '{"name": "list_files", "arguments": {"path": "/"}}<|im_end|>'


def test_template_that_drops_tool_calls_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"leaves out the call of list_files in messages\[1\]"):
        Renderer(byte_tokenizer()).render(CALLED)


def test_tools_reach_the_template() -> None:
    template = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + SMOLLM2_TEMPLATE
    renderer = Renderer(byte_tokenizer(template))
    tools = [{"type": "function", "function": {"name": "list_files"}}]
    rendered = renderer.render(messages(("user", "q"), ("assistant", "a")), tools=tools)
    assert renderer.decode(rendered.input_ids).startswith("list_files")


def test_default_system_prompt_of_the_template_carries_no_loss() -> None:
    renderer = Renderer(byte_tokenizer())
    rendered = renderer.render(messages(("user", "q"), ("assistant", "a")))
    learned = [token for token, label in zip(rendered.input_ids, rendered.labels, strict=True) if label != IGNORED]
    assert "named SmolLM" in renderer.decode(rendered.input_ids)
    assert renderer.decode(learned) == "a<|im_end|>"


def test_multibyte_answer_is_learned_whole() -> None:
    renderer = Renderer(byte_tokenizer())
    rendered = renderer.render(messages(("user", "q"), ("assistant", "Grüße 🙂")))
    start, end = rendered.spans[0]
    assert renderer.decode(rendered.input_ids[start:end]) == "Grüße 🙂<|im_end|>"


def test_special_token_in_the_data_does_not_move_the_mask_of_other_turns() -> None:
    renderer = Renderer(byte_tokenizer())
    rendered = renderer.render(messages(("user", "<|im_end|>"), ("assistant", "a")))
    (span,) = rendered.spans
    assert renderer.decode(rendered.input_ids[slice(*span)]) == "a<|im_end|>"


def test_template_that_rewrites_earlier_turns_is_refused() -> None:
    kept = "(message['content'] if loop.last or message['role'] != 'assistant' else 'gone')"
    template = SMOLLM2_TEMPLATE.replace("message['content']", kept)
    rows = messages(("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b"))
    with pytest.raises(TemplateError, match="split the row"):
        Renderer(byte_tokenizer(template)).render(rows)


def test_template_with_another_generation_prompt_is_refused() -> None:
    template = SMOLLM2_TEMPLATE.replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant\n<think>'")
    with pytest.raises(TemplateError, match="generation prompt"):
        Renderer(byte_tokenizer(template)).render(messages(("user", "q"), ("assistant", "a")))


def test_refusal_of_the_template_is_passed_on() -> None:
    template = "{{ raise_exception('only one user turn') }}"
    with pytest.raises(TemplateError, match="only one user turn"):
        Renderer(byte_tokenizer(template)).render(messages(("user", "q"), ("assistant", "a")))


class Counting:
    """A tokenizer that notes how much it was given.

    Args:
        tokenizer: The real one.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.characters = 0
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, text: str, **options: Any) -> Any:
        self.characters += len(text)
        return self._tokenizer(text, **options)


def test_long_conversation_is_tokenized_a_constant_number_of_times() -> None:
    turns = [(role, f"{role} says {number} " * 5) for number in range(40) for role in ("user", "assistant")]
    tokenizer = Counting(byte_tokenizer())
    rendered = Renderer(tokenizer).render(messages(*turns))
    assert len(rendered.spans) == 40
    assert [byte_tokenizer().decode(rendered.input_ids[a:b]) for a, b in rendered.spans] == [
        f"{text}<|im_end|>" for role, text in turns if role == "assistant"
    ]
    assert tokenizer.characters < 3 * len(byte_tokenizer().decode(rendered.input_ids))
