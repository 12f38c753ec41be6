"""The running cluster with the operator installed by helm, and one small loop that many tests look at."""

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.charts import OPERATOR, rendered
from support.loop import Loop, Seeded
from support.obedient_runs import Runs
from support.pod_monitors import discovery, scrape_configs
from support.prometheus import Prometheus, running
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.__main__ import Demo
from whetstone_dev.demo.install import install
from whetstone_dev.demo.kube import Kube
from whetstone_dev.images import TAGS_FILE
from whetstone_dev.places import BUILD

LOOP_NAMESPACE = "whetstone-test-loop"
RUNS_NAMESPACE = "whetstone-test-runs"
GONE_SECONDS = 150.0


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """The cluster that `make cluster` started, or the one of KUBECONFIG."""
    return Path(os.environ.get("KUBECONFIG") or BUILD / "kubeconfig")


@pytest.fixture(scope="session")
def kube(kubeconfig: Path) -> Kube:
    """A client with the administrator's rights."""
    return Kube.connect(kubeconfig)


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """Full reference, by name, of the images that `make images` pushed last."""
    references: dict[str, str] = json.loads(TAGS_FILE.read_text())
    return references


@pytest.fixture(scope="session")
def whetstone(kubeconfig: Path, images: dict[str, str]) -> None:
    """The operator, installed by helm."""
    install(kubeconfig, images=images, served=[LOOP_NAMESPACE])


@pytest.fixture
def namespace(kube: Kube, whetstone: None) -> Iterator[str]:
    """A namespace of the test's own; that it goes away, and all in it, is part of the test."""
    name = f"test-{secrets.token_hex(4)}"
    kube.apply(plan.namespace(name))
    yield name
    kube.delete("v1", "Namespace", name=name)
    eventually(lambda: kube.get("v1", "Namespace", name=name) is None, what=f"{name} gone", seconds=GONE_SECONDS)


@pytest.fixture(scope="session")
def demo(kube: Kube, kubeconfig: Path, images: dict[str, str], whetstone: None) -> Iterator[Demo]:
    """A namespace with its volumes filled: base model, training rows, tasks. That all of it goes away is asserted."""
    demo = Demo(kube, namespace=LOOP_NAMESPACE, images=images, size=plan.SMALL)
    demo.prepare(kubeconfig, {})
    yield demo
    kube.delete("v1", "Namespace", name=LOOP_NAMESPACE)
    eventually(
        lambda: kube.get("v1", "Namespace", name=LOOP_NAMESPACE) is None,
        what=f"{LOOP_NAMESPACE} gone",
        seconds=GONE_SECONDS,
    )


@pytest.fixture(scope="session")
def seeded(kube: Kube, demo: Demo) -> Seeded:
    """The namespace in which model, rows and tasks are."""
    return Seeded(kube=kube, namespace=LOOP_NAMESPACE)


@pytest.fixture(scope="session")
def prometheus(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes what the chart's PodMonitors select, as long as the tests run."""
    values = {"images": {"registry": "registry.test"}, "monitoring": {"scrape": True}}
    monitors = [one for one in rendered(OPERATOR, values) if one["kind"] == "PodMonitor"]
    folder = tmp_path_factory.mktemp("prometheus")
    pods = folder / "pods.json"
    scrape = scrape_configs(monitors, pods=pods)
    kube = Kube.connect(kubeconfig)  # the thread's own
    with discovery(lambda: kube.list("v1", "Pod"), pods), running(folder, scrape=scrape, host="127.0.0.1") as found:
        yield found


@pytest.fixture(scope="session")
def loop(kube: Kube, demo: Demo, prometheus: Prometheus) -> Loop:
    """The whole loop at its end, small: 8 tasks on one engine. A Prometheus has seen all of it."""
    return Loop(kube=kube, namespace=LOOP_NAMESPACE, summary=demo.loop({}))


@pytest.fixture(scope="session")
def runs(kube: Kube, kubeconfig: Path, images: dict[str, str], whetstone: None) -> Iterator[Runs]:
    """A namespace for runs against a model that does as it is told. That all of it goes away is asserted."""
    _gone(kube, RUNS_NAMESPACE)
    install(kubeconfig, images=images, served=[RUNS_NAMESPACE])
    found = Runs(kube=kube, namespace=RUNS_NAMESPACE, images=images)
    found.prepare()
    yield found
    _gone(kube, RUNS_NAMESPACE)


def _gone(kube: Kube, namespace: str) -> None:
    kube.delete("v1", "Namespace", name=namespace)
    eventually(
        lambda: kube.get("v1", "Namespace", name=namespace) is None, what=f"{namespace} gone", seconds=GONE_SECONDS
    )
