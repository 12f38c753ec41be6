"""The Job that every run-to-end object starts: one restricted pod, a configuration, claims, a report token.

Pure: the same `JobPlan` always renders the same manifest. A Job is created once and its template never changes, so
its name carries a hash of what was asked (`job_hash`), not of what was rendered: an upgraded operator with another
default image finds the Job that is already there instead of starting a second one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR, STOP_SECONDS
from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.schema import Resources
from whetstone_api.vocabulary import CONFIG_PATH, CONFIGMAPS_ROOT, TERMINATION_PATH, Annotation, Label

from whetstone_operator.resources.companion import Companion
from whetstone_operator.resources.egress import ca_mounts, ca_volumes, egress_variables
from whetstone_operator.resources.fetching import FETCH_CONTAINER
from whetstone_operator.resources.metadata import child_labels, child_metadata
from whetstone_operator.resources.pods import (
    account_token_mount,
    account_token_volume,
    claim_mount,
    claim_volume,
    container_security,
    empty_volume,
    image_fields,
    pod_security,
    pull_secrets,
    report_token_mount,
    report_token_volume,
)
from whetstone_operator.resources.source_volumes import secret_mount, secret_volume
from whetstone_operator.settings import Settings

RunToEnd = LoRATrainingJob | BenchmarkRun
"""Kinds that end with a result."""
HASH_DIGITS = 8
CONTAINER = "main"
CONFIG_FOLDER, _, CONFIG_KEY = CONFIG_PATH.rpartition("/")


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """What a Job needs, resolved.

    Args:
        owner: The object that the Job works for.
        settings: What the administrator decided.
        name: Name of the Job, hash included.
        component: Part of the product, for the label.
        image: Container image.
        arguments: Arguments of the image's entry point.
        config_map: Name of the ConfigMap with the job configuration.
        claims: Whether each mounted claim is writable, by name.
        backoff_limit: Failed pods until the Job gives up.
        labels: Labels of Job and pod, beside those of every child.
        annotations: Annotations of the Job.
        config_maps: ConfigMaps that the pod reads data from.
        secrets: Secrets that the pod reads keys of places from.
        resources: Requests and limits.
        service_account: Account whose token the container may use; None: the default account and no token.
        deadline_seconds: Seconds that the Job may take in all.
        queue: Queue that starts the Job; None: it starts at once.
        environment: Further variables of the container, as in a pod's spec.
        ports: Ports on which the container listens, by name.
        preparation: A container that ends before it starts.
        companion: A container beside it. With any of the two, the account's token is mounted by the Job's own alone.
    """

    owner: RunToEnd
    settings: Settings
    name: str
    component: str
    image: str
    arguments: tuple[str, ...]
    config_map: str
    claims: Mapping[str, bool]
    backoff_limit: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    resources: Resources | None = None
    service_account: str | None = None
    deadline_seconds: int | None = None
    queue: str | None = None
    environment: tuple[Mapping[str, Any], ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    preparation: Companion | None = None
    companion: Companion | None = None


def job_hash(owner: RunToEnd, retry: str | None) -> str:
    """Return the 8 hex digits that tell one attempt of one object from all others.

    Args:
        owner: The object; its uid counts, so that a namesake created later never takes over an old Job, and its
            spec without the fields that may change.
        retry: The retry request that this attempt answers.
    """
    spec = owner.spec.to_wire()
    free = owner.spec.mutable | owner.spec.until_success
    fixed = {key: value for key, value in spec.items() if key not in free}
    digest = canonical_digest({"uid": owner.metadata.uid, "spec": fixed, "retry": retry or ""})
    return digest.removeprefix("sha256:")[:HASH_DIGITS]


def resources_digest(resources: Resources | None) -> str:
    """Return what tells one request for resources from another: the value of `Annotation.RESOURCES`."""
    return canonical_digest(resources.to_wire() if resources else {}).removeprefix("sha256:")[:16]


def report_url(owner: RunToEnd, settings: Settings) -> str:
    """Return the endpoint to which the object's pods report."""
    metadata = owner.metadata
    return settings.report_url(plural=owner.plural, namespace=metadata.namespace, name=metadata.name)


