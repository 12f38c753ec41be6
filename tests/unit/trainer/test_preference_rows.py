"""Pairs in all their forms: one prompt, two sides, and a score for nothing but the assistant's tokens after it."""

from decimal import Decimal
from typing import Any

import pytest
from datasets import Dataset
from support.preferences import pair_row, said
from support.trainer_job import FIELD, SMOLLM2_TEMPLATE, Job, byte_tokenizer
from whetstone_api.training_preference import Granularity
from whetstone_artifacts.data.formats import FormatError
from whetstone_artifacts.data.pairs import Pair, to_pair
from whetstone_trainer.errors import UserError
from whetstone_trainer.preference_rows import RenderedPair, render_pair
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.prepared import PREPARED_FOLDER, ROWS_FILE
from whetstone_trainer.recipe import read_recipe
from whetstone_trainer.render import IGNORED, Renderer, TemplateError

pytestmark = pytest.mark.torch

ASKED = [said("user", "q")]
GOOD, BAD = said("assistant", "good"), said("assistant", "bad")
PLAIN = Pair(prompt=ASKED, chosen=[GOOD], rejected=[BAD])


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": ASKED, "chosen": [GOOD], "rejected": [BAD]},
        {"messages": ASKED, "chosen": GOOD, "rejected": BAD},
        {
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "good"},
            "rejected": {"from": "gpt", "value": "bad"},
        },
        {"chosen": [*ASKED, GOOD], "rejected": [*ASKED, BAD]},
        {"prompt": "q", "chosen": [*ASKED, GOOD], "rejected": [*ASKED, BAD]},
    ],
    ids=["text", "messages", "one message", "ShareGPT", "implicit prompt", "repeated prompt"],
)
def test_every_form_is_the_same_pair(row: dict[str, Any]) -> None:
    assert to_pair(row, Granularity.STEP) == PLAIN


TOOLED = [said("assistant", "look"), said("tool", "files"), said("assistant", "done")]


def learned(renderer: Renderer, ids: list[int], labels: list[int]) -> list[str]:
    """Return the runs of text that are scored."""
    runs: list[list[int]] = []
    before = IGNORED
    for token, label in zip(ids, labels, strict=True):
        if label != IGNORED:
            assert label == token
            runs = [*runs, [token]] if before == IGNORED else [*runs[:-1], [*runs[-1], token]]
        before = label
    return [renderer.decode(run) for run in runs]


def test_only_the_assistant_after_the_prompt_is_scored() -> None:
    renderer = Renderer(byte_tokenizer())
    prompt = [*ASKED, said("assistant", "earlier"), said("user", "r")]
    row = {"prompt": prompt, "chosen": TOOLED, "rejected": [*TOOLED[:2], said("assistant", "stuck")]}
    pair = to_pair(row, Granularity.TRAJECTORY)
    rendered = render_pair(renderer, pair, tools=None)
    assert learned(renderer, rendered.input_ids, rendered.labels) == ["look<|im_end|>", "done<|im_end|>"]
    assert learned(renderer, rendered.rejected_ids, rendered.rejected_labels) == ["look<|im_end|>", "stuck<|im_end|>"]
    assert rendered.tokens == len(rendered.input_ids) + len(rendered.rejected_ids)
    assert rendered.longest == max(len(rendered.input_ids), len(rendered.rejected_ids))
    assert rendered.loss_tokens == len("look" + "done" + "look" + "stuck") + 4


def test_what_both_conversations_begin_with_is_the_prompt() -> None:
    begin = [*ASKED, *TOOLED[:2]]
    row = {"chosen": [*begin, GOOD], "rejected": [*begin, BAD]}
    assert to_pair(row, Granularity.STEP) == Pair(prompt=begin, chosen=[GOOD], rejected=[BAD])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "q", "chosen": "a"}, "has no `rejected`; method DPO learns from pairs"),
        ({"messages": [*ASKED, GOOD]}, "has no `chosen`"),
        ({"chosen": "a", "rejected": "b"}, "has no `prompt`; add the question"),
        (
            {"prompt": "q", "messages": ASKED, "chosen": "a", "rejected": "b"},
            "has messages and prompt; give the prompt",
        ),
        ({"chosen": [GOOD], "rejected": [BAD]}, "answer no common question"),
        ({"prompt": "q", "chosen": "a", "rejected": "a"}, "are the same, so neither is better"),
        ({"prompt": "q", "chosen": 3, "rejected": "a"}, "`chosen` must be text, or a list of messages"),
        ({"prompt": "q", "chosen": "a", "rejected": " "}, "rejected.content of the assistant is blank"),
        ({"chosen": [*ASKED, GOOD], "rejected": [*ASKED, GOOD, BAD]}, "`chosen` has no turn of the assistant"),
        ({"prompt": "q", "chosen": TOOLED, "rejected": "b"}, "preference.granularity Step compares one turn"),
    ],
)
def test_wrong_pair_is_refused_by_row(job: Job, row: dict[str, Any], words: str) -> None:
    job.values["method"] = "DPO"
    job.write([pair_row("q", "a", "b"), row])
    with pytest.raises(UserError) as caught:
        prepare_data(job.config, read_recipe(job.config))
    assert caught.value.reason == "DatasetInvalid"
    assert caught.value.message.startswith(f"{FIELD}, row 2: ")
    assert words in caught.value.message


