"""What must hold on a cluster of the user's before anything is built or changed there; each refusal is one line."""

from dataclasses import dataclass
from typing import Any

from whetstone_dev.commands import DevError
from whetstone_dev.demo import install
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.plan import MARK
from whetstone_dev.demo.target import Target

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
DEMO_MINOR = 32
"""Minor version of Kubernetes 1 that the chart needs."""
CRD = "modelservers.whetstone.dev"


@dataclass(frozen=True)
class Right:
    """Something that the demo does on the cluster."""

    verb: str
    group: str
    resource: str
    system: bool | None = None
    """Whether in the operator's namespace; in the demo's if False; None for what has no namespace."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


RIGHTS = (
    Right("create", "", "namespaces"),
    Right("delete", "", "namespaces"),
    Right("list", "storage.k8s.io", "storageclasses"),
    Right("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    Right("create", "rbac.authorization.k8s.io", "clusterroles"),
    Right("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    Right("create", "apps", "deployments", system=True),
    Right("create", "", "secrets", system=True),
    Right("create", "", "persistentvolumeclaims", system=False),
    Right("create", "batch", "jobs", system=False),
    Right("create", "whetstone.dev", "modelservers", system=False),
    Right("get", "", "pods/log", system=False),
    Right("create", "", "services/proxy", system=False),
)


def check(kube: Kube, target: Target, *, namespace: str) -> str:
    """Return the storage class that the claims will have.

    Args:
        kube: The user's cluster.
        target: What the user asked for.
        namespace: Where the demo will run.

    Raises:
        DevError: The demo cannot run there, or would change what is not its own.
    """
    version = kube.version()
    if version < (1, DEMO_MINOR):
        raise DevError(f"the cluster runs Kubernetes {version[0]}.{version[1]}; 1.{DEMO_MINOR} or newer is needed")
    missing = [str(right) for right in RIGHTS if not _allowed(kube, right, namespace)]
    if missing:
        raise DevError(f"the user of KUBECONFIG may not: {', '.join(missing)}; the demo needs these rights")
    storage_class = chosen_class(kube.list("storage.k8s.io/v1", "StorageClass"), target.storage_class)
    _refuse_foreign_installation(kube, target)
    found = kube.get("v1", "Namespace", name=namespace)
    if found is not None and not is_ours(found):
        raise DevError(f"namespace {namespace} is there and the demo did not make it: it would be deleted")
    return storage_class


def chosen_class(classes: list[dict[str, Any]], wanted: str | None) -> str:
    """Return the name of the storage class that claims get.

    Raises:
        DevError: It does not exist, or none is the default.
    """
    names = sorted(item["metadata"]["name"] for item in classes)
    known = f"the cluster has {', '.join(names)}" if names else "the cluster has none"
    if wanted:
        if wanted not in names:
            raise DevError(f"no storage class {wanted}: {known}")
        return wanted
    for item in classes:
        if (item["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true":
            name: str = item["metadata"]["name"]
            return name
    raise DevError(f"no storage class is the default ({known}): name one with ReadWriteMany volumes, STORAGE_CLASS=...")


def is_ours(obj: dict[str, Any]) -> bool:
    """Whether the demo made an object."""
    return MARK.items() <= (obj["metadata"].get("labels") or {}).items()


def _allowed(kube: Kube, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    place = {None: "", True: install.SYSTEM_NAMESPACE, False: namespace}[right.system]
    return kube.allowed(verb=right.verb, group=right.group, resource=resource, sub=subresource, namespace=place)


def _refuse_foreign_installation(kube: Kube, target: Target) -> None:
    ours = install.releases(target.kubeconfig, demo_only=True)
    if ours:
        return
    crd = kube.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name=CRD)
    if crd is not None or install.releases(target.kubeconfig, demo_only=False):
        raise DevError(
            "Whetstone is installed on this cluster and the demo did not do it: it would be replaced; "
            "apply examples/loop to a namespace of yours instead"
        )
