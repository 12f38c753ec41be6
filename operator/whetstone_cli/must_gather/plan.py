"""What is asked of the cluster. Pure."""

from dataclasses import dataclass
from typing import Final

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import GROUP, Label

OURS: Final = tuple(f"{kind.plural}.{GROUP}" for kind in (ModelServer, LoRATrainingJob, BenchmarkRun))
_PART_OF: Final = f"--selector={Label.PART_OF}=whetstone"
_CHILDREN: Final = (
    "deployments.apps",
    "replicasets.apps",
    "jobs.batch",
    "pods",
    "services",
    "configmaps",
    "poddisruptionbudgets.policy",
    "networkpolicies.networking.k8s.io",
)
_SURROUNDINGS: Final = (
    "persistentvolumeclaims",
    "resourcequotas",
    "limitranges",
    "horizontalpodautoscalers.autoscaling",
)
_QUEUES: Final = ("workloads.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io")
EVENTS: Final = "events"
SECRETS: Final = "secrets"


@dataclass(frozen=True)
class Ask:
    """One question.

    Args:
        resource: Resource type, which names the file.
        arguments: Of `kubectl get`.
        optional: Whether the cluster may not know the type at all.
    """

    resource: str
    arguments: tuple[str, ...]
    optional: bool = False


def namespace_asks(scope: str) -> list[Ask]:
    """Return what is asked about namespaces in which objects are.

    Args:
        scope: `--namespace=…` or `--all-namespaces`.
    """
    return [
        *(Ask(kind, (kind, scope), optional=True) for kind in OURS),
        *(Ask(kind, (kind, scope, _PART_OF)) for kind in _CHILDREN),
        *(Ask(kind, (kind, scope)) for kind in _SURROUNDINGS),
        *(Ask(kind, (kind, scope), optional=True) for kind in _QUEUES),
        Ask(EVENTS, (EVENTS, scope)),
    ]


def system_asks(namespace: str) -> list[Ask]:
    """Return what is asked about the operator's namespace."""
    scope = f"--namespace={namespace}"
    kinds = ("deployments.apps", "replicasets.apps", "pods", "services", "configmaps")
    return [
        *(Ask(kind, (kind, scope, _PART_OF)) for kind in kinds),
        Ask("leases.coordination.k8s.io", ("leases.coordination.k8s.io", scope)),
        Ask(EVENTS, (EVENTS, scope)),
    ]


def cluster_asks() -> list[Ask]:
    """Return what is asked about the cluster."""
    return [
        *(Ask("customresourcedefinitions", ("customresourcedefinitions", name)) for name in OURS),
        Ask("nodes", ("nodes",)),
        Ask("storageclasses", ("storageclasses",)),
    ]
