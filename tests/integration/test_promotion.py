"""Aliases that move on evidence: the real operator, real sidecars at fake engines, and runs that end as told."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from integration.api import Object
from integration.engine_pods import SERVER_SPEC, Kubelet
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, RUN_SPEC, World
from support.fake_vllm import BASE
from support.waiting import eventually
from whetstone_api.digests import versioned_name
from whetstone_api.vocabulary import ADAPTER_HEADER, API_VERSION

pytestmark = pytest.mark.integration
LABELS = {"suite": "shell"}
SUITE = "sha256:" + "5" * 64
PROMOTION: Object = {
    "benchmarkSelector": {"matchLabels": LABELS},
    "suiteDigest": SUITE,
    "minimumTasks": 8,
    "gates": [{"metric": "Mean", "minimum": "0.5"}],
}


@pytest.fixture
def kubelet(world: World, operator: OperatorProcess, tmp_path: Path) -> Iterator[Kubelet]:
    """The pods of the test's namespace run."""
    world.claims()
    world.account()
    with Kubelet(world, operator, tmp_path / "node") as running:
        yield running


def measure(world: World, name: str, verdict: str, *, mean: str = "0.5", suite: str = SUITE) -> None:
    """Run a benchmark of the adapter `tuned` to its end."""
    metadata = {"name": name, "labels": LABELS}
    spec = {
        **RUN_SPEC,
        "target": {"modelServerRef": {"name": "server"}, "adapter": "tuned"},
        "output": {"uri": f"pvc://results/{name}"},
    }
    run = {"apiVersion": API_VERSION, "kind": "BenchmarkRun", "metadata": metadata, "spec": spec}
    world.api.create(run, namespace=world.namespace)
    job = world.wait_job(name, "run")
    comparison = {"baseline": "baseline", "verdict": verdict}
    world.end_well(job, results={**RESULTS, "mean": mean}, comparison=comparison, suiteDigest=suite)
    world.wait_reason("BenchmarkRun", name, "Succeeded", condition="Complete")


def alias(world: World) -> Object:
    """Return the status of the server's only alias."""
    found: Object = world.get("ModelServer", "server")["status"]["aliases"][0]
    return found


def wait_served(world: World, kubelet: Kubelet, served: str) -> Object:
    """Wait until the alias serves a version in status and on both replicas; return its status."""

    def everywhere() -> Object:
        status = alias(world)
        assert status["servedName"] == served, f"{status}"
        for pod in kubelet.running(2):
            body = {"model": "assistant", "prompt": "x"}
            answer = httpx.post(f"{pod.url}/v1/completions", json=body, trust_env=False)
            assert answer.headers[ADAPTER_HEADER] == served
        return status

    return eventually(everywhere, what=f"the alias serves {served}")


def give(world: World, **spec: Any) -> None:
    """Change the server's spec as a user does."""
    world.api.merge("ModelServer", "server", {"spec": spec}, namespace=world.namespace)


def wait_effective(world: World, version: str) -> None:
    """Wait until a version of `tuned` is effective on both replicas."""

    def found() -> bool:
        adapter = world.get("ModelServer", "server")["status"]["adapters"][0]
        assert (adapter.get("servedName"), adapter["effectiveReplicas"]) == (version, 2), f"{adapter}"
        return True

    eventually(found, what=f"{version} is effective")


