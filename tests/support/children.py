"""Every kind of pod that the operator makes, as its builders make them."""

from collections.abc import Mapping
from typing import Any

from support.charts import OPERATOR, rendered
from whetstone_api.benchmark_target import MeasuredTarget
from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.source import Source
from whetstone_operator.resources.benchmark import BenchmarkPlan, benchmark_job
from whetstone_operator.resources.modelserver import build_template
from whetstone_operator.resources.training import MERGE, PREPARE, TRAIN, TrainingPlan, training_job
from whetstone_operator.settings import Settings

_UID = "12345678-9abc-def0-1234-56789abcdef0"
_BUCKET = {"uri": "s3://sets/basic", "digest": "sha256:" + "a" * 64, "secretRef": {"name": "bucket"}}
_SERVER: Mapping[str, Any] = {
    "model": {"source": {"uri": "hf://owner/model@" + "a" * 40}, "servedName": "base"},
    "adapterStores": [{"name": "store", "uri": "s3://adapters", "secretRef": {"name": "bucket"}}],
}
_TRAINING: Mapping[str, Any] = {
    "baseModel": {"source": {"uri": "pvc://models/base"}},
    "datasets": [{"name": "d", "source": {"uri": "s3://data/rows.jsonl", "secretRef": {"name": "bucket"}}}],
    "workspace": {"claimName": "work"},
    "output": {"adapter": {"uri": "pvc://adapters/a"}, "merged": {"uri": "pvc://merged/a"}},
}
_KEY = {"secretRef": {"name": "keys", "key": "token"}}
_TOOL_USE: Mapping[str, Any] = {
    "environment": {"uri": "pvc://data/company"},
    "instances": {"file": "test.json"},
    "scorer": {"kind": "Judge", "judge": {"model": "m", "url": "https://scorer/v1", **_KEY}},
}
_RUN: Mapping[str, Any] = {
    "target": {"modelServerRef": {"name": "server"}},
    "suite": {"harbor": {"dataset": _BUCKET}},
    "agent": {"importPath": "mine:Agent", "source": {"uri": "https://h/agent.tar"}},
    "output": {"uri": "pvc://results/run"},
}


def pods_of(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the pod specs by what they are for.

    Args:
        settings: What the administrator decided.
    """
    return {name: template["spec"] for name, template in templates_of(settings).items()}


def templates_of(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the templates of pods by what they are for, with their labels.

    Args:
        settings: What the administrator decided.
    """
    server = ModelServer.model_validate(_wire("server", _SERVER))
    found = {"engine": build_template(server, settings)}
    for stage in (PREPARE, TRAIN, MERGE):
        found[stage] = _training(settings, stage)["spec"]["template"]
    several = {"distributed": {"nodes": 2}, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    found["train on several nodes"] = _training(settings, TRAIN, **several)["spec"]["template"]
    if settings.unsloth_image:
        found["train with Unsloth"] = _training(settings, TRAIN, backend="Unsloth")["spec"]["template"]
    found["benchmark"] = _benchmark(settings)
    judge = {"model": "m", "url": "https://judge/v1", **_KEY}
    harbor = {"dataset": {"uri": "pvc://data/tasks"}, "environment": {"kind": "Process"}}
    found["benchmark with a judge"] = _benchmark(settings, judge=judge, shards=2)
    found["benchmark without pods"] = _benchmark(settings, suite={"harbor": harbor}, agent={"name": "whetstone"})
    found["tool use"] = _benchmark(settings, suite={"toolUse": _TOOL_USE})
    return found


def operators_template(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the operator's pods with a chart's values."""
    found: dict[str, Any] = next(
        one["spec"]["template"] for one in rendered(OPERATOR, values) if one["kind"] == "Deployment"
    )
    return found


def operators_pod(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the operator's pods with a chart's values."""
    spec: dict[str, Any] = operators_template(values)["spec"]
    return spec


def variables_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of the operator that are given by value."""
    return {one["name"]: one["value"] for one in pod["containers"][0]["env"] if "value" in one}


def all_pods(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the pods of the operator and of everything that it makes, with a chart's values."""
    pod = operators_pod(values)
    return {"operator": pod, **pods_of(Settings.from_environment(variables_of(pod)))}


def containers_of(pod: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all containers of a pod by their names."""
    return {one["name"]: one for one in (*pod.get("initContainers", ()), *pod["containers"])}


def _benchmark(settings: Settings, **changes: Any) -> dict[str, Any]:
    plan = BenchmarkPlan(
        run=BenchmarkRun.model_validate(_wire("run", {**_RUN, **changes})),
        target=MeasuredTarget(served_name="base"),
        server_url="http://server.ns.svc/v1",
        adapter_source=None,
        baseline_output=None,
        settings=settings,
        retry=None,
    )
    template: dict[str, Any] = benchmark_job(plan)["spec"]["template"]
    return template


def _training(settings: Settings, stage: str, **changes: Any) -> dict[str, Any]:
    job = LoRATrainingJob.model_validate(_wire("train", {**_TRAINING, **changes}))
    plan = TrainingPlan(job=job, base=Source(uri="pvc://models/base"), init=None, settings=settings, retry=None)
    return training_job(plan, stage)


def _wire(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": _UID, "generation": 1}, "spec": dict(spec)}
