"""Series, alerts and dashboards against a real operator, promtool and Prometheus."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, RESULTS, World
from support.prometheus import ALERTS, lint, program, running
from support.waiting import eventually
from whetstone_dev.versions import PROMETHEUS

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent


def test_prometheus_is_as_new_as_the_docs_say() -> None:
    told = subprocess.run([program("prometheus"), "--version"], text=True, capture_output=True, check=True)
    found = re.search(r"version (\d+)\.(\d+)", told.stdout + told.stderr)
    assert found is not None
    assert (int(found[1]), int(found[2])) >= tuple(int(part) for part in PROMETHEUS.split("."))


def test_alerts_fire_for_what_they_name_and_for_nothing_else(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yaml")
    shutil.copy(HERE / "alerts.yaml", tmp_path / "tests.yaml")
    done = subprocess.run(
        [program("promtool"), "test", "rules", "tests.yaml"], cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = (tmp_path / "tests.yaml").read_text()
    untested = [line for line in ALERTS.read_text().splitlines() if "- alert: " in line]
    assert not [line for line in untested if f"alertname: {line.split()[-1]}" not in tested]


def test_series_keep_to_prometheus_rules(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train()
    world.wait_job("train", "prepare")
    text = httpx.get(operator.report_url("").replace("v1/reports/", "metrics"), trust_env=False).text
    assert lint(text) == ""


def test_state_of_an_object_is_told_and_goes_with_it(world: World, operator: OperatorProcess) -> None:
    labels = {"kind": "LoRATrainingJob", "namespace": world.namespace, "name": "train"}
    world.claims()
    world.train()
    name = "whetstone_status_condition"
    eventually(lambda: operator.metric(name, **labels, type="Ready", status="False") == 1, what="not Ready")
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    world.end_well(world.wait_job("train", "train"), adapter=ADAPTER, metrics={})
    eventually(lambda: operator.metric(name, **labels, type="Ready", status="True") == 1, what="Ready")
    assert operator.metric(name, **labels, type="Ready", status="False") == 0
    world.api.delete("LoRATrainingJob", "train", namespace=world.namespace)
    eventually(lambda: operator.metric(name, **labels) == 0, what="no series")


def test_figures_of_a_run_are_series(serving: World, operator: OperatorProcess) -> None:
    serving.benchmark()
    target = {"servedName": "base"}
    results = {**RESULTS, "mean": "0.25"}
    serving.end_well(serving.wait_job("run", "run"), results=results, target=target, finishedAt="2026-01-01T00:00:00Z")
    serving.wait_reason("BenchmarkRun", "run", "Succeeded", condition="Complete")
    labels = {"namespace": serving.namespace, "name": "run", "served": "base"}
    figure = "whetstone_benchmarkrun_score"
    eventually(lambda: operator.metric(figure, **labels, figure="mean") == 0.25, what="the mean")
    assert operator.metric(figure, **labels, figure="interval_high") == 0.8


def test_figures_of_a_run_that_is_not_valid_are_no_series_but_what_tells_why(
    serving: World, operator: OperatorProcess
) -> None:
    serving.benchmark()
    spoiled = {**RESULTS, "void": 4, "coverage": "0.5"}
    serving.end_well(serving.wait_job("run", "run"), results=spoiled, target={"servedName": "base"})
    serving.wait_reason("BenchmarkRun", "run", "TooManyErrors", condition="Valid")
    labels = {"namespace": serving.namespace, "name": "run", "served": "base"}
    figure = "whetstone_benchmarkrun_score"
    eventually(lambda: operator.metric(figure, **labels, figure="coverage") == 0.5, what="the coverage")
    assert operator.metric(figure, **labels, figure="mean") == 0


def test_every_query_of_a_dashboard_can_be_run(tmp_path: Path) -> None:
    with running(tmp_path, scrape=[], host="127.0.0.1") as prometheus:
        for path in sorted((ALERTS.parents[1] / "dashboards").glob("*.json")):
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel["targets"]:
                    prometheus.query(target["expr"].replace("$namespace", ".*").replace("$server", ".*"))