def build_config_map(owner: RunToEnd, *, name: str, component: str, config: str) -> dict[str, Any]:
    """Return the ConfigMap that carries the configuration of the object's Jobs.

    Args:
        owner: The object.
        name: Name of the ConfigMap.
        component: Part of the product, for the label.
        config: The configuration as JSON.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(owner, name=name, component=component),
        "data": {CONFIG_KEY: config},
    }


def build_job(plan: JobPlan) -> dict[str, Any]:
    """Return the Job of a plan."""
    labels = {**child_labels(plan.owner, component=plan.component), **plan.labels}
    names = (CONTAINER,) if plan.preparation is None else (CONTAINER, FETCH_CONTAINER)
    spec: dict[str, Any] = {
        "backoffLimit": plan.backoff_limit,
        "completions": 1,
        "parallelism": 1,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                *({"action": "FailJob", "onExitCodes": _ends_with(name, EXIT_USER_ERROR)} for name in names),
                # A queue may preempt a Job more often than it may fail.
                *({"action": "Ignore", "onExitCodes": _ends_with(name, EXIT_STOPPED)} for name in names),
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "suspend": plan.queue is not None,
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(plan)},
    }
    if plan.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = plan.deadline_seconds
    metadata = child_metadata(
        plan.owner,
        name=plan.name,
        component=plan.component,
        labels={**plan.labels, **_queue_labels(plan)},
        annotations={**plan.annotations, str(Annotation.RESOURCES): resources_digest(plan.resources)},
    )
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _ends_with(container: str, code: int) -> dict[str, Any]:
    """Return what matches a pod of which one container, of several, has ended with a code."""
    return {"containerName": container, "operator": "In", "values": [code]}


def _queue_labels(plan: JobPlan) -> dict[str, str]:
    """Return the labels by which Kueue knows a Job; on its pods it would take them for jobs of their own."""
    if plan.queue is None:
        return {}
    priority = plan.owner.metadata.labels.get(Label.QUEUE_PRIORITY)
    return {str(Label.QUEUE): plan.queue, **({str(Label.QUEUE_PRIORITY): priority} if priority else {})}


def _pod_spec(plan: JobPlan) -> dict[str, Any]:
    # What is fetched must be there before a container beside the Job's own starts, which may be what uses it.
    others = [one for one in (plan.preparation, plan.companion) if one is not None]
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": plan.service_account is not None and not others,
        "securityContext": pod_security(),
        "containers": [_container(plan)],
        "volumes": _volumes(plan),
        **pull_secrets(plan.settings),
    }
    if others:
        spec["initContainers"] = [one.container for one in others]
    for one in others:
        spec["volumes"] += one.volumes
        spec["containers"][0]["volumeMounts"] += one.mounts
    if plan.service_account is not None:
        spec["serviceAccountName"] = plan.service_account
        if others:
            spec["volumes"].append(account_token_volume())
            spec["containers"][0]["volumeMounts"].append(account_token_mount())
    return spec


def _container(plan: JobPlan) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": CONTAINER,
        **image_fields(plan.settings, plan.image),
        "args": list(plan.arguments),
        "env": [*_environment(), *egress_variables(plan.settings.egress), *plan.environment],
        "securityContext": container_security(),
        "terminationMessagePath": TERMINATION_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(plan),
    }
    if plan.ports:
        container["ports"] = [{"name": name, "containerPort": port} for name, port in plan.ports.items()]
    if plan.resources is not None:
        container["resources"] = plan.resources.to_wire()
    return container


def _environment() -> list[dict[str, Any]]:
    fields = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"}
    return [
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - an emptyDir of the pod's own
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def _mounts(plan: JobPlan) -> list[dict[str, Any]]:
    return [
        {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
        report_token_mount(),
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of the pod's own
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - an emptyDir of the pod's own
        *(claim_mount(claim, read_only=not writable) for claim, writable in sorted(plan.claims.items())),
        *(
            {"name": f"map-{number}", "mountPath": f"{CONFIGMAPS_ROOT}/{name}", "readOnly": True}
            for number, name in enumerate(sorted(plan.config_maps))
        ),
        *(secret_mount(name) for name in sorted(plan.secrets)),
        *ca_mounts(plan.settings.egress),
    ]


def _volumes(plan: JobPlan) -> list[dict[str, Any]]:
    return [
        {"name": "config", "configMap": {"name": plan.config_map}},
        report_token_volume(),
        empty_volume("tmp"),
        empty_volume("shm", memory=True),
        *(claim_volume(claim) for claim in sorted(plan.claims)),
        *(
            {"name": f"map-{number}", "configMap": {"name": name}}
            for number, name in enumerate(sorted(plan.config_maps))
        ),
        *(secret_volume(name) for name in sorted(plan.secrets)),
        *ca_volumes(plan.settings.egress),
    ]
