"""The chart's NetworkPolicies where they hold: all of the product works, and what is to be closed is closed.

kube-router enforces them on a node of the tests' own. By the rules of Kubernetes
`tests/unit/charts/test_network_policies.py` says the same of them.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from support import stand_in_trainer
from support.local_cluster import connects, enforcing, inside
from support.node import main_process
from support.obedient_runs import LABEL, SERVER, Runs, is_trial, rewards
from support.training import training_spec
from support.waiting import eventually
from whetstone_api.jobs import METRICS_PORT
from whetstone_api.pod_state import ENGINE_PORT, SIDECAR_PORT
from whetstone_api.training_distributed import RENDEZVOUS_PORT
from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run
from whetstone_dev.demo.install import SYSTEM_NAMESPACE, install
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.watch import is_true
from whetstone_dev.images import references_of

pytestmark = [pytest.mark.cluster, pytest.mark.long]
TEAM, MONITORING, OTHER = "team", "monitoring", "other"
OPERATOR_PORT, API_PORT, DNS_PORT = 8080, 6443, 53
OWN_PORT = 9999
"""Where a pod listens to nobody's knowledge."""
TRIALS = {"open", "limited"}
START_SECONDS = 240.0
"""For pods whose image the node has yet to pull."""
READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@dataclass(frozen=True)
class Place:
    """A running pod.

    Args:
        address: Its address.
        pid: A process in its network.
    """

    address: str
    pid: int


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of the tests' own, whose policies hold."""
    with enforcing() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Runs:
    """A team's namespace with a server, where the chart renders its policies; two operators."""
    kube, images, ranges = Kube.connect(cluster.kubeconfig), references_of(), cluster.ranges
    policy = {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}],
        "trialsExcept": [ranges.pods(), ranges.services, f"{ranges.node()}/32"],
    }
    values = {"networkPolicy": policy, "operator": {"replicas": 2}}
    install(cluster.kubeconfig, images=images, served=[TEAM], further=values)
    runs = Runs(kube=kube, namespace=TEAM, images=images)
    for namespace, name in ((TEAM, "neighbour"), (MONITORING, "prometheus"), (OTHER, "stranger")):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        container = {"name": "main", "image": images["task"], "command": ["sleep", "infinity"]}
        pod = {"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
        kube.apply({"apiVersion": "v1", "kind": "Pod", **pod}, namespace=namespace)
    runs.prepare()
    return runs


@pytest.fixture(scope="module")
def digest(team: Runs) -> str:
    """Digest of an adapter that was loaded while the server runs: the operator speaks with the sidecar."""
    digest = team.make_adapter("skill", effect=0.5)
    team.serve(adapters=[{"name": "skill", "source": {"uri": "pvc://adapters/skill", "digest": digest}}])
    team.wait_effective("skill", digest)
    return digest


@pytest.fixture(scope="module")
def places(team: Runs, digest: str) -> dict[str, Place]:
    """All sorts of pods while they work: the operators, an engine, a training on two nodes, a run with its trials."""
    team.write_tasks("tasks", dict.fromkeys(TRIALS, "echo 1 >answer.txt"))
    with (team.host_folder("data") / "tasks" / "limited" / "task.toml").open("a") as file:
        file.write('network_mode = "no-network"\n')  # [environment] is its last table
    team.hold(*TRIALS)
    team.start("run", "tasks", target={"modelServerRef": {"name": SERVER}, "adapter": "skill"})
    team.kube.apply(stand_in_trainer.config_map(), namespace=TEAM)
    spec = training_spec(
        output="trained",
        baseModel={"source": {"uri": "pvc://models/base"}},
        dataset={"source": {"uri": "pvc://data/rows.jsonl"}},
        workspace={"claimName": "results"},
        distributed={"nodes": 2},
        resources={"requests": {"cpu": "20m", "memory": "64Mi"}},
        **stand_in_trainer.fields(team.images["benchmark"]),
    )
    team.apply("LoRATrainingJob", "pair", spec)
    return eventually(lambda: found(team), what="all sorts of pods at work", seconds=START_SECONDS)


def found(team: Runs) -> dict[str, Place]:
    """Return the places of all pods by their names here, once both trials wait for the model."""
    kube = team.kube
    running = (team.get("BenchmarkRun", "run").get("status", {}).get("progress") or {}).get("running")
    assert running == len(TRIALS), f"{running} trials at work"
    lease = kube.get("coordination.k8s.io/v1", "Lease", name="whetstone-operator", namespace=SYSTEM_NAMESPACE)
    leader = str((lease or {"spec": {}})["spec"].get("holderIdentity"))
    pods: dict[str, dict[str, Any]] = {}
    for one in kube.list("v1", "Pod", namespace=SYSTEM_NAMESPACE):
        pods["operator" if one["metadata"]["uid"] in leader else "standby"] = one
    [pods["engine"]] = team.engine_pods()
    training = team.pods("lora-training-job", "pair")
    for one in (one for one in training if one["metadata"]["labels"].get("whetstone.dev/stage") == "train"):
        index = one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        pods["trainer" if index == "0" else "second trainer"] = one
    [pods["runner"]] = team.runner_pods("run")
    for one in filter(is_trial, team.pods(LABEL, "run")):
        pods["limited trial" if "whetstone.dev/trial-network" in one["metadata"]["labels"] else "trial"] = one
    for namespace, name in ((TEAM, "neighbour"), (MONITORING, "prometheus"), (OTHER, "stranger")):
        pods[name] = kube.get("v1", "Pod", name=name, namespace=namespace) or {}
    at_work = {name for name, pod in pods.items() if pod.get("status", {}).get("phase") == "Running"}
    assert at_work == EVERYBODY, f"not at work: {sorted(EVERYBODY - at_work)}"
    return {name: Place(pod["status"]["podIP"], main_process(pod, container_of(name))) for name, pod in pods.items()}


def container_of(name: str) -> str:
    return {"operator": "operator", "standby": "operator", "engine": "engine"}.get(name, "main")


OPERATORS = {"operator", "standby"}
TRAINERS = {"trainer", "second trainer"}
EVERYBODY = {*OPERATORS, *TRAINERS, "engine", "runner", "trial", "limited trial", "neighbour", "prometheus", "stranger"}
OPEN: Mapping[tuple[str, int], set[str]] = {
    ("engine", ENGINE_PORT): EVERYBODY - {"trial", "limited trial"},
    ("engine", SIDECAR_PORT): {*OPERATORS, "prometheus"},
    ("engine", OWN_PORT): set(),
    ("operator", OPERATOR_PORT): {*OPERATORS, *TRAINERS, "engine", "runner", "prometheus"},
    ("operator", OWN_PORT): set(),
    ("trainer", METRICS_PORT): {*TRAINERS, "prometheus"},
    ("trainer", RENDEZVOUS_PORT): TRAINERS,
    ("runner", OWN_PORT): {"trial"},
    ("trial", OWN_PORT): set(),
    ("limited trial", OWN_PORT): set(),
}
"""Who comes through to which port of which pod. A pod reaches itself, which shows that it listens."""


@contextmanager
def listening(place: Place, port: int) -> Iterator[None]:
    """Answer in a pod's network."""
    command = inside(place.pid, sys.executable, "-m", "http.server", str(port), "--directory", "/proc/self/net")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: connects(place.pid, "127.0.0.1", port), what="the listener")
            yield
        finally:
            process.terminate()


