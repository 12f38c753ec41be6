"""Every alert of the chart, fired in a real Prometheus by its fault: with shorter times, and the same comparisons."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from integration.engine_pods import SERVER_SPEC, Kubelet
from integration.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from integration.world import RESULTS, RUN_SPEC, World, user_error
from support.fake_vllm import BASE
from support.prometheus import Prometheus, alert_names, lint, running, shortened
from support.waiting import eventually
from whetstone_api.digests import versioned_name
from whetstone_api.vocabulary import API_VERSION, CLAIM_MARK
from whetstone_artifacts.reporting import Reporter
from whetstone_trainer.progress import Progress

pytestmark = pytest.mark.integration
WINDOW = 8
"""Seconds of what the chart gives 10 or 30 minutes."""
OF_OBJECTS = {
    "WhetstoneServerNotReady",
    "WhetstoneTrainingFailed",
    "WhetstoneTrainingMakesNoStep",
    "WhetstoneBenchmarkFailed",
    "WhetstoneBenchmarkInvalid",
}
OF_OPERATORS = {"WhetstoneNoLeader", "WhetstoneOperatorDown"}
OF_NAMESPACES = {"WhetstoneNamespaceOfTwoOperators"}
OF_VERSIONS = {"WhetstoneAdapterNotEffective", "WhetstonePromotionRolledBack"}
OF_WORK = {"WhetstoneReconcilesFail", "WhetstoneQueueStuck"}
LABELS = {"suite": "shell"}
SUITE = "sha256:" + "5" * 64


def test_each_alert_has_its_fault_here() -> None:
    assert alert_names() == OF_OBJECTS | OF_OPERATORS | OF_NAMESPACES | OF_VERSIONS | OF_WORK


def address_of(operator: OperatorProcess) -> str:
    return operator.report_url("").removeprefix("http://").partition("/")[0]


def job(name: str, targets: list[str], **labels: str) -> dict[str, Any]:
    """Return how Prometheus scrapes some addresses; the labels are those that it has from their pods."""
    return {"job_name": name, "honor_labels": True, "static_configs": [{"targets": targets, "labels": labels}]}


def firing(prometheus: Prometheus, alerts: set[str]) -> bool:
    """Return True when these alerts fire; otherwise say which do not."""
    found = prometheus.firing()
    assert alerts <= found, f"not firing: {alerts - found}, firing: {found}, up: {prometheus.query('up')}"
    return True


def wait_firing(prometheus: Prometheus, alerts: set[str]) -> None:
    """Wait until these alerts fire."""
    eventually(lambda: firing(prometheus, alerts), what="the alerts", seconds=60)


@contextmanager
def trainer(operator: OperatorProcess, folder: Path) -> Iterator[tuple[Progress, str]]:
    """Serve the trainer's series as its pod does; yield them, and their address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    reporter = Reporter(url=operator.report_url("loratrainingjobs/none/none"), token_path=folder / "no-token")
    progress = Progress(reporter)
    progress.serve(port)
    yield progress, f"127.0.0.1:{port}"
    reporter.close()


def hold_lease(world: World, operator: OperatorProcess, until: Callable[[], bool]) -> None:
    """Renew the Lease for a leader that is gone, as one that hangs does."""
    numbers = count()

    def renewed() -> bool:
        spec = {"spec": {"renewTime": f"2026-01-01T00:00:00.{next(numbers):06d}Z"}}
        world.api.merge("Lease", operator.lease, spec, namespace=SYSTEM_NAMESPACE)
        return until()

    eventually(renewed, what="the alert", seconds=60)


