"""Pages of real runs in a real browser; their trials are local processes, their model is a stand-in."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.browser import headless_browser, visit
from unit.agent.conftest import write_task
from unit.agent.fake_model import FakeModel
from unit.agent.test_run import lazy, obedient, run, trial_folder
from whetstone_agent.harness import EnvironmentChoice
from whetstone_api.benchmark_result import RunComparison, Verdict
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.reports import Outcome
from whetstone_artifacts.report import make_page
from whetstone_artifacts.report.words import verdict_sentence
from whetstone_cli.__main__ import main

type Configure = Callable[..., BenchmarkConfig]
type StartModel = Callable[..., Awaitable[tuple[FakeModel, str]]]

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'></pre></details>\"'><svg onload=hacked()>"
    "{{ 7 * 7 }}{% raw %}\x1b[31mred\x1b[0m\x1b]0;title\x07\x00\u202etxt.exe<iframe src='https://example.com/'></iframe>"
    "<style>body{display:none}</style><link rel=stylesheet href=https://example.com/a.css>]]><!--</script>"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """One browser for all tests."""
    with headless_browser() as one:
        yield one


def page_of(config: BenchmarkConfig) -> Path:
    return Path(config.output_path) / "report.html"


def results_of(config: BenchmarkConfig) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((Path(config.output_path) / "results.json").read_text())
    return found


def half_obedient(messages: list[dict[str, str]]) -> str:
    """Solve tasks 0 and 1; run into an error in the others."""
    if re.search(r"done_[23]", messages[-1]["content"]):
        return "```bash\ncat /no/such/file_7\n```"
    return "DONE" if "No such file" in messages[-1]["content"] else obedient(messages)


async def test_the_page_shows_what_results_json_says_and_asks_for_nothing(
    configure: Configure, local: EnvironmentChoice, model: StartModel, browser: Chrome
) -> None:
    _, url = await model(half_obedient)
    config = configure(serverUrl=url, attempts=2)
    await run(config, local)
    assert visit(browser, page_of(config)) == []
    figures = results_of(config)["results"]
    for key in ("mean", "strictMean", "coverage", "void", "promptTokens", "completionTokens", "durationSeconds"):
        assert browser.find_element(By.CSS_SELECTOR, f'[data-figure="{key}"]').text == str(figures[key])
    interval = figures["interval"]
    assert isinstance(interval, dict)
    assert f"Mean 0.5 (95 % interval {interval['low']} to {interval['high']})" in browser.page_source
    signs = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#tasks .cell")]
    assert sorted(signs) == ["✓"] * 4 + ["✗"] * 4
    pattern = browser.find_element(By.CSS_SELECTOR, ".patterns tbody tr").text
    assert "4 exit code 1: cat: PATH: No such file or directory" in pattern


async def test_trials_fold_sort_and_are_reached_by_keyboard(
    configure: Configure, local: EnvironmentChoice, model: StartModel, browser: Chrome
) -> None:
    _, url = await model(half_obedient)
    config = configure(serverUrl=url)
    await run(config, local)
    visit(browser, page_of(config))
    trial = browser.find_element(By.ID, "r1-3-1")
    command = trial.find_element(By.CSS_SELECTOR, "pre.command")
    assert not command.is_displayed()
    browser.find_element(By.CSS_SELECTOR, 'a[href="#r1-3-1"]').send_keys(Keys.ENTER)
    browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert command.is_displayed()
    assert command.text == "cat /no/such/file_7"
    assert "No such file" in trial.find_element(By.CSS_SELECTOR, "pre.output").text
    trial.find_element(By.TAG_NAME, "summary").send_keys(Keys.SPACE)
    assert not command.is_displayed()
    by_mean = browser.find_elements(By.CSS_SELECTOR, "#tasks th button")[2]
    by_mean.send_keys(Keys.ENTER)
    names = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#tasks tbody td:first-child")]
    assert names[0] in ("task-2", "task-3")
    assert names[-1] in ("task-0", "task-1")


async def test_a_hostile_sandbox_neither_runs_in_the_page_nor_breaks_it(
    configure: Configure, local: EnvironmentChoice, model: StartModel, browser: Chrome, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a file of the runner")
    _, url = await model(lambda messages: obedient(messages) if "DONE" in str(messages) else HOSTILE)
    config = configure(serverUrl=url)
    await run(config, local)
    page_of(config).unlink()
    noise = HOSTILE.encode() + b"\xff\xfe\x80" + b"long line " * 200_000
    first, second, third = (trial_folder(config, f"task-{number}") for number in range(3))
    (first / "verifier" / "test-stdout.txt").write_bytes(noise)
    (first / "agent" / "trajectory.json").write_text(
        json.dumps(
            {
                "steps": [
                    {
                        "source": HOSTILE,
                        "message": [{"type": "text", "text": HOSTILE}, 7],
                        "metrics": {"prompt_tokens": -1},
                    },
                    {"message": HOSTILE * 999, "tool_calls": [{"arguments": HOSTILE}, None], "observation": [HOSTILE]},
                    "no object",
                ]
            }
        )
    )
    (second / "agent" / "trajectory.json").write_text("[" * 100_000)
    (second / "verifier" / "test-stdout.txt").unlink()
    (second / "verifier" / "test-stdout.txt").symlink_to(secret)
    (third / "agent" / "trajectory.json").write_text(json.dumps({"steps": {"a": 1}}))
    await run(config, local)
    assert visit(browser, page_of(config)) == []
    assert browser.execute_script("return window.hacked") is None
    counts = {name: len(browser.find_elements(By.TAG_NAME, name)) for name in ("script", "style", "img", "iframe")}
    assert counts == {"script": 1, "style": 1, "img": 0, "iframe": 0}
    assert len(browser.find_elements(By.CSS_SELECTOR, "main > section > details.trial")) == 4
    text = page_of(config).read_text()
    assert not set(text) & set("\x00\x1b\u202e")
    assert "a file of the runner" not in text
    assert "characters are not shown" in text
    assert len(text) < 100_000


async def test_nothing_of_a_page_runs_but_its_own_script(
    configure: Configure, local: EnvironmentChoice, browser: Chrome
) -> None:
    config = configure(agent={"name": "nop"})
    await run(config, local)
    page = page_of(config)
    page.write_text(page.read_text().replace("<main>", "<script>window.hacked = 1</script><main>"))
    assert "Content Security Policy" in str(visit(browser, page))
    assert browser.execute_script("return window.hacked") is None


async def test_the_page_of_a_compared_run_has_the_verdict_and_both_runs(
    configure: Configure, local: EnvironmentChoice, model: StartModel, browser: Chrome
) -> None:
    baseline = configure(name="baseline", agent={"name": "nop"})
    await run(baseline, local)
    fields = {"agent": {"name": "nop"}, "baselineName": "baseline", "baselinePath": baseline.output_path}
    config = configure(**fields)
    await run(config, local)
    assert visit(browser, page_of(config)) == []
    assert browser.find_element(By.ID, "verdict").text.startswith("Inconclusive. No difference to baseline")
    heads = [head.text for head in browser.find_elements(By.CSS_SELECTOR, "#figures th.n")]
    assert heads == ["candidate", "baseline"]
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tasks .cell")) == 8


async def test_a_finished_page_stays_and_another_comparison_makes_it_anew(
    configure: Configure, local: EnvironmentChoice
) -> None:
    config = configure(agent={"name": "nop"})
    await run(config, local)
    first = page_of(config).stat().st_ino
    await run(config, local)
    assert page_of(config).stat().st_ino == first
    baseline = configure(name="baseline", agent={"name": "nop"})
    await run(baseline, local)
    compared = {"baselineName": "baseline", "baselinePath": baseline.output_path}
    await run(configure(agent={"name": "nop"}, **compared), local)
    assert 'id="verdict"' in page_of(config).read_text()


async def test_a_page_that_cannot_be_written_takes_nothing_from_the_run(
    configure: Configure, local: EnvironmentChoice
) -> None:
    config = configure(agent={"name": "nop"})
    (page_of(config) / "in the way").mkdir(parents=True)
    report = await run(config, local)
    assert report.outcome is Outcome.SUCCEEDED


async def test_runs_side_by_side_are_compared_as_the_operator_would(
    configure: Configure, local: EnvironmentChoice, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = []
    for name, agent, attempts in (("base", "nop", 1), ("better", "oracle", 1), ("more", "nop", 2)):
        config = configure(name=name, agent={"name": agent}, attempts=attempts)
        await run(config, local)
        folders.append(config.output_path)
    page = tmp_path / "all.html"
    assert main(["report", *folders, "-o", str(page)]) == 0
    text = page.read_text()
    assert text == make_page([Path(folder) for folder in folders])
    assert "Not comparable with base: run and baseline differ in the agent (spec.agent)" in text
    assert "Not comparable with base: run and baseline differ in spec.attempts: 2 here, 1 in the baseline" in text
    shared = '<tr><td>no trajectory</td><td class="n"><a href="#r1-1-1">4</a></td><td class="n">0</td>'
    assert shared + '<td class="n"><a href="#r3-1-1">8</a></td></tr>' in text
    assert "Of 2 at once, chance calls one different more often" in text
    assert 'id="verdict"' not in text
    assert "Every scored trial got 1, so these tasks cannot tell such models apart." in text


async def test_tasks_that_were_not_run_are_named_with_the_reason(
    configure: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    (dataset / "task-3" / "instruction.md").unlink()
    suite = {"dataset": {"uri": "pvc://data/tasks"}, "refused": "Exclude"}
    config = configure(agent={"name": "nop"}, suite=suite)
    await run(config, local)
    text = page_of(config).read_text()
    assert "Tasks of the suite that were not run: 1; the score says nothing of them." in text
    assert "<td>task-3</td><td>Invalid</td><td>" in text
    assert "has no instruction.md" in text


async def test_what_the_tasks_own_solutions_scored_is_told(
    configure: Configure, local: EnvironmentChoice, dataset: Path, tmp_path: Path
) -> None:
    (dataset / "task-3" / "solution" / "solve.sh").unlink()
    (dataset / "task-2" / "solution" / "solve.sh").write_text("#!/bin/bash\necho '<no mirror>'\n")
    suite = {"dataset": {"uri": "pvc://data/tasks"}, "refused": "Exclude", "oracle": {}}
    place = {"verdictsPath": str(tmp_path / "verdicts"), "verdictsUri": "pvc://data/verdicts"}
    config = configure(agent={"name": "nop"}, suite=suite, **place)
    await run(config, local)
    text = page_of(config).read_text()
    assert "2 tasks were solved by their own solutions here; 1 have none, so nothing vouches for them." in text
    assert "<td>task-2</td><td>OracleFailed</td><td>" in text
    assert "its solution wrote: &lt;no mirror&gt;" in text


async def test_a_verdict_of_two_folders_is_that_of_a_run_with_that_baseline(
    configure: Configure, local: EnvironmentChoice, model: StartModel, dataset: Path
) -> None:
    for number in range(4, 8):
        write_task(dataset, f"task-{number}", file=f"done_{number}.txt")
    (_, lazy_url), (_, able_url) = await model(lazy), await model(obedient)
    base, able = configure(name="base", serverUrl=lazy_url), configure(name="able", serverUrl=able_url)
    await run(base, local)
    alone = await run(able, local)
    fields = {"baselineName": "base", "baselinePath": base.output_path}
    compared = await run(configure(name="able", serverUrl=able_url, **fields), local)
    assert "comparison" not in alone.result
    comparison = RunComparison.model_validate(compared.result["comparison"])
    assert comparison.verdict is Verdict.BETTER
    text = make_page([Path(able.output_path)], Path(base.output_path))
    assert f"<td>{verdict_sentence(comparison)}</td>" in text
    assert "chance calls" not in text


async def test_a_run_whose_engines_changed_has_no_verdict_and_gives_none(
    configure: Configure, local: EnvironmentChoice
) -> None:
    folders = {}
    for name in ("base", "spoiled", "good"):
        config = configure(name=name, agent={"name": "nop"})
        await run(config, local)
        folders[name] = Path(config.output_path)
    results = json.loads((folders["spoiled"] / "results.json").read_text())
    results["engineCheck"] = {"checkedAt": "2026-01-01T00:00:00Z", "change": "the image became another"}
    (folders["spoiled"] / "results.json").write_text(json.dumps(results))
    beside = make_page([folders["spoiled"]], folders["base"])
    assert "<td>Nothing: spoiled is not valid, the image became another.</td>" in beside
    assert "Not valid: the image became another. Mean 0" in beside
    against = make_page([folders["good"]], folders["spoiled"])
    assert "Not comparable with spoiled: the baseline is not valid: the image became another" in against


def test_a_folder_without_results_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 1
    assert f"{tmp_path}/results.json cannot be read (No such file or directory)" in capsys.readouterr().err
    (tmp_path / "results.json").write_text("{}")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 1
    assert "is not the results of a BenchmarkRun" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
