"""Namespaces that enforce pod security take every pod of ours; only trials need more than `restricted`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.api import Api, Refused
from integration.world import World
from support.children import all_pods, containers_of
from support.waiting import eventually
from whetstone_agent.environment.cluster import Runner
from whetstone_agent.environment.manifest import TrialPod, trial_pod
from whetstone_agent.environment.network import NetworkLimit
from whetstone_api.source import Source
from whetstone_cli.reader_pod import reader_pod
from whetstone_dev.places import CHECKOUT

pytestmark = pytest.mark.integration
VALUES = {"images": {"registry": "registry.test", "unsloth": "registry.test/whetstone/trainer-unsloth:1"}}
RUNS = {"metadata": {"name": "run", "namespace": "team", "uid": "12345678-9abc-def0-1234-56789abcdef0"}}


def reader() -> dict[str, Any]:
    """Return the pod with which `whetstone results` reads a claim."""
    pod = reader_pod(RUNS, Source(uri="pvc://results/run"), template={}, image="registry.test/benchmark:1")
    spec: dict[str, Any] = pod["spec"]
    return spec


def of_examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods of all examples that bring programs of their own."""
    for path in sorted((CHECKOUT / "examples").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and document.get("kind") in ("Deployment", "Job"):
                name = f"{path.relative_to(CHECKOUT)}: {document['metadata']['name']}"
                yield name, document["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def pods() -> dict[str, dict[str, Any]]:
    """Every pod of ours but trials, by what it is for."""
    return {**all_pods(VALUES), "results": reader(), **dict(of_examples())}


@pytest.fixture
def enforcing(api: Api, world: World) -> World:
    """The test's namespace, which enforces `restricted`."""
    label(api, world, "restricted")
    for name in ("whetstone-operator", "whetstone-runner"):
        world.account(name)
    eventually(lambda: world.get("ServiceAccount", "default"), what="the default account")
    return world


def label(api: Api, world: World, level: str) -> None:
    """Let the namespace enforce a level."""
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
    body = {"metadata": {"name": world.namespace, "labels": labels}}
    api.raw("PUT", f"/api/v1/namespaces/{world.namespace}", body)


def refusal(world: World, pod: dict[str, Any]) -> str:
    """Return why the namespace would not take a pod; empty when it would."""
    try:
        world.api.create(pod, namespace=world.namespace, dry_run=True)
    except Refused as error:
        return str(error)
    return ""


def named(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}


def test_every_pod_of_ours_is_restricted(enforcing: World, pods: dict[str, dict[str, Any]]) -> None:
    refusals = {name: refusal(enforcing, named(spec)) for name, spec in pods.items()}

    assert {name: said for name, said in refusals.items() if said} == {}


def test_root_of_every_container_is_read_only_and_its_user_is_not_root(pods: dict[str, dict[str, Any]]) -> None:
    contexts = {
        f"{name}: {one['name']}": {**spec["securityContext"], **one["securityContext"]}
        for name, spec in pods.items()
        for one in containers_of(spec).values()
    }

    assert [name for name, context in contexts.items() if context.get("readOnlyRootFilesystem") is not True] == []
    assert [name for name, context in contexts.items() if not context.get("runAsNonRoot")] == []
    assert [name for name, context in contexts.items() if context.get("runAsUser", 65532) == 0] == []


def test_only_operator_and_runner_hold_a_token_of_kubernetes(pods: dict[str, dict[str, Any]]) -> None:
    mounted = {name for name, spec in pods.items() if spec.get("automountServiceAccountToken") is not False}
    # A volume of ours has an audience, but for the one that stands for what the API server would mount.
    projected = {
        name
        for name, spec in pods.items()
        for volume in spec.get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source and "audience" not in source["serviceAccountToken"]
    }

    assert mounted == {"operator"}
    assert projected == {"benchmark", "benchmark with a judge"}
    assert {pods[name]["serviceAccountName"] for name in mounted | projected} == {
        "whetstone-operator",
        "whetstone-runner",
    }


@pytest.mark.parametrize("image", sorted(CHECKOUT.glob("images/*/Containerfile")), ids=lambda path: path.parent.name)
def test_user_of_every_image_of_ours_is_not_root(image: Path) -> None:
    users = [line.split()[1] for line in image.read_text().splitlines() if line.startswith("USER ")]
    if image.parent.name == "task":
        assert users == [], "a task's commands are the task's own; its image runs as root where the task wants that"
    else:
        assert users[-1] == "65532:65532"


def trial(world: World, **changes: Any) -> dict[str, Any]:
    """Return a trial's pod."""
    plan = {
        "runner": Runner(namespace=world.namespace),
        "benchmark_run": "run",
        "session": "s",
        "nonce": "1",
        "image": "registry.test/task:1",
        "deadline_seconds": 60,
        **changes,
    }
    return trial_pod(TrialPod(**plan))


@pytest.mark.parametrize(
    "changes",
    [{}, {"network_key": NetworkLimit().key(Runner(namespace="n"))}, {"tmux_image": "registry.test/benchmark:1"}],
    ids=["open", "limited network", "with tmux"],
)
def test_trials_need_baseline_and_no_more(api: Api, enforcing: World, changes: dict[str, Any]) -> None:
    pod = trial(enforcing, **changes)
    assert 'violates PodSecurity "restricted' in refusal(enforcing, pod)

    label(api, enforcing, "baseline")
    eventually(lambda: refusal(enforcing, pod) == "", what="a namespace of baseline takes a trial")
    assert pod["spec"]["automountServiceAccountToken"] is False
