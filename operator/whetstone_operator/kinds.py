"""The API kinds that the operator reads and writes, and the key that names one of our objects."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.modelserver import ModelServer
from whetstone_api.schema import Resource
from whetstone_api.vocabulary import API_VERSION


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of the API.

    Args:
        api_version: `v1` or `group/version`.
        name: The kind, CamelCase.
        plural: The resource's name in URLs.
        namespaced: Whether objects live in a namespace.
    """

    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        parts = [root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


MODEL_SERVER = Kind(api_version=API_VERSION, name=ModelServer.kind_name, plural=ModelServer.plural)
TRAINING_JOB = Kind(api_version=API_VERSION, name=LoRATrainingJob.kind_name, plural=LoRATrainingJob.plural)
BENCHMARK_RUN = Kind(api_version=API_VERSION, name=BenchmarkRun.kind_name, plural=BenchmarkRun.plural)
OUR_KINDS = (MODEL_SERVER, TRAINING_JOB, BENCHMARK_RUN)

CONFIG_MAP = Kind(api_version="v1", name="ConfigMap", plural="configmaps")
SECRET = Kind(api_version="v1", name="Secret", plural="secrets")
SERVICE = Kind(api_version="v1", name="Service", plural="services")
POD = Kind(api_version="v1", name="Pod", plural="pods")
CLAIM = Kind(api_version="v1", name="PersistentVolumeClaim", plural="persistentvolumeclaims")
SERVICE_ACCOUNT = Kind(api_version="v1", name="ServiceAccount", plural="serviceaccounts")
DEPLOYMENT = Kind(api_version="apps/v1", name="Deployment", plural="deployments")
DISRUPTION_BUDGET = Kind(api_version="policy/v1", name="PodDisruptionBudget", plural="poddisruptionbudgets")
JOB = Kind(api_version="batch/v1", name="Job", plural="jobs")
WORKLOAD = Kind(api_version="kueue.x-k8s.io/v1beta2", name="Workload", plural="workloads")
"""Kueue's side of a queued Job; the kind exists only where Kueue is installed."""
LEASE = Kind(api_version="coordination.k8s.io/v1", name="Lease", plural="leases")
EVENT = Kind(api_version="events.k8s.io/v1", name="Event", plural="events")
TOKEN_REVIEW = Kind(api_version="authentication.k8s.io/v1", name="TokenReview", plural="tokenreviews", namespaced=False)

_KINDS = {
    (kind.api_version, kind.name): kind
    for kind in (
        *OUR_KINDS,
        CONFIG_MAP,
        SECRET,
        SERVICE,
        POD,
        CLAIM,
        SERVICE_ACCOUNT,
        DEPLOYMENT,
        DISRUPTION_BUDGET,
        JOB,
        WORKLOAD,
        LEASE,
        EVENT,
    )
}


def kind_of(obj: dict[str, Any]) -> Kind:
    """Return the kind of a whole object.

    Raises:
        KeyError: The operator does not deal with that kind.
    """
    return _KINDS[(obj["apiVersion"], obj["kind"])]


@dataclass(frozen=True, order=True)
class Key:
    """Names one object of one of our kinds: what a work queue holds.

    Args:
        plural: The resource's name in URLs, as in `modelservers`.
        namespace: Its namespace.
        name: Its name.
    """

    plural: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.plural}/{self.namespace}/{self.name}"


def key_of(resource: Resource) -> Key:
    """Return the key of a parsed object."""
    return Key(resource.plural, resource.metadata.namespace, resource.metadata.name)


def kind_of_key(key: Key) -> Kind:
    """Return the kind that a key's plural stands for.

    Raises:
        KeyError: The plural is none of ours.
    """
    return {kind.plural: kind for kind in OUR_KINDS}[key.plural]
