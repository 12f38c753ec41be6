"""The page of conditions."""

from pathlib import Path

from whetstone_api.conditions_page import main, page
from whetstone_api.vocabulary import Annotation, ConditionType, Reason

CHECKOUT = Path(__file__).parents[3]


def test_page_is_current() -> None:
    assert main(["--check", "--root", str(CHECKOUT)]) == 0


def test_every_word_has_a_row_with_a_sentence() -> None:
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    for word in (*ConditionType, *Reason, *Annotation):
        assert "As recommended" not in rows[word.value], word


def test_reasons_are_grouped_by_kind() -> None:
    text = page()
    assert text.index("### ModelServer") < text.index("`Serving`") < text.index("### LoRATrainingJob")
