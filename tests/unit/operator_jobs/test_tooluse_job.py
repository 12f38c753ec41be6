"""What a runner gets of a `toolUse` suite, and what the operator makes of an expert's help."""

from typing import Any

import pytest
from unit.operator.objects import finished_run
from whetstone_agent.api_key import without_keys
from whetstone_api.access import API_KEY_VARIABLE as RUNNER_KEY_VARIABLE
from whetstone_api.aliases import PromotionSpec
from whetstone_api.benchmark_result import RunResults
from whetstone_api.benchmark_suite import SuiteSpec
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmark_tooluse import (
    API_KEY_VARIABLE,
    OVERSEER_KEY_VARIABLE,
    RETRIEVER_KEY_VARIABLE,
    SCORER_KEY_VARIABLE,
    WITNESS_KEY_VARIABLE,
)
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.jobs import BenchmarkConfig, ToolUseConfig
from whetstone_api.vocabulary import Reason
from whetstone_operator.controllers.aliases import gather_evidence
from whetstone_operator.controllers.gates import judge_gates
from whetstone_operator.resources.benchmark import BenchmarkPlan, benchmark_config, benchmark_job
from whetstone_operator.settings import Settings

SETTINGS = Settings(
    server_image="r/server:1", trainer_image="r/trainer:1", benchmark_image="r/benchmark:1", operator_url="http://op"
)
SUITE: dict[str, Any] = {"environment": {"uri": "pvc://data/company"}, "instances": {"file": "test.json"}}


def plan(**suite: Any) -> BenchmarkPlan:
    spec = {
        "target": {"modelServerRef": {"name": "m"}},
        "suite": {"toolUse": {**SUITE, **suite}},
        "output": {"uri": "pvc://results/b"},
    }
    metadata = {"name": "b", "namespace": "n", "uid": "12345678-9abc-def0-1234-56789abcdef0"}
    return BenchmarkPlan(
        run=BenchmarkRun.model_validate({"metadata": metadata, "spec": spec}),
        target=MeasuredTarget(served_name="base"),
        server_url="http://m.n.svc/v1",
        adapter_source=None,
        baseline_output=None,
        settings=SETTINGS,
        retry=None,
    )


def pod_of(one: BenchmarkPlan) -> dict[str, Any]:
    spec: dict[str, Any] = benchmark_job(one)["spec"]["template"]["spec"]
    return spec


def secrets_of(one: BenchmarkPlan) -> dict[str, Any]:
    return {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for variable in pod_of(one)["containers"][0]["env"]
        if "valueFrom" in variable and "secretKeyRef" in variable["valueFrom"]
    }


def test_the_runner_reads_the_suite_and_where_it_lies() -> None:
    judge = {"model": "large", "modelServerRef": {"name": "judge"}}
    overseer = {"model": "o", "url": "https://o.example.com/v1"}
    expert = {"mode": "Informed", "witness": {"model": "w", "modelServerRef": {"name": "witness"}}}
    scorer = {"kind": "Judge", "judge": judge}
    config = benchmark_config(plan(scorer=scorer, overseer=overseer, expert=expert, horizon=4))
    assert isinstance(config, ToolUseConfig)
    assert (config.environment_path, config.tool_use.horizon) == ("/mnt/claims/data/company", 4)
    assert (config.scorer_url, config.overseer_url) == ("http://judge.n.svc/v1", "https://o.example.com/v1")
    assert config.witness_url == "http://witness.n.svc/v1"
    assert ToolUseConfig.model_validate_json(config.to_json()) == config