def test_alerts_of_objects_and_of_operators(
    world: World, operator: OperatorProcess, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    world.claims()
    world.account()
    second = OperatorProcess(kubeconfig=operator_kubeconfig, namespace=world.namespace, log=tmp_path / "second.log")
    with ExitStack() as stack:
        second.start()
        stack.callback(second.stop)
        progress, training = stack.enter_context(trainer(operator, tmp_path))
        progress.step(step=1, max_steps=9, loss=1.0, eta_seconds=9.0, tokens_per_second=5.0)
        assert lint(httpx.get(f"http://{training}/metrics", trust_env=False).text) == ""
        scrape = [
            job("operator", [address_of(operator), address_of(second)]),
            job("trainings", [training], namespace=world.namespace, pod="train-0"),
        ]
        rules = shortened(tmp_path, window=WINDOW)
        prometheus = stack.enter_context(running(tmp_path, scrape=scrape, host="127.0.0.1", rules=rules, seconds=1))
        world.serve()
        world.start_engines()
        world.train()
        for name in ("failed", "invalid"):
            world.benchmark(name, target={"modelServerRef": {"name": "server"}, "shared": True})
        eventually(lambda: prometheus.query("sum(whetstone_leader) == 1"), what="a scrape", seconds=60)
        quiet = {"WhetstoneTrainingFailed", "WhetstoneBenchmarkFailed", "WhetstoneBenchmarkInvalid", *OF_OPERATORS}
        eventually(lambda: not quiet & prometheus.firing(), what="nothing fires", seconds=60)

        world.serve("other", model={"source": {"uri": "pvc://nothing/base"}, "servedName": "base"})
        world.end_pod(world.wait_job("train", "prepare"), user_error("DatasetInvalid", "row 3 is no conversation"))
        world.end_pod(world.wait_job("failed", "run"), user_error("TasksInvalid", "no task is left"))
        spoiled = {**RESULTS, "void": 8, "coverage": "0"}
        world.end_well(world.wait_job("invalid", "run"), results=spoiled, target={"servedName": "base"})
        wait_firing(prometheus, OF_OBJECTS)
        assert not (OF_OPERATORS | OF_NAMESPACES) & prometheus.firing()

        mark = {"data": {"operator": "elsewhere/whetstone-operator"}}
        world.api.merge("ConfigMap", CLAIM_MARK, mark, namespace=world.namespace)
        wait_firing(prometheus, OF_NAMESPACES)

        operator.kill()
        hold_lease(world, operator, lambda: firing(prometheus, {"WhetstoneNoLeader"}))
        second.kill()
        wait_firing(prometheus, {"WhetstoneOperatorDown"})


def measure(world: World, name: str, verdict: str) -> None:
    """Run a benchmark of the adapter `tuned` to its end."""
    spec = {
        **RUN_SPEC,
        "target": {"modelServerRef": {"name": "server"}, "adapter": "tuned"},
        "output": {"uri": f"pvc://results/{name}"},
    }
    metadata = {"name": name, "labels": LABELS}
    run = {"apiVersion": API_VERSION, "kind": "BenchmarkRun", "metadata": metadata, "spec": spec}
    world.api.create(run, namespace=world.namespace)
    comparison = {"baseline": "baseline", "verdict": verdict}
    world.end_well(world.wait_job(name, "run"), results=RESULTS, comparison=comparison, suiteDigest=SUITE)
    world.wait_reason("BenchmarkRun", name, "Succeeded", condition="Complete")


@pytest.mark.long
def test_alerts_of_versions(world: World, operator: OperatorProcess, tmp_path: Path) -> None:
    world.claims()
    world.account()
    gates = [{"metric": "Mean", "minimum": "0.5"}]
    selected = {"benchmarkSelector": {"matchLabels": LABELS}}
    promotion = {**selected, "suiteDigest": SUITE, "minimumTasks": 8, "gates": gates}
    with Kubelet(world, operator, tmp_path / "node") as kubelet, ExitStack() as stack:
        source = kubelet.claims.publish("first", alpha=50)
        spec = {
            **SERVER_SPEC,
            "adapters": [{"name": "tuned", "source": source}],
            "aliases": [{"name": "assistant", "promotion": promotion}],
        }
        world.create("ModelServer", "server", spec)
        rules = shortened(tmp_path, window=WINDOW)
        scrape = [job("operator", [address_of(operator)])]
        prometheus = stack.enter_context(running(tmp_path, scrape=scrape, host="127.0.0.1", rules=rules, seconds=1))
        [pod] = kubelet.running(1)
        world.wait_reason("ModelServer", "server", "Verified", condition="AdapterEffective")
        measure(world, "good", "Better")

        def served() -> str:
            return str(world.get("ModelServer", "server")["status"]["aliases"][0]["servedName"])

        eventually(lambda: served() == versioned_name("tuned", source["digest"]), what="the promotion")
        assert not OF_VERSIONS & prometheus.firing()
        measure(world, "check", "Worse")
        eventually(lambda: served() == BASE, what="the rollback")
        wait_firing(prometheus, {"WhetstonePromotionRolledBack"})

        useless = kubelet.claims.publish("second", alpha=80)
        pod.engine.without_effect.add(versioned_name("useless", useless["digest"]))
        adapters = [*spec["adapters"], {"name": "useless", "source": useless}]
        world.api.merge("ModelServer", "server", {"spec": {"adapters": adapters}}, namespace=world.namespace)
        world.wait_reason("ModelServer", "server", "NoEffect", condition="AdapterEffective")
        wait_firing(prometheus, OF_VERSIONS)


@contextmanager
def webhook_that_hangs(world: World, kinds: list[tuple[str, str]]) -> Iterator[Callable[[], None]]:
    """Let the API server ask a webhook that takes the connection and never answers; yield how to let it refuse instead.

    The API server gives up after a while, and refuses the write as an error of its own.
    """
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    listening = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                taken.append(listening.accept()[0])
            except OSError:
                return

    threading.Thread(target=take, daemon=True).start()
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "resources": [plural], "operations": ["CREATE", "UPDATE"]}
        for group, plural in kinds
    ]
    webhook = {
        "name": "hangs.whetstone.test",
        "rules": rules,
        "clientConfig": {"url": f"https://127.0.0.1:{listening.getsockname()[1]}/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 25,
    }
    world.api.raw("POST", path, {"metadata": {"name": world.namespace}, "webhooks": [webhook]})

    def refuse() -> None:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for one in taken:
            one.close()

    try:
        yield refuse
    finally:
        world.api.raw("DELETE", f"{path}/{world.namespace}")
        listening.close()


@pytest.mark.long
def test_alerts_of_work(world: World, operator_kubeconfig: Path, tmp_path: Path) -> None:
    operator = OperatorProcess(
        kubeconfig=operator_kubeconfig,
        namespace=world.namespace,
        log=tmp_path / "operator.log",
        environment={"WHETSTONE_WORKERS": "1"},
    )
    world.claims()
    world.train("before")
    with ExitStack() as stack:
        operator.start()
        stack.callback(operator.stop)
        rules = shortened(tmp_path, window=WINDOW)
        scrape = [job("operator", [address_of(operator)])]
        prometheus = stack.enter_context(running(tmp_path, scrape=scrape, host="127.0.0.1", rules=rules, seconds=1))
        world.wait_job("before", "prepare")
        eventually(lambda: prometheus.query("sum(whetstone_reconcile_total) > 0"), what="a scrape", seconds=60)
        assert not OF_WORK & prometheus.firing()
        refuse = stack.enter_context(webhook_that_hangs(world, [("", "configmaps"), ("batch", "jobs")]))
        for number in range(4):
            world.train(f"later-{number}")
        eventually(lambda: prometheus.has_fired("WhetstoneQueueStuck"), what="the alert", seconds=60)
        refuse()
        wait_firing(prometheus, {"WhetstoneReconcilesFail"})