def callers(places: Mapping[str, Place], address: str, port: int) -> set[str]:
    """Return which pods can connect."""
    with ThreadPoolExecutor(len(places)) as pool:
        through = pool.map(lambda place: connects(place.pid, address, port), places.values())
        return {name for name, connected in zip(places, through, strict=True) if connected}


def settles(probe: Callable[[], set[str]], expected: set[str]) -> None:
    """Wait until exactly these come through: an engine takes a moment for a new pod."""

    def settled() -> bool:
        came = probe()
        assert came == expected, f"too many: {sorted(came - expected)}, missing: {sorted(expected - came)}"
        return True

    eventually(settled, what="who comes through")


@pytest.mark.parametrize(("target", "port"), OPEN)
def test_those_come_through_that_the_policies_name_and_nobody_else(
    places: dict[str, Place], target: str, port: int
) -> None:
    place = places[target]
    with ExitStack() as stack:
        if port == OWN_PORT:
            stack.enter_context(listening(place, port))
        settles(lambda: callers(places, place.address, port), {*OPEN[target, port], target})


def test_trials_reach_what_is_outside_and_names_and_nothing_of_the_cluster(
    places: dict[str, Place], cluster: Cluster, team: Runs
) -> None:
    ranges, limited = cluster.ranges, EVERYBODY - {"limited trial"}
    service = team.kube.get("v1", "Service", name=SERVER, namespace=TEAM)
    assert service is not None
    spec = service["spec"]
    with socket.create_server((ranges.host(), 0)) as outside:
        outside.settimeout(0.1)
        settles(lambda: callers(places, ranges.host(), outside.getsockname()[1]), limited)
    settles(lambda: callers(places, ranges.node(), DNS_PORT), limited)
    settles(lambda: callers(places, ranges.node(), API_PORT), limited - {"trial"})
    settles(lambda: callers(places, ranges.api_service, 443), limited - {"trial"})
    settles(lambda: callers(places, spec["clusterIP"], spec["ports"][0]["port"]), limited - {"trial"})


def test_pods_of_a_training_meet_and_report(team: Runs, places: dict[str, Place]) -> None:
    def met() -> bool:
        return bool(
            (team.get("LoRATrainingJob", "pair")["status"].get("progress") or {})["step"] == stand_in_trainer.MET
        )

    eventually(met, what="the report that they have met")


def test_prometheus_reads_the_series_of_all_that_have_any(places: dict[str, Place]) -> None:
    def page(name: str, port: int) -> str:
        url = f"http://{places[name].address}:{port}/metrics"
        return run(inside(places["prometheus"].pid, sys.executable, "-c", READ, url))

    reports = 'whetstone_reports_total{code="202"}'
    pages = {name: page(name, OPERATOR_PORT) for name in OPERATORS}
    # The Service gives reports to both, and the one that stands by hands its own on.
    assert reports in pages["operator"]
    assert "whetstone_leader 0.0" in pages["standby"]
    assert "vllm:" in page("engine", ENGINE_PORT)
    assert "whetstone_" in page("engine", SIDECAR_PORT)


def test_the_run_with_a_limited_task_works_to_its_end(team: Runs, places: dict[str, Place], digest: str) -> None:
    assert team.get("BenchmarkRun", "run")["status"]["progress"]["running"] == len(TRIALS)
    team.release()
    ended = team.end("run")
    assert ended["status"]["target"]["digest"] == digest
    assert rewards(team.artifact("run")) == {name: [1.0] for name in TRIALS}
    assert is_true(team.get("ModelServer", SERVER), "Ready")
