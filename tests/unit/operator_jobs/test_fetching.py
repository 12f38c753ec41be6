"""The container that fetches tasks and agents: what it holds, and that nobody else holds it."""

from dataclasses import replace
from typing import Any

import pytest
from unit.operator_jobs.test_job_manifests import SETTINGS, UID, pod_of
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.vocabulary import REPORT_TOKEN_PATH
from whetstone_operator.resources.benchmark import BenchmarkPlan, benchmark_config, benchmark_job, run_job_name

DIGEST = "sha256:" + "a" * 64
BUCKET = {"uri": "s3://sets/basic", "digest": DIGEST, "secretRef": {"name": "bucket"}}
ARCHIVE = {"configMapRef": {"name": "tiny", "key": "set.tar.gz"}}
AGENT = {"importPath": "mine:Agent", "source": {"uri": "https://h/agent.tar", "secretRef": {"name": "web"}}}
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def plan(*, dataset: dict[str, Any], agent: dict[str, Any] | None = None, **spec: Any) -> BenchmarkPlan:
    wanted = {
        "target": {"modelServerRef": {"name": "m"}},
        "suite": {"harbor": {"dataset": dataset}},
        "agent": agent or {},
        "output": {"uri": "pvc://results/b"},
        **spec,
    }
    return BenchmarkPlan(
        run=BenchmarkRun.model_validate({"metadata": {"name": "b", "namespace": "n", "uid": UID}, "spec": wanted}),
        target=MeasuredTarget(served_name="m"),
        server_url="http://m.n.svc/v1",
        adapter_source=None,
        baseline_output=None,
        settings=SETTINGS,
        retry=None,
    )


def pod(**fields: Any) -> dict[str, Any]:
    return pod_of(benchmark_job(plan(**fields)))


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    """Return whether each mounted path is writable."""
    return {one["mountPath"]: not one.get("readOnly", False) for one in container["volumeMounts"]}


def test_tasks_of_a_claim_are_not_fetched() -> None:
    assert "initContainers" not in pod(dataset={"uri": "pvc://data/tasks"})
    assert benchmark_config(plan(dataset={"uri": "pvc://data/tasks"})).fetched == []


def test_only_the_container_that_fetches_holds_the_secret() -> None:
    rendered = pod(dataset=BUCKET, agent=AGENT)
    [fetch, agent], [main] = rendered["initContainers"], rendered["containers"]
    assert fetch["name"] == "fetch"
    assert {"/etc/whetstone/secrets/bucket", "/etc/whetstone/secrets/web"} < set(mounts(fetch))
    for other in (agent, main):
        assert not any("secrets/bucket" in path or "secrets/web" in path for path in mounts(other))
    assert [one for one in rendered["volumes"] if "secret" in one] == [
        {"name": "secret-bucket", "secret": {"secretName": "bucket"}},
        {"name": "secret-web", "secret": {"secretName": "web"}},
    ]


def test_what_was_fetched_is_read_only_for_all_others() -> None:
    rendered = pod(dataset=BUCKET, agent=AGENT)
    [fetch, agent], [main] = rendered["initContainers"], rendered["containers"]
    assert mounts(fetch)["/mnt/tasks"] is mounts(fetch)["/mnt/agent"] is True
    assert mounts(main)["/mnt/tasks"] is mounts(main)["/mnt/agent"] is mounts(agent)["/mnt/agent"] is False
    assert "/mnt/tasks" not in mounts(agent)
    limited = {one["name"]: one["emptyDir"] for one in rendered["volumes"] if "emptyDir" in one}
    assert limited["tasks"] == limited["agent-code"] == {"sizeLimit": "20Gi"}


def test_the_container_that_fetches_holds_no_token_of_kubernetes() -> None:
    rendered = pod(dataset=BUCKET)
    [fetch], [main] = rendered["initContainers"], rendered["containers"]
    assert rendered["automountServiceAccountToken"] is False
    assert ACCOUNT in mounts(main)
    assert ACCOUNT not in mounts(fetch)
    tokens = [path for path in mounts(fetch) if path.startswith("/var/run/secrets")]
    assert tokens == [REPORT_TOKEN_PATH.rpartition("/")[0]], "only what is good for reports to the operator"


@pytest.mark.parametrize("agent", [{}, AGENT])
def test_a_runner_whose_trials_are_processes_still_holds_no_token(agent: dict[str, Any]) -> None:
    suite = {"harbor": {"dataset": BUCKET, "environment": {"kind": "Process"}}}
    rendered = pod(dataset=BUCKET, agent=agent, suite=suite)
    assert rendered["automountServiceAccountToken"] is False
    assert ACCOUNT not in mounts(rendered["containers"][0])


