"""`whetstone results` on the node: all files of a claim, whatever their names, and no pod left."""

import base64
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config
from support.waiting import eventually
from whetstone_cli.__main__ import main
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.images import references_of

pytestmark = pytest.mark.cluster
RUN = "measured"
TIME = "2026-01-01T00:00:00Z"
SCRIPT = r"""
set -e
cd /claim && mkdir -p results/measured/harbor/job results/other
cd results/measured
echo '{"mean": 1}' >results.json
echo content >"harbor/job/$(printf 'two\nlines \\ %s' "$(printf '\377')")"
head -c 3000000 /dev/urandom >harbor/job/large
ln -s /etc/passwd harbor/job/link
echo no >../other/secret
"""


@pytest.fixture
def namespace(kube: Kube, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A namespace with a claim that holds a run's results, and the ended run."""
    name = f"results-{secrets.token_hex(4)}"
    monkeypatch.setenv("PATH", str(Cluster().plane.kubectl.parent), prepend=os.pathsep)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        _fill(kube, name)
        _end(kube, kubeconfig, name)
        yield name
    finally:
        kube.delete("v1", "Namespace", name=name)


def _fill(kube: Kube, namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "data"}
    kube.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim}, namespace=namespace
    )
    container = {
        "name": "fill",
        "image": references_of()["task"],
        "command": ["bash", "-c", f"base64 -d <<<{base64.b64encode(SCRIPT.encode()).decode()} | bash"],
        "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
    }
    volume = {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fill"}, "spec": spec}, namespace=namespace)

    def phase() -> bool:
        pod = kube.get("v1", "Pod", name="fill", namespace=namespace)
        assert pod is not None
        assert pod["status"].get("phase") != "Failed"
        return pod["status"].get("phase") == "Succeeded"

    eventually(phase, what="the claim is filled", seconds=120)


def _end(kube: Kube, kubeconfig: Path, namespace: str) -> None:
    """Make the run and say that it has failed: the operator leaves an object with an end as it is."""
    spec = {
        "target": {"modelServerRef": {"name": "server"}},
        "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
        "output": {"uri": f"pvc://data/results/{RUN}"},
    }
    run = {"apiVersion": WHETSTONE, "kind": "BenchmarkRun", "metadata": {"name": RUN}, "spec": spec}
    kube.apply(run, namespace=namespace)
    ended = {"reason": "TasksInvalid", "message": "", "lastTransitionTime": TIME}
    conditions = [{"type": "Failed", "status": "True", **ended}, {"type": "Ready", "status": "False", **ended}]
    status = {"finishedAt": TIME, "conditions": conditions}
    api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
    group, version = WHETSTONE.split("/")
    api.patch_namespaced_custom_object_status(group, version, namespace, "benchmarkruns", RUN, {"status": status})


def test_everything_arrives_and_the_pod_is_gone(
    kube: Kube, kubeconfig: Path, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "fetched"
    options = ["-n", namespace, "--kubeconfig", str(kubeconfig), "--image", references_of()["task"]]
    code = main(["results", RUN, "-o", str(target), *options])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert f"wrote 3 files to {target}; every checksum is right" in told.out
    assert "./harbor/job/link is no plain file and is left out" in told.err
    assert (target / "results.json").read_text() == '{"mean": 1}\n'
    found = {os.fsencode(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {b"results.json", b"harbor/job/large", b"harbor/job/two\nlines \\ \xff"}
    pods = kube.list("v1", "Pod", namespace=namespace)
    assert [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")] == ["fill"]
