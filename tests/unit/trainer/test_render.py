"""The loss covers exactly what the assistant says, end of turn included."""

import pytest
from support.trainer_job import SMOLLM2_TEMPLATE, byte_tokenizer
from whetstone_trainer.render import IGNORED, Renderer, TemplateError

pytestmark = pytest.mark.torch


def messages(*pairs: tuple[str, str]) -> list[dict[str, str]]:
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
    assert rendered.labels == labels
    assert rendered.loss_tokens == 5


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