def test_pair_is_refused_where_conversations_are_learned_from(job: Job) -> None:
    job.write([pair_row("q", "a", "b")])
    with pytest.raises(UserError, match=r"row 1: is a pair of `chosen` and `rejected`; set spec.method to DPO"):
        prepare_data(job.config, read_recipe(job.config))


def test_report_and_samples_show_both_sides(job: Job) -> None:
    job.values["method"] = "DPO"
    job.write([pair_row("q", "good", "bad"), pair_row("q", "good", "bad"), pair_row("q", "good", "worse")])
    report = prepare_data(job.config, read_recipe(job.config))
    assert (report.dataset.rows, report.dataset.duplicates) == (2, 1)
    assert report.dataset.loss_tokens == len("good" + "bad" + "good" + "worse") + 4
    shown = report.samples[0]
    assert [part.text for part in shown.segments if part.learned] == ["good<|im_end|>"]
    assert [part.text for part in shown.rejected or [] if part.learned] == ["bad<|im_end|>"]
    assert report.dataset.tokens > 2 * report.dataset.longest


def test_longer_side_counts_against_the_limit(job: Job) -> None:
    job.values["method"] = "DPO"
    job.write([pair_row("q", "good", "b" * 300)])
    with pytest.raises(UserError, match=r"row 1: has 3.. tokens, the limit is 256"):
        prepare_data(job.config, read_recipe(job.config))


def test_pairs_lose_the_ends_of_both_sides_where_the_job_says_so(job: Job) -> None:
    """One pair fits, one is cut on both sides, one has only its prompt left, and one ends the same once it is cut."""
    rows = [("q", "a", "b"), ("r", "a" * 40, "b" * 30), ("p" * 40, "a", "b"), ("s", "c" * 30 + "d", "c" * 30 + "e")]
    job.write([pair_row(*row) for row in rows])
    prompt = 31
    job.values |= {
        "method": "DPO",
        "hyperparameters": {**job.values["hyperparameters"], "maxLength": prompt + 8},
        "preparation": {"tooLong": "Truncate", "maximumTooLong": "1"},
    }
    report = prepare_data(job.config, read_recipe(job.config)).dataset
    assert (report.rows, report.truncated, report.dropped) == (2, 1, 2)
    fits, truncated = Dataset.from_file(str(job.workspace / PREPARED_FOLDER / ROWS_FILE)).to_list()
    assert [label != IGNORED for label in fits["labels"]].index(True) == prompt
    assert len(fits["input_ids"]) < len(truncated["input_ids"]) == len(truncated["rejected_ids"]) == prompt + 8
    for ids, labels, letter in (("input_ids", "labels", "a"), ("rejected_ids", "rejected_labels", "b")):
        learned = byte_tokenizer()(letter * 8)["input_ids"]
        assert truncated[ids][prompt:] == truncated[labels][prompt:] == learned
        assert set(truncated[labels][:prompt]) == {IGNORED}
    assert truncated["input_ids"][:prompt] == truncated["rejected_ids"][:prompt]


def test_how_pairs_are_compared_is_part_of_the_recipe(job: Job) -> None:
    job.write([pair_row("q", "good", "bad")])
    plain = read_recipe(job.config)
    assert "preference" not in plain.content
    job.values["method"] = "DPO"
    default = read_recipe(job.config)
    assert default.settings.learning_rate == Decimal(job.values["hyperparameters"]["learningRate"])
    job.values["preference"] = {"losses": [{"type": "Sigmoid", "weight": "1.0"}], "beta": "1e-1"}
    assert read_recipe(job.config).digest == default.digest
    digests = {plain.digest, default.digest}
    for change in ({"beta": "0.2"}, {"granularity": "Trajectory"}, {"losses": [{"type": "Ipo"}]}):
        job.values["preference"] = change
        digests.add(read_recipe(job.config).digest)
    assert len(digests) == 5


