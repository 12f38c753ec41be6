"""What a remedy is, and the commands by which people look."""

from dataclasses import dataclass
from typing import Final

from whetstone_api.vocabulary import ConditionType

EVENT: Final = "Event"
"""Stands among conditions for a reason that only an Event has."""

READY: Final = (ConditionType.READY,)
ENDS: Final = (ConditionType.READY, ConditionType.COMPLETE)
"""Of a run-to-end object with its result."""
WAITS: Final = (ConditionType.READY, ConditionType.RECONCILING)
"""Of an object that waits or works."""
STALLS: Final = (ConditionType.READY, ConditionType.STALLED)
"""Of an object that needs its user; a run-to-end one has `Failed` too."""
FAILS: Final = (*STALLS, ConditionType.FAILED)
"""Of a run-to-end object without a result."""
LOADED: Final = (ConditionType.ADAPTERS_LOADED,)
EFFECTIVE: Final = (ConditionType.ADAPTER_EFFECTIVE,)
QUOTA: Final = (ConditionType.QUOTA_RESERVED,)
VALID: Final = (ConditionType.VALID,)
GATE: Final = (ConditionType.GATE_PASSED,)

NAMESPACE: Final = "NAMESPACE"
NAME: Final = "NAME"
KIND: Final = "KIND"
"""Placeholders in commands: those of the object whose condition it is."""

DESCRIBE: Final = "kubectl describe KIND NAME -n NAMESPACE"
STATUS: Final = "kubectl get KIND NAME -n NAMESPACE -o yaml"
ADAPTERS: Final = (
    "kubectl get modelserver NAME -n NAMESPACE -o jsonpath='{.status.adapters}{\"\\n\"}{.status.failures}'"
)
ALIASES: Final = "kubectl get modelserver NAME -n NAMESPACE -o jsonpath='{.status.aliases}'"
DATASET: Final = "kubectl get loratrainingjob NAME -n NAMESPACE -o jsonpath='{.status.dataset}'"
ESTIMATE: Final = (
    "kubectl get loratrainingjob NAME -n NAMESPACE -o jsonpath='{.status.estimate}{\"\\n\"}{.status.plan}'"
)
FIGURES: Final = (
    "kubectl get benchmarkrun NAME -n NAMESPACE -o jsonpath='{.status.results}{\"\\n\"}{.status.comparison}'"
)
SUMMARY: Final = "whetstone results NAME -n NAMESPACE --summary"
OBJECTS: Final = "kubectl get modelservers,loratrainingjobs,benchmarkruns -n NAMESPACE"
CLAIMS: Final = "kubectl get persistentvolumeclaims -n NAMESPACE"
CONFIG_MAPS: Final = "kubectl get configmaps -n NAMESPACE"
SECRETS: Final = "kubectl get secrets -n NAMESPACE"
QUOTAS: Final = "kubectl get resourcequotas,limitranges -n NAMESPACE"
LABELS: Final = "kubectl get namespace NAMESPACE --show-labels"
WORKLOADS: Final = "kubectl get workloads,localqueues -n NAMESPACE"
ENGINE_PODS: Final = "kubectl get pods -n NAMESPACE -l whetstone.dev/model-server=NAME -o wide"
ENGINE_LOG: Final = "kubectl logs -n NAMESPACE -l whetstone.dev/model-server=NAME -c engine --prefix --tail=100"
ENGINE_LOG_BEFORE: Final = (
    "kubectl logs -n NAMESPACE -l whetstone.dev/model-server=NAME -c engine --prefix --tail=100 --previous"
)
SIDECAR_LOG: Final = "kubectl logs -n NAMESPACE -l whetstone.dev/model-server=NAME -c sidecar --prefix --tail=100"
FETCH_LOG: Final = "kubectl logs -n NAMESPACE -l whetstone.dev/model-server=NAME -c fetch-model --prefix"
ENGINE_DESCRIBED: Final = "kubectl describe pods -n NAMESPACE -l whetstone.dev/model-server=NAME"
TRAINING_PODS: Final = "kubectl get pods -n NAMESPACE -l whetstone.dev/lora-training-job=NAME -o wide"
TRAINING_LOG: Final = "kubectl logs -n NAMESPACE -l whetstone.dev/lora-training-job=NAME -c main --prefix --tail=100"
RUN_PODS: Final = "kubectl get pods -n NAMESPACE -l whetstone.dev/benchmark-run=NAME -o wide"
RUN_LOG: Final = (
    "kubectl logs -n NAMESPACE -l whetstone.dev/benchmark-run=NAME,batch.kubernetes.io/job-name -c main --prefix"
    " --tail=100"
)
JOBS: Final = "kubectl get jobs,pods -n NAMESPACE -l app.kubernetes.io/managed-by=whetstone"
OPERATOR_LOG: Final = "kubectl logs -n whetstone-system deployment/whetstone-operator --tail=200"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What to do about a reason.

    Args:
        on: Conditions that have it, or `EVENT`.
        look: Commands that show more, with the placeholders above.
        do: What to do, for people.
    """

    on: tuple[str, ...]
    look: tuple[str, ...]
    do: str
