"""The container of a user's agent: what it can read, and what it cannot."""

from typing import Any

import pytest
from unit.operator_jobs.test_job_manifests import SETTINGS, UID, pod_of
from whetstone_api.access import API_KEY_VARIABLE
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_operator.resources.benchmark import BenchmarkPlan, benchmark_config, benchmark_job

CODE = {"configMapRef": {"name": "mine"}}, {"source": {"uri": "pvc://data/agent"}}
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def plan(agent: dict[str, Any]) -> BenchmarkPlan:
    spec = {
        "target": {"modelServerRef": {"name": "m"}},
        "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
        "agent": agent,
        "output": {"uri": "pvc://results/b"},
    }
    metadata = {"name": "b", "namespace": "n", "uid": UID}
    return BenchmarkPlan(
        run=BenchmarkRun.model_validate({"metadata": metadata, "spec": spec}),
        target=MeasuredTarget(served_name="m"),
        server_url="http://m.n.svc/v1",
        adapter_source=None,
        baseline_output=None,
        settings=SETTINGS,
        retry=None,
    )


def pod(agent: dict[str, Any]) -> dict[str, Any]:
    return pod_of(benchmark_job(plan(agent)))


def volumes(pod: dict[str, Any], container: dict[str, Any]) -> list[dict[str, Any]]:
    names = {mount["name"] for mount in container["volumeMounts"]}
    return [volume for volume in pod["volumes"] if volume["name"] in names]


def tokens(volumes: list[dict[str, Any]]) -> int:
    sources = [source for volume in volumes for source in volume.get("projected", {}).get("sources", [])]
    return sum("serviceAccountToken" in source for source in sources)


@pytest.mark.parametrize("place", CODE)
def test_the_code_of_a_user_can_read_no_token_and_no_key(place: dict[str, Any]) -> None:
    rendered = pod({"importPath": "mine:Agent", **place})
    [agent] = rendered["initContainers"]
    [main] = rendered["containers"]
    assert rendered["automountServiceAccountToken"] is False
    assert rendered.get("shareProcessNamespace", False) is False
    assert tokens(volumes(rendered, agent)) == 0
    assert API_KEY_VARIABLE not in {one["name"] for one in agent["env"]}
    # The runner keeps both of its tokens: of its account, and for its reports.
    assert tokens(volumes(rendered, main)) == 2
    assert ACCOUNT in {mount["mountPath"] for mount in main["volumeMounts"]}


@pytest.mark.parametrize("place", CODE)
def test_both_containers_find_the_code_and_only_read_it(place: dict[str, Any]) -> None:
    fields = {"importPath": "mine:Agent", **place}
    rendered, path = pod(fields), benchmark_config(plan(fields)).agent_path
    [agent] = rendered["initContainers"]
    assert agent["args"][-2:] == ["--code", path]
    [mount] = [one for one in agent["volumeMounts"] if one["mountPath"] == path]
    assert mount["readOnly"] is True
    assert mount["name"] in {volume["name"] for volume in rendered["volumes"]}
    assert any(path.startswith(one["mountPath"]) for one in rendered["containers"][0]["volumeMounts"])


def test_of_a_claim_only_the_folder_of_the_code_is_mounted() -> None:
    [agent] = pod({"importPath": "mine:Agent", **CODE[1]})["initContainers"]
    [mount] = [one for one in agent["volumeMounts"] if one["mountPath"].startswith("/mnt/claims")]
    assert (mount["mountPath"], mount["subPath"]) == ("/mnt/claims/data/agent", "agent")


def test_both_containers_share_the_folder_of_the_socket() -> None:
    rendered = pod({"importPath": "mine:Agent", **CODE[0]})
    [agent], [main] = rendered["initContainers"], rendered["containers"]
    shared = {one["name"] for one in agent["volumeMounts"]} & {one["name"] for one in main["volumeMounts"]}
    assert shared == {"agent-link", "map-0"}


def test_an_agent_by_name_has_no_container_of_its_own() -> None:
    rendered = pod({})
    assert "initContainers" not in rendered
    assert rendered["automountServiceAccountToken"] is True