@pytest.mark.parametrize(("method", "rate"), [("SFT", "2e-4"), ("DPO", "5e-6")])
def test_learning_rate_goes_by_the_method_where_none_is_given(job: Job, method: str, rate: str) -> None:
    job.values["method"] = method
    del job.values["hyperparameters"]["learningRate"]
    assert read_recipe(job.config).settings.learning_rate == Decimal(rate)


def marked(*marks: bool) -> list[dict[str, Any]]:
    """Turns of the assistant with the results of its tools between them, some of them marked."""
    turns: list[dict[str, Any]] = []
    for number, mark in enumerate(marks):
        turns += [said("assistant", f"a{number}", suboptimal=mark), said("tool", "t")]
    return turns[:-1]


@pytest.mark.parametrize(
    ("rejected", "scored"),
    [((True, False, True), ["a0", "a2"]), ((False, False, False), ["a0", "a1", "a2"])],
    ids=["marks", "no marks"],
)
def test_marked_turns_are_not_raised_and_others_not_lowered(rejected: tuple[bool, ...], scored: list[str]) -> None:
    row = {"prompt": "q", "chosen": marked(False, True, False), "rejected": [*marked(*rejected), said("user", "?")]}
    pair = to_pair(row, Granularity.TRAJECTORY)
    renderer = Renderer(byte_tokenizer())
    masked = render_pair(renderer, pair, tools=None, mask_suboptimal=True)
    assert learned(renderer, masked.input_ids, masked.labels) == ["a0<|im_end|>", "a2<|im_end|>"]
    assert learned(renderer, masked.rejected_ids, masked.rejected_labels) == [f"{one}<|im_end|>" for one in scored]
    plain = render_pair(renderer, pair, tools=None)
    assert len(learned(renderer, plain.input_ids, plain.labels)) == 3
    assert plain.input_ids == masked.input_ids


def test_mark_is_no_difference_between_the_sides() -> None:
    begin = [*ASKED, said("assistant", "a", suboptimal=True), said("user", "r")]
    row = {"chosen": [*begin, GOOD], "rejected": [*ASKED, said("assistant", "a"), said("user", "r"), BAD]}
    assert len(to_pair(row, Granularity.STEP).prompt) == 3
    with pytest.raises(FormatError, match="are the same"):
        to_pair({"prompt": "q", "chosen": GOOD, "rejected": {**GOOD, "suboptimal": True}}, Granularity.STEP)


def test_chosen_side_of_marked_turns_alone_is_refused(job: Job) -> None:
    job.values |= {"method": "DPO", "loss": {"maskSuboptimal": True}}
    job.write([pair_row("q", {**GOOD, "suboptimal": True}, BAD)])
    with pytest.raises(UserError, match=r"row 1: `chosen` has no token to score"):
        prepare_data(job.config, read_recipe(job.config))


def test_side_that_the_template_cannot_render_is_named() -> None:
    call = {"type": "function", "function": {"name": "ls", "arguments": {}}}
    pair = Pair(prompt=ASKED, chosen=[GOOD], rejected=[said("assistant", "", tool_calls=[call])])
    with pytest.raises(TemplateError, match=r"`rejected`, with the prompt before it: .* leaves out the call of ls"):
        render_pair(Renderer(byte_tokenizer()), pair, tools=None)


def test_trajectory_that_the_template_rewrites_is_refused_and_its_steps_are_not() -> None:
    kept = "(message['content'] if loop.last or message['role'] != 'assistant' else 'gone')"
    renderer = Renderer(byte_tokenizer(SMOLLM2_TEMPLATE.replace("message['content']", kept)))
    pair = Pair(prompt=ASKED, chosen=TOOLED, rejected=[BAD])
    with pytest.raises(TemplateError, match=r"`chosen`: .* make pairs of single turns"):
        render_pair(renderer, pair, tools=None)
    step = render_pair(renderer, Pair(prompt=[*ASKED, *TOOLED[:2]], chosen=[GOOD], rejected=[BAD]), tools=None)
    assert learned(renderer, step.input_ids, step.labels) == ["good<|im_end|>"]
    assert "gone" in renderer.decode(step.input_ids)


def test_tools_of_the_row_reach_the_template() -> None:
    template = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + SMOLLM2_TEMPLATE
    renderer = Renderer(byte_tokenizer(template))
    rendered = render_pair(renderer, PLAIN, tools=[{"type": "function", "function": {"name": "list_files"}}])
    assert isinstance(rendered, RenderedPair)
    for ids in (rendered.input_ids, rendered.rejected_ids):
        assert renderer.decode(ids).startswith("list_files")