def test_alias_moves_on_evidence_back_on_worse_and_nowhere_when_pinned(
    world: World, operator: OperatorProcess, kubelet: Kubelet
) -> None:
    sources = [kubelet.claims.publish(name, alpha=alpha) for name, alpha in (("first", 50), ("second", 80))]
    first, second = (versioned_name("tuned", source["digest"]) for source in sources)
    promoted = [{"name": "assistant", "promotion": PROMOTION}]
    adapter = {"name": "tuned", "source": sources[0]}
    world.create("ModelServer", "server", {**SERVER_SPEC, "replicas": 2, "adapters": [adapter], "aliases": promoted})
    kubelet.running(2)
    wait_effective(world, first)
    measure(world, "weak", "Better", mean="0.49")
    measure(world, "elsewhere", "Better", suite="sha256:" + "6" * 64)
    assert [move["reason"] for move in wait_served(world, kubelet, BASE)["history"]] == ["Initial"]
    measure(world, "good", "Better")
    assert wait_served(world, kubelet, first)["history"][0]["benchmarkRun"] == "good"

    give(world, adapters=[{"name": "tuned", "source": sources[1]}])
    wait_effective(world, second)
    wait_served(world, kubelet, first)
    measure(world, "better", "Better")
    wait_served(world, kubelet, second)
    measure(world, "check", "Worse")
    status = wait_served(world, kubelet, first)
    assert [(move["reason"], move.get("benchmarkRun"), move["servedName"]) for move in status["history"]] == [
        ("Rollback", "check", first),
        ("Promotion", "better", second),
        ("Promotion", "good", first),
        ("Initial", None, BASE),
    ]

    operator.kill()
    for run in world.api.list("BenchmarkRun", namespace=world.namespace):
        world.api.delete("BenchmarkRun", run["metadata"]["name"], namespace=world.namespace)
    operator.start()
    give(world, aliases=[{"name": "assistant", "targets": [{"adapter": "tuned"}]}])
    pinned = wait_served(world, kubelet, second)["history"]
    assert [move["reason"] for move in pinned[:2]] == ["Spec", "Rollback"]
    give(world, aliases=promoted)
    assert wait_served(world, kubelet, BASE)["history"][0]["reason"] == "Initial"
    server = world.get("ModelServer", "server")
    assert server["spec"]["aliases"] == promoted
    assert server["metadata"]["generation"] == 4


def test_adapter_trained_elsewhere_is_unknown_and_promoted_on_evidence_of_its_own(
    world: World, kubelet: Kubelet
) -> None:
    source = kubelet.claims.publish("elsewhere", probe=None, history=None)
    version = versioned_name("tuned", source["digest"])
    world.create(
        "ModelServer",
        "server",
        {
            **SERVER_SPEC,
            "replicas": 2,
            "adapters": [{"name": "tuned", "source": source}],
            "aliases": [{"name": "assistant", "promotion": PROMOTION}],
        },
    )
    kubelet.running(2)
    wait_effective(world, version)
    told = world.wait_reason("ModelServer", "server", "Changed", condition="AdapterEffective")
    assert told["status"] == "Unknown"
    assert "adapter tuned on pod server-engine" in told["message"]
    wait_served(world, kubelet, BASE)
    measure(world, "good", "Better")
    wait_served(world, kubelet, version)


def test_adapter_trained_elsewhere_that_changes_nothing_is_neither_aliased_nor_measured(
    world: World, kubelet: Kubelet
) -> None:
    world.create("ModelServer", "server", {**SERVER_SPEC, "replicas": 2})
    source = kubelet.claims.publish("elsewhere", probe=None, history=None)
    version = versioned_name("tuned", source["digest"])
    for pod in kubelet.running(2):
        pod.engine.without_effect.add(version)
    targets = [{"name": "assistant", "targets": [{"adapter": "tuned"}]}]
    give(world, adapters=[{"name": "tuned", "source": source}], aliases=targets)
    told = world.wait_reason("ModelServer", "server", "NoEffect", condition="AdapterEffective")
    assert told["status"] == "False"
    target = {"modelServerRef": {"name": "server"}, "adapter": "tuned"}
    world.create("BenchmarkRun", "run", {**RUN_SPEC, "target": target, "output": {"uri": "pvc://results/run"}})
    refused = world.wait_reason("BenchmarkRun", "run", "AdapterNotEffective", condition="Stalled")
    assert "NoEffect" in refused["message"]
    assert world.api.list("Job", namespace=world.namespace) == []
    for pod in kubelet.running(2):
        answer = httpx.post(f"{pod.url}/v1/completions", json={"model": "assistant", "prompt": "x"}, trust_env=False)
        assert answer.status_code != 200
