"""Several processes and pods for one training: their number, their Job, their Service, and whose ending counts."""

import json
from typing import Any

import pytest
from unit.operator_jobs.test_job_manifests import make_training, make_training_plan, pod_of
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_distributed import World
from whetstone_operator.controllers.job_outcome import Failed, Succeeded, judge
from whetstone_operator.resources.distributed import world_of, world_problem
from whetstone_operator.resources.training import training_config_map, training_job, training_service


def test_one_process_for_each_gpu_unless_the_spec_says_how_many() -> None:
    assert world_of(make_training()) == World(nodes=1, processes_per_node=1)
    gpus = {"limits": {"nvidia.com/gpu": 4, "cpu": "8"}}
    assert world_of(make_training(resources=gpus)).processes_per_node == 4
    assert world_of(make_training(resources={"limits": {"nvidia.com/gpu": "2"}})).ranks == 2
    two = make_training(distributed={"nodes": 3, "processesPerNode": 2})
    assert world_of(two).ranks == 6


def test_other_number_of_processes_than_gpus_is_a_problem() -> None:
    job = make_training(distributed={"processesPerNode": 2}, resources={"limits": {"nvidia.com/gpu": 4}})
    problem = world_problem(job)
    assert problem is not None
    assert "processesPerNode is 2" in problem
    assert "4 GPUs" in problem
    assert world_problem(make_training(distributed={"processesPerNode": 2})) is None
    assert world_problem(make_training(distributed={"nodes": 2}, resources={"limits": {"nvidia.com/gpu": 4}})) is None


@pytest.mark.parametrize("strategy", ["FSDP", "ZeRO2", "ZeRO3"])
def test_one_process_shares_nothing_out(strategy: str) -> None:
    problem = world_problem(make_training(distributed={"strategy": strategy}))
    assert problem is not None
    assert f"spec.distributed.strategy is {strategy}" in problem
    assert world_problem(make_training(distributed={"strategy": strategy, "nodes": 2})) is None


def test_unsloth_on_several_gpus_is_a_problem() -> None:
    gpus = {"limits": {"nvidia.com/gpu": 2}}
    problem = world_problem(make_training(backend="Unsloth", resources=gpus))
    assert problem is not None
    assert "spec.backend is Unsloth" in problem
    assert world_problem(make_training(backend="Unsloth", resources={"limits": {"nvidia.com/gpu": 1}})) is None


def test_trainer_is_told_its_world() -> None:
    plan = make_training_plan(make_training(distributed={"nodes": 2, "processesPerNode": 4}))
    config = TrainingConfig.model_validate_json(training_config_map(plan)["data"]["config.json"])
    assert config.world == World(nodes=2, processes_per_node=4)


def test_several_pods_are_an_indexed_job_whose_pods_have_names() -> None:
    plan = make_training_plan(make_training(distributed={"nodes": 2}))
    job, service = training_job(plan, "train"), training_service(plan)
    assert service is not None
    name = job["metadata"]["name"]
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 2, 2)
    assert job["spec"]["backoffLimit"] == 13
    assert pod_of(job)["subdomain"] == service["metadata"]["name"] == name
    variables = {one["name"]: one.get("value") for one in pod_of(job)["containers"][0]["env"]}
    assert variables["WHETSTONE_RENDEZVOUS"] == f"{name}-0.{name}"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}


def test_variables_of_the_network_reach_the_processes_and_nothing_else() -> None:
    env = [{"name": "NCCL_SOCKET_IFNAME", "value": "eth1"}]
    plan = make_training_plan(make_training(distributed={"processesPerNode": 2, "env": env}))
    assert env[0] in pod_of(training_job(plan, "train"))["containers"][0]["env"]
    assert env[0] not in pod_of(training_job(plan, "prepare"))["containers"][0]["env"]


def test_one_pod_has_neither_index_nor_service() -> None:
    plan = make_training_plan(make_training(distributed={"processesPerNode": 2}))
    assert training_service(plan) is None
    assert "completionMode" not in training_job(plan, "train")["spec"]
    several = make_training_plan(make_training(distributed={"nodes": 2}))
    assert "completionMode" not in training_job(several, "prepare")["spec"]


def ended(index: int, *, outcome: str, minute: int, message: str = "") -> dict[str, Any]:
    report = {"outcome": outcome, "reason": "Succeeded" if outcome == "Succeeded" else "DatasetInvalid"}
    text = json.dumps({**report, "message": message, "result": {"adapter": {}} if index == 0 else {}})
    terminated = {"exitCode": 0, "finishedAt": f"2026-01-01T00:{minute:02}:00Z", "message": text}
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    return {"metadata": {"name": f"p-{index}-{minute}", "labels": labels}, "status": status}


def job_with(condition: str) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "reason": "PodFailurePolicy"}]
    return {"metadata": {"name": "j"}, "spec": {}, "status": {"conditions": conditions}}


def test_result_is_that_of_the_first_pod_whoever_ends_last() -> None:
    pods = [ended(0, outcome="Succeeded", minute=1), ended(1, outcome="Succeeded", minute=2)]
    outcome = judge(job_with("Complete"), pods)
    assert isinstance(outcome, Succeeded)
    assert outcome.report.result == {"adapter": {}}


@pytest.mark.parametrize("index", [0, 1])
def test_wrong_input_that_any_pod_finds_is_the_cause(index: int) -> None:
    other = 1 - index
    pods = [ended(index, outcome="Failed", minute=1, message="row 7"), ended(other, outcome="Retry", minute=2)]
    outcome = judge(job_with("Failed"), pods)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.message) == ("DatasetInvalid", "row 7")
