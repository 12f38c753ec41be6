"""Builders of a ModelServer's children. Pure.

The pod template holds nothing that may change while the server runs: adapters and aliases travel in a ConfigMap and
over the sidecar's API, so that a hot change never starts a rollout.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import DESIRED_FILE, ENGINE_PORT, DesiredState
from whetstone_api.vocabulary import Annotation

from whetstone_operator.resources import source_volumes
from whetstone_operator.resources.access import access_volume
from whetstone_operator.resources.chat_template import template_annotations, template_volumes
from whetstone_operator.resources.devices import asks_for_devices
from whetstone_operator.resources.egress import ca_volumes
from whetstone_operator.resources.engine_containers import (
    engine_container,
    guard_container,
    mounted_claims,
    sidecar_container,
)
from whetstone_operator.resources.lifetimes import lifetimes
from whetstone_operator.resources.metadata import child_labels, child_metadata, owner_uids, selector_labels
from whetstone_operator.resources.pod_template import lay_over
from whetstone_operator.resources.pods import (
    claim_volume,
    empty_volume,
    pod_security,
    pull_secrets,
    report_token_volume,
)
from whetstone_operator.settings import Settings

COMPONENT = "engine"
SERVICE_PORT = 80


def deployment_name(server: ModelServer) -> str:
    """Return the name of the server's Deployment."""
    return engine_deployment_name(server.metadata.name)


def engine_deployment_name(server: str) -> str:
    """Return the name of the Deployment of the server of that name."""
    return f"{server}-engine"


def desired_name(server: ModelServer) -> str:
    """Return the name of the ConfigMap with the desired state."""
    return f"{server.metadata.name}-desired"


def server_url(server: ModelServer) -> str:
    """Return the base URL of the OpenAI-compatible API inside the cluster."""
    return f"http://{server.metadata.name}.{server.metadata.namespace}.svc:{SERVICE_PORT}/v1"


def pod_selector(server: ModelServer) -> dict[str, str]:
    """Return the labels that select the server's engine pods."""
    return {**selector_labels(server), "app.kubernetes.io/component": COMPONENT}


def build_desired(server: ModelServer, desired: DesiredState) -> dict[str, Any]:
    """Return the ConfigMap from which a new pod learns what to hold."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(server, name=desired_name(server), component=COMPONENT),
        "data": {DESIRED_FILE: desired.to_json()},
    }


def read_desired(config_map: Mapping[str, Any] | None, *, owner: str) -> DesiredState | None:
    """Return the stored desired state; None when there is none, a namesake's is left, or somebody broke it."""
    if config_map is None or owner not in owner_uids(config_map):
        return None
    text = (config_map.get("data") or {}).get(DESIRED_FILE)
    if not text:
        return None
    try:
        return DesiredState.model_validate_json(text)
    except ValidationError:
        return None


def build_service(server: ModelServer) -> dict[str, Any]:
    """Return the Service that clients use."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(server, name=server.metadata.name, component=COMPONENT),
        "spec": {
            "type": "ClusterIP",
            "selector": pod_selector(server),
            "ports": [{"name": "http", "port": SERVICE_PORT, "targetPort": ENGINE_PORT, "protocol": "TCP"}],
        },
    }


def build_template(server: ModelServer, settings: Settings, *, chat_template: str | None = None) -> dict[str, Any]:
    """Return the pod template of the engine pods.

    Args:
        server: The server.
        settings: What the administrator decided.
        chat_template: Text of the chat template that its spec asks for.

    Raises:
        OverlayError: `spec.podTemplate` says what users may not decide.
    """
    labels = {**child_labels(server, component=COMPONENT), **pod_selector(server)}
    metadata: dict[str, Any] = {"labels": labels}
    if annotations := template_annotations(chat_template):
        metadata["annotations"] = annotations
    ours = {"metadata": metadata, "spec": _pod(server, settings)}
    return lay_over(ours, server.spec.pod_template)


def build_deployment(
    server: ModelServer, settings: Settings, *, chat_template: str | None = None, form: str | None = None
) -> dict[str, Any]:
    """Return the Deployment of the engine pods.

    Args:
        server: As `build_template`.
        settings: As `build_template`.
        chat_template: As `build_template`.
        form: What it remembers of a server whose capacity follows its adapters.

    Raises:
        OverlayError: As `build_template`.
    """
    template = build_template(server, settings, chat_template=chat_template)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(
            server,
            name=deployment_name(server),
            component=COMPONENT,
            annotations={Annotation.ENGINE_FORM: form} if form else None,
        ),
        "spec": {
            "replicas": server.spec.replicas,
            "selector": {"matchLabels": pod_selector(server)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rollout_steps(template["spec"])},
            "progressDeadlineSeconds": lifetimes(server.spec).progress_deadline,
            "revisionHistoryLimit": 2,
            "template": template,
        },
    }


def build_disruption_budget(server: ModelServer) -> dict[str, Any]:
    """Return the budget that lets node drains take one pod at a time; a pod that is not ready never holds one up."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(server, name=deployment_name(server), component=COMPONENT),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": pod_selector(server)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def rollout_steps(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return how a rollout replaces pods of this spec.

    With accelerators none is free for a pod more, so a pod goes before its successor comes. Without them the successor
    comes first, and one replica is enough for a rollout without a pause.
    """
    if pod.get("resourceClaims") or any(asks_for_devices(item.get("resources")) for item in pod["containers"]):
        return {"maxSurge": 0, "maxUnavailable": 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def claims(server: ModelServer) -> dict[str, str]:
    """Return the claims that the pod mounts, each with the field that names it."""
    found = mounted_claims(server)
    if server.spec.model.cache is not None:
        found.setdefault(server.spec.model.cache.claim_name, "spec.model.cache.claimName")
    return found


def _pod(server: ModelServer, settings: Settings) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": lifetimes(server.spec).grace,
        **pull_secrets(settings),
        "initContainers": [guard_container(settings), *source_volumes.fetch_containers(server, settings)],
        "containers": [engine_container(server, settings), sidecar_container(server, settings)],
        "volumes": [
            *(claim_volume(claim) for claim in sorted(claims(server))),
            access_volume(server),
            {"name": "desired", "configMap": {"name": desired_name(server)}},
            *source_volumes.store_secrets(server),
            *source_volumes.model_volumes(server),
            *template_volumes(server.spec.engine),
            *ca_volumes(settings.egress),
            report_token_volume(),
            empty_volume("adapters"),
            empty_volume("guard-root"),
            empty_volume("engine-tmp"),
            empty_volume("sidecar-tmp"),
            empty_volume("shm", memory=True),
        ],
    }
