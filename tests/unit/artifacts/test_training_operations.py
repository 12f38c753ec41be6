"""How many operations a training takes, beside what was measured."""

from dataclasses import replace

import pytest
from support.model_facts import LLAMA_3B
from whetstone_artifacts.training_operations import Work, training_operations

WORK = Work(tokens=1000, row=2048)
MATRICES, ATTENTION = 2_818_572_288 + 3072 * 128256, 28 * 24 * 128 * 2048


@pytest.mark.parametrize(
    ("work", "passes"),
    [
        (WORK, 2),
        (replace(WORK, checkpointing=True), 3),
        (replace(WORK, reference=True), 3),
        (replace(WORK, checkpointing=True, reference=True), 4),
    ],
)
def test_each_pass_takes_two_operations_for_a_number(work: Work, passes: int) -> None:
    assert training_operations(LLAMA_3B, work) == passes * 2 * (MATRICES + ATTENTION) * 1000


def test_longer_rows_attend_to_more() -> None:
    short, long = (training_operations(LLAMA_3B, replace(WORK, row=row)) for row in (1, 100_000))
    assert short is not None
    assert long is not None
    assert long > 2 * short


def test_packed_weights_do_not_tell() -> None:
    assert training_operations(LLAMA_3B.model_copy(update={"quantization": "awq"}), WORK) is None


@pytest.mark.parametrize(
    ("row", "tokens_per_second", "teraflops"),
    [(210, 17_974, 232), (2048, 18_537, 251), (8192, 16_055, 252), (768, 11_168, 146)],
)
def test_rates_measured_on_one_h100_are_what_the_page_says(row: int, tokens_per_second: int, teraflops: int) -> None:
    operations = training_operations(LLAMA_3B, Work(tokens=tokens_per_second, row=row))
    assert operations is not None
    assert operations / 1e12 == pytest.approx(teraflops, abs=1)
