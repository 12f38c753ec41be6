"""`make demo-down`: removes what the demo made on a cluster, and nothing else."""

import time

from whetstone_dev.commands import DevError
from whetstone_dev.demo import install, plan
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.demo.preflight import is_ours
from whetstone_dev.demo.target import Target
from whetstone_dev.progress import say, stage

KINDS = {
    "ModelServer": "modelservers.whetstone.dev",
    "LoRATrainingJob": "loratrainingjobs.whetstone.dev",
    "BenchmarkRun": "benchmarkruns.whetstone.dev",
}
"""Name of the CRD by kind."""
DELETE_SECONDS = 300.0
_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def take_down(target: Target, *, namespace: str = plan.NAMESPACE) -> None:
    """Delete the demo's namespace, uninstall its charts, delete the CRDs unless somebody else uses them.

    Raises:
        DevError: The API server does not answer, helm failed, or a namespace does not go away.
    """
    kube = Kube.connect(target.kubeconfig)
    removed = delete_namespace(kube, namespace)
    installed = install.releases(target.kubeconfig, demo_only=True)
    if installed:
        with stage("Uninstalling the charts with helm"):
            install.uninstall(target.kubeconfig)
        _delete_crds(kube)
    removed = delete_namespace(kube, install.SYSTEM_NAMESPACE) or removed
    say("the demo is gone" if removed or installed else "there was nothing of the demo")


def delete_namespace(kube: Kube, name: str, *, any_owner: bool = False) -> bool:
    """Delete a namespace that the demo made and wait until it is gone; returns whether there was one.

    Args:
        kube: The cluster.
        name: The namespace.
        any_owner: Delete it whoever made it.
    """
    found = kube.get("v1", "Namespace", name=name)
    if found is None:
        return False
    if not any_owner and not is_ours(found):
        say(f"namespace {name} stays: the demo did not make it")
        return False
    with stage(f"Deleting namespace {name}"):
        kube.delete("v1", "Namespace", name=name)
        deadline = time.monotonic() + DELETE_SECONDS
        while kube.get("v1", "Namespace", name=name) is not None:
            if time.monotonic() > deadline:
                raise DevError(f"namespace {name} is still being deleted after {DELETE_SECONDS:.0f} s")
            time.sleep(1)
    return True


def _delete_crds(kube: Kube) -> None:
    """The charts keep the CRDs, since deleting one deletes every object of its kind."""
    present = {kind: crd for kind, crd in KINDS.items() if kube.get(*_CRD, name=crd) is not None}
    used = [kind for kind in present if kube.list(WHETSTONE, kind)]
    if used:
        say(f"the CRDs stay: there are {' and '.join(used)} objects that the demo did not make")
        return
    for crd in present.values():
        kube.delete(*_CRD, name=crd)
