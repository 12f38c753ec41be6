"""Where a run keeps the verdicts on its tasks' own solutions, and what the operator tells of the check."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prometheus_client import REGISTRY
from unit.operator_jobs.test_job_manifests import make_benchmark_plan, mounts_of
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.reports import ProgressReport
from whetstone_operator.controllers.benchmarkrun import _claim_fields
from whetstone_operator.controllers.run_progress import forget_trials, progress_of, report_trials
from whetstone_operator.kinds import Key
from whetstone_operator.resources.benchmark import BenchmarkPlan, benchmark_config, benchmark_job
from whetstone_operator.runtime.progress import Reported

KEY = Key("benchmarkruns", "n", "b")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def plan(oracle: dict[str, Any] | None) -> BenchmarkPlan:
    whole = make_benchmark_plan()
    wire = whole.run.model_dump(mode="json", by_alias=True, exclude_none=True)
    wire["spec"]["suite"]["harbor"] |= {"oracle": oracle} if oracle is not None else {}
    return replace(whole, run=BenchmarkRun.model_validate(wire))


def place(oracle: dict[str, Any] | None) -> tuple[str | None, str | None]:
    config = benchmark_config(plan(oracle))
    return config.verdicts_uri, config.verdicts_path


def test_verdicts_are_kept_for_all_runs_with_results_on_the_same_claim() -> None:
    assert place({}) == ("pvc://results/oracle-verdicts", "/mnt/claims/results/oracle-verdicts")
    assert place(None) == (None, None)


def test_verdicts_are_kept_where_the_run_says_so_and_the_runner_may_write_there() -> None:
    named = {"verdicts": {"uri": "pvc://shared/checked"}}
    assert place(named) == ("pvc://shared/checked", "/mnt/claims/shared/checked")
    assert mounts_of(benchmark_job(plan(named)))["/mnt/claims/shared"] is False
    assert "/mnt/claims/shared" not in mounts_of(benchmark_job(plan({})))
    beside_tasks = {"verdicts": {"uri": "pvc://data/checked"}}
    assert mounts_of(benchmark_job(plan(beside_tasks)))["/mnt/claims/data"] is False
    assert mounts_of(benchmark_job(plan({})))["/mnt/claims/data"] is True


def test_a_claim_of_verdicts_that_is_missing_is_named_by_its_field() -> None:
    fields = _claim_fields(plan({"verdicts": {"uri": "pvc://shared/checked"}}))
    assert fields["spec.suite.harbor.oracle.verdicts.uri"] == "shared"
    assert "spec.suite.harbor.oracle.verdicts.uri" not in _claim_fields(plan(None))


def test_solutions_are_progress_of_a_run_and_no_trials_of_its_series() -> None:
    def passed() -> float | None:
        labels = {"namespace": "n", "name": "b", "state": "passed"}
        return REGISTRY.get_sample_value("whetstone_benchmarkrun_trials", labels)

    forget_trials(KEY)
    at_solutions = Reported(ProgressReport(phase="Oracle", step=3, max_steps=4, passed=3), NOW)
    report_trials(KEY, at_solutions)
    assert passed() is None
    assert (progress_of(at_solutions).phase, progress_of(at_solutions).finished) == ("Oracle", 3)
    report_trials(KEY, Reported(ProgressReport(phase="Trials", step=1, max_steps=4, passed=1), NOW))
    assert passed() == 1
    forget_trials(KEY)