def test_the_configuration_says_what_is_fetched_and_where_it_is_recorded() -> None:
    run = plan(dataset=BUCKET, agent=AGENT)
    config = benchmark_config(run)
    tasks, agent = config.fetched
    job = run_job_name(run.run, None)
    assert config.dataset_path == tasks.path == "/mnt/tasks/set"
    assert config.agent_path == agent.path == "/mnt/agent/code"
    assert (tasks.uri, tasks.digest, tasks.secret_path) == (BUCKET["uri"], DIGEST, "/etc/whetstone/secrets/bucket")
    assert tasks.field == "spec.suite.harbor.dataset (s3://sets/basic)"
    assert agent.field == "spec.agent.source (https://h/agent.tar)"
    assert tasks.record_path == f"/mnt/claims/results/b/sources/{job}-tasks.json"
    assert agent.record_path == f"/mnt/claims/results/b/sources/{job}-agent.json"
    again = benchmark_config(replace(run, retry="1")).fetched[0]
    assert again.record_path != tasks.record_path


def test_an_archive_in_a_config_map_is_unpacked_and_mounted_there_alone() -> None:
    rendered = pod(dataset=ARCHIVE)
    [fetch], [main] = rendered["initContainers"], rendered["containers"]
    [wanted] = benchmark_config(plan(dataset=ARCHIVE)).fetched
    assert (wanted.uri, wanted.archive_path) == (None, "/mnt/configmaps/tiny/set.tar.gz")
    [name] = [one["name"] for one in fetch["volumeMounts"] if one["mountPath"] == "/mnt/configmaps/tiny"]
    assert {"name": name, "configMap": {"name": "tiny"}} in rendered["volumes"]
    assert "/mnt/configmaps/tiny" not in mounts(main)


PACKED_CODE = {"importPath": "mine:Agent", "source": {"uri": "pvc://code/agent.zip"}}


def test_archives_in_claims_are_unpacked_by_the_container_that_fetches() -> None:
    run = plan(dataset={"uri": "pvc://data/sets/basic.zip"}, agent=PACKED_CODE)
    tasks, agent = benchmark_config(run).fetched
    assert (tasks.uri, tasks.archive_path, tasks.path) == (None, "/mnt/claims/data/sets/basic.zip", "/mnt/tasks/set")
    assert (agent.uri, agent.archive_path, agent.path) == (None, "/mnt/claims/code/agent.zip", "/mnt/agent/code")
    rendered = pod(dataset={"uri": "pvc://data/sets/basic.zip"}, agent=PACKED_CODE)
    fetch, beside = rendered["initContainers"]
    held = mounts(fetch)
    assert held["/mnt/claims/data"] is held["/mnt/claims/code"] is False
    assert held["/mnt/claims/results"] is True
    claims = [one["name"] for one in rendered["volumes"] if "persistentVolumeClaim" in one]
    assert claims == ["claim-code", "claim-data", "claim-results"]
    assert not any(path.startswith("/mnt/claims") for path in mounts(beside))


def test_an_archive_in_the_claim_of_the_results_is_read_through_its_one_mount() -> None:
    rendered = pod(dataset={"uri": "pvc://results/basic.tgz"})
    places = [one["mountPath"] for one in rendered["initContainers"][0]["volumeMounts"]]
    assert places.count("/mnt/claims/results") == 1
    assert mounts(rendered["initContainers"][0])["/mnt/claims/results"] is True


def test_an_environment_of_questions_may_be_an_archive_in_a_claim() -> None:
    suite = {"toolUse": {"environment": {"uri": "pvc://data/company.zip"}, "instances": {"file": "test.json"}}}
    run = plan(dataset={}, suite=suite)
    [wanted] = benchmark_config(run).fetched
    assert wanted.archive_path == "/mnt/claims/data/company.zip"
    assert run.run.spec.suite.claims == {"spec.suite.toolUse.environment.uri": "data"}


def test_wrong_input_ends_the_job_and_a_stop_counts_as_no_failure() -> None:
    rules = benchmark_job(plan(dataset=BUCKET))["spec"]["podFailurePolicy"]["rules"]
    found = {
        (rule["onExitCodes"]["containerName"], *rule["onExitCodes"]["values"]): rule["action"]
        for rule in rules
        if "onExitCodes" in rule
    }
    assert found == {
        ("main", 65): "FailJob",
        ("fetch", 65): "FailJob",
        ("main", 143): "Ignore",
        ("fetch", 143): "Ignore",
    }


def test_the_container_that_fetches_has_the_resources_of_the_run_or_a_bound_of_its_own() -> None:
    [fetch] = pod(dataset=BUCKET)["initContainers"]
    assert fetch["resources"]["limits"] == {"memory": "1Gi"}
    [fetch] = pod(dataset=BUCKET, resources={"limits": {"memory": "4Gi"}})["initContainers"]
    assert fetch["resources"] == {"limits": {"memory": "4Gi"}}


def test_the_image_of_the_run_fetches() -> None:
    rendered = pod(dataset=BUCKET, image="mine:1")
    assert rendered["initContainers"][0]["image"] == rendered["containers"][0]["image"] == "mine:1"