def test_only_the_runner_gets_the_keys_and_no_account() -> None:
    key = {"name": "keys", "key": "k"}
    judge = {"model": "large", "modelServerRef": {"name": "judge"}}
    overseer = {"model": "o", "url": "https://o.example.com/v1", "secretRef": key}
    expert = {"mode": "Informed", "witness": {**overseer, "secretRef": {"name": "keys", "key": "w"}}}
    one = plan(api={"secretRef": key}, scorer={"kind": "Judge", "judge": judge}, overseer=overseer, expert=expert)
    assert secrets_of(one) == {
        RUNNER_KEY_VARIABLE: {"name": "m-access", "key": "runner-key", "optional": True},
        API_KEY_VARIABLE: key,
        SCORER_KEY_VARIABLE: {"name": "judge-access", "key": "runner-key", "optional": True},
        OVERSEER_KEY_VARIABLE: key,
        WITNESS_KEY_VARIABLE: {"name": "keys", "key": "w"},
    }
    pod = pod_of(one)
    assert len(pod["containers"]) == 1
    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in pod["containers"][0]["volumeMounts"]}
    assert (mounts["/mnt/claims/data"], mounts["/mnt/claims/results"]) == (True, False)


def test_a_runner_keeps_every_key_that_it_is_given_out_of_what_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"name": "keys", "key": "k"}
    model = {"model": "m", "url": "https://m.example.com/v1", "secretRef": key}
    one = plan(
        api={"secretRef": key},
        retriever={"elasticsearch": {"url": "https://search:9200", "secretRef": key}},
        scorer={"kind": "Judge", "judge": model},
        overseer=model,
        expert={"mode": "Informed", "witness": model},
    )
    given = secrets_of(one)
    for variable in given:
        monkeypatch.setenv(variable, f"the-value-of-{variable}")
    assert len(given) == 6
    assert without_keys(" ".join(f"the-value-of-{variable}" for variable in given)) == " ".join(["***"] * 6)


def test_elasticsearchs_key_and_authority_reach_the_runner() -> None:
    key, authority = {"name": "keys", "key": "k"}, {"name": "ca", "key": "ca.crt"}
    search = {"url": "https://search:9200", "secretRef": key, "authority": authority}
    one = plan(retriever={"elasticsearch": search})
    assert secrets_of(one)[RETRIEVER_KEY_VARIABLE] == key
    suite = one.run.spec.suite.tool_use
    assert suite is not None
    assert suite.retriever is not None
    assert suite.retriever.elasticsearch.authority_path == "/mnt/configmaps/ca/ca.crt"
    assert "/mnt/configmaps/ca" in {mount["mountPath"] for mount in pod_of(one)["containers"][0]["volumeMounts"]}


def test_without_keys_the_runner_gets_that_of_the_server_alone() -> None:
    assert set(secrets_of(plan())) == {RUNNER_KEY_VARIABLE}


def test_an_environment_elsewhere_is_fetched_by_the_one_container_that_holds_its_secret() -> None:
    place = {"uri": "s3://sets/company", "digest": f"sha256:{'a' * 64}", "secretRef": {"name": "bucket"}}
    one = plan(environment=place)
    config = benchmark_config(one)
    assert isinstance(config, ToolUseConfig)
    [wanted] = config.fetched
    assert config.environment_path == wanted.path == "/mnt/tasks/environment"
    assert (wanted.uri, wanted.digest) == (place["uri"], place["digest"])
    assert (wanted.what, wanted.field) == ("Environment", "spec.suite.toolUse.environment (s3://sets/company)")
    assert wanted.secret_path == "/etc/whetstone/secrets/bucket"
    assert wanted.record_path.endswith("-environment.json")
    pod = pod_of(one)
    [fetch], [main] = pod["initContainers"], pod["containers"]
    held = {mount["mountPath"]: mount.get("readOnly", False) for mount in main["volumeMounts"]}
    assert held["/mnt/tasks"] is True
    assert wanted.secret_path not in held
    assert "/mnt/claims/data" not in held
    assert wanted.secret_path in {mount["mountPath"] for mount in fetch["volumeMounts"]}
    assert one.run.spec.suite.claims == {}


