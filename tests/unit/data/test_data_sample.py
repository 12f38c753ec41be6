"""`whetstone data sample`: rows that were drawn, on a page that a browser shows and that is safe to open."""

import json
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from support.browser import headless_browser, visit
from support.data_rows import LS, asked, call, called, conversation, said, write_rows
from whetstone_artifacts.data.example import read_example
from whetstone_artifacts.data.review import Sampled, draw
from whetstone_cli.__main__ import main
from whetstone_cli.exits import EXIT_INVALID

HOSTILE = "</pre><script>document.title = 'taken'</script><img src='http://example.com/x'>"


def sampled(count: int, start: int = 0) -> list[Sampled]:
    return [
        Sampled(file="f", row=number, example=read_example(asked(f"question {number}")))
        for number in range(start, start + count)
    ]


def test_the_same_seed_draws_the_same_rows_in_order_and_added_rows_put_few_out() -> None:
    drawn = draw(sampled(200), 20, 0)
    assert [one.row for one in drawn] == sorted({one.row for one in drawn})
    assert len(drawn) == 20
    assert drawn == draw(sampled(200), 20, 0) != draw(sampled(200), 20, 1)
    more = draw(sampled(220), 20, 0)
    assert len({one.row for one in more} & {one.row for one in drawn}) >= 15


def test_the_page_shows_rows_takes_verdicts_and_runs_nothing_of_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        conversation(
            said("user", HOSTILE),
            called(call(path="/srv")),
            said("tool", "data"),
            said("assistant", "data"),
            tools=[LS],
        ),
        {"prompt": "Which?", "chosen": "This one.", "rejected": "That one."},
    ]
    path = write_rows(tmp_path / 'odd".jsonl', rows)
    page = tmp_path / "review.html"
    assert main(["data", "sample", str(path), "-n", "5", "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: 2 of 2 rows\n"
    with headless_browser() as browser:
        assert visit(browser, page) == []
        assert browser.title == "2 rows for review"
        first, second = browser.find_elements(By.TAG_NAME, "article")
        assert HOSTILE in first.text
        assert 'ls {"path": "/srv"}' in first.text
        assert "tool calls: single" in first.text
        assert second.text.index("This one.") < second.text.index("Rejected") < second.text.index("That one.")
        second.find_element(By.CSS_SELECTOR, "input[value=rejected]").click()
        second.find_element(By.CSS_SELECTOR, "input[type=text]").send_keys("both are bad")
        told = browser.find_element(By.ID, "verdicts").get_property("value")
        assert isinstance(told, str)
        assert [json.loads(line) for line in told.splitlines()] == [
            {"file": str(path), "row": 2, "verdict": "rejected", "note": "both are bad"}
        ]
        assert browser.find_element(By.ID, "told").text == "1 of 2 judged"


def test_there_must_be_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [])
    assert main(["data", "sample", str(path), "-o", str(tmp_path / "r.html")]) == EXIT_INVALID
    assert "there are no rows" in capsys.readouterr().err