def test_each_secret_is_told_by_its_field() -> None:
    key = {"name": "keys", "key": "k"}
    judge = {"model": "m", "url": "http://j", "secretRef": key}
    scorer, retriever = {"kind": "Judge", "judge": judge}, {"elasticsearch": {"url": "http://s", "secretRef": key}}
    expert = {"mode": "Random", "witness": judge}
    one = plan(api={"secretRef": key}, scorer=scorer, overseer=judge, retriever=retriever, expert=expert)
    suite = one.run.spec.suite
    assert suite.tool_use is not None
    assert list(suite.tool_use.secrets) == [
        "spec.suite.toolUse.api.secretRef",
        "spec.suite.toolUse.retriever.elasticsearch.secretRef",
        "spec.suite.toolUse.scorer.judge.secretRef",
        "spec.suite.toolUse.overseer.secretRef",
        "spec.suite.toolUse.expert.witness.secretRef",
    ]


@pytest.mark.parametrize(
    ("suite", "makes_pods", "beside", "claims"),
    [
        ({"toolUse": SUITE}, False, False, {"spec.suite.toolUse.environment.uri": "data"}),
        ({"harbor": {"dataset": {"uri": "pvc://t"}}}, True, False, {"spec.suite.harbor.dataset.uri": "t"}),
        (
            {"harbor": {"dataset": {"uri": "pvc://t"}, "environment": {"kind": "Process"}}},
            False,
            True,
            {"spec.suite.harbor.dataset.uri": "t"},
        ),
    ],
)
def test_what_a_suite_needs_follows_from_its_kind(
    suite: dict[str, Any], makes_pods: bool, beside: bool, claims: dict[str, str]
) -> None:
    spec = SuiteSpec.model_validate(suite)
    assert (spec.makes_pods, spec.beside_runner, spec.claims) == (makes_pods, beside, claims)


@pytest.mark.parametrize(
    ("mode", "status", "reason"), [("None", "True", Reason.GATES_PASSED), ("Random", "False", Reason.EXPERT_ASSISTED)]
)
def test_a_run_that_an_expert_helped_passes_no_gate(mode: str, status: str, reason: Reason) -> None:
    spec = plan(expert={"mode": mode}).run.spec.model_copy(update={"gates": []})
    spec = type(spec).model_validate({**spec.to_wire(), "gates": [{"metric": "Mean", "minimum": "0"}]})
    results = RunResults(tasks=4, trials=4, mean="1", strict_mean="1", coverage="1", void=0)
    told = judge_gates(spec, results=results, comparison=None, contaminated=[])
    assert (told.status, told.reason) == (status, reason)


@pytest.mark.parametrize(("mode", "counted"), [("None", ["run"]), ("GroundTruth", [])])
def test_a_run_that_an_expert_helped_is_no_evidence(mode: str, counted: list[str]) -> None:
    run = finished_run("run", minute=1)
    suite = plan(expert={"mode": mode}).run.spec.suite
    run = run.model_copy(update={"spec": run.spec.model_copy(update={"suite": suite})})
    promotion = PromotionSpec.model_validate({"benchmarkSelector": {"matchLabels": {"suite": "shell"}}})
    assert [one.run for one in gather_evidence([run], server="server", promotion=promotion)] == counted


def test_contaminated_instances_are_left_out_by_a_field_that_there_is() -> None:
    results = RunResults(tasks=4, trials=4, mean="1", strict_mean="1", coverage="1", void=0)
    told = judge_gates(plan().run.spec, results=results, comparison=None, contaminated=["i1"])
    assert "spec.suite.toolUse.instances" in told.message


def test_a_harbor_suite_is_configured_as_before() -> None:
    one = plan()
    suite = SuiteSpec.model_validate({"harbor": {"dataset": {"uri": "pvc://data/tasks"}}})
    spec = one.run.spec.model_copy(update={"suite": suite})
    run = one.run.model_copy(update={"spec": spec})
    config = benchmark_config(BenchmarkPlan(**{**vars(one), "run": run}))
    assert isinstance(config, BenchmarkConfig)
    assert config.dataset_path == "/mnt/claims/data/tasks"
