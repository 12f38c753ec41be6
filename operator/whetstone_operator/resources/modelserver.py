"""Builders of a ModelServer's children. Pure.

The pod template holds nothing that may change while the server runs: adapters and aliases travel in a ConfigMap and
over the sidecar's API, so that a hot change never starts a rollout.
"""

import base64
from collections.abc import Mapping
from typing import Any

from whetstone_api.access import ACCESS_FILE
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import DESIRED_FILE, ENGINE_PORT, SIDECAR_PORT, DesiredState
from whetstone_api.vocabulary import Annotation, Reason

from whetstone_operator.resources import source_volumes
from whetstone_operator.resources.access import FOLDER as ACCESS_FOLDER
from whetstone_operator.resources.access import access_mount, access_volume
from whetstone_operator.resources.capacity import lora_options, reserve
from whetstone_operator.resources.chat_template import (
    template_annotations,
    template_mounts,
    template_options,
    template_volumes,
)
from whetstone_operator.resources.engine import (
    asks_for_devices,
    engine_options,
    engine_resources,
    engine_variables,
    extra_arguments,
)
from whetstone_operator.resources.lifetimes import (
    EXIT_SECONDS,
    KEEP_ALIVE_SECONDS,
    PROBE_PERIOD_SECONDS,
    Lifetimes,
    lifetimes,
)
from whetstone_operator.resources.metadata import child_labels, child_metadata, selector_labels
from whetstone_operator.resources.pod_template import lay_over
from whetstone_operator.resources.pods import (
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
from whetstone_operator.runtime.outcome import Stalled
from whetstone_operator.settings import Settings

COMPONENT = "engine"
GUARD_ROOT = "/whetstone/guard-root"
GUARD_CLASS = "whetstone_guard.Guard"
GUARD_PACKAGE = "whetstone_server.guard.whetstone_guard"
"""The guard in the sidecar's image; the engine's container has it alone, on its PYTHONPATH."""
ADAPTERS_FOLDER = "/adapters"
DESIRED_FOLDER = "/etc/whetstone/desired"
TOKEN_FOLDER = "/etc/whetstone/token"  # noqa: S105 - a path, not a secret
TOKEN_KEY = "token"  # noqa: S105 - a key's name, not a secret
SERVICE_PORT = 80
_TMP = "/tmp"  # noqa: S108 - an emptyDir of the pod


def deployment_name(server: ModelServer) -> str:
    """Return the name of the server's Deployment."""
    return f"{server.metadata.name}-engine"


def desired_name(server: ModelServer) -> str:
    """Return the name of the ConfigMap with the desired state."""
    return f"{server.metadata.name}-desired"


def token_name(server: ModelServer) -> str:
    """Return the name of the Secret with the operator's token for this server."""
    return f"{server.metadata.name}-token"


def server_url(server: ModelServer) -> str:
    """Return the base URL of the OpenAI-compatible API inside the cluster."""
    return f"http://{server.metadata.name}.{server.metadata.namespace}.svc:{SERVICE_PORT}/v1"


def pod_selector(server: ModelServer) -> dict[str, str]:
    """Return the labels that select the server's engine pods."""
    return {**selector_labels(server), "app.kubernetes.io/component": COMPONENT}


def build_token(server: ModelServer, token: str) -> dict[str, Any]:
    """Return the Secret with the token; created once and never written again."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(server, name=token_name(server), component=COMPONENT),
        "type": "Opaque",
        "stringData": {TOKEN_KEY: token},
    }


def read_token(secret: dict[str, Any]) -> str:
    """Return the token of a stored Secret.

    Raises:
        Stalled: Somebody replaced the Secret by one without the key.
    """
    encoded = (secret.get("data") or {}).get(TOKEN_KEY)
    if not encoded:
        name = secret["metadata"]["name"]
        raise Stalled(
            Reason.SECRET_NOT_FOUND, f"Secret {name} has no key {TOKEN_KEY}; delete it, and it is created anew"
        )
    return base64.b64decode(encoded).decode()


def build_desired(server: ModelServer, desired: DesiredState) -> dict[str, Any]:
    """Return the ConfigMap from which a new pod learns what to hold."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(server, name=desired_name(server), component=COMPONENT),
        "data": {DESIRED_FILE: desired.to_json()},
    }


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
    found = _mounted_claims(server)
    if server.spec.model.cache is not None:
        found.setdefault(server.spec.model.cache.claim_name, "spec.model.cache.claimName")
    return found


def _mounted_claims(server: ModelServer) -> dict[str, str]:
    """Return the claims that the sidecar finds under `CLAIMS_ROOT`."""
    model = server.spec.model.place.in_claim
    found = {} if model is None else {model.claim: "spec.model.source.uri"}
    for store in server.spec.adapter_stores or []:
        if store.claim_name is not None:
            found.setdefault(store.claim_name, f"spec.adapterStores[{store.name}].claimName")
    return found


def _pod(server: ModelServer, settings: Settings) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": lifetimes(server.spec).grace,
        **pull_secrets(settings),
        "initContainers": [_guard_container(settings), *source_volumes.fetch_containers(server, settings)],
        "containers": [_engine_container(server, settings), _sidecar_container(server, settings)],
        "volumes": [
            *(claim_volume(claim) for claim in sorted(claims(server))),
            {"name": "token", "secret": {"secretName": token_name(server)}},
            access_volume(server),
            {"name": "desired", "configMap": {"name": desired_name(server)}},
            *source_volumes.store_secrets(server),
            *source_volumes.model_volumes(server),
            *template_volumes(server.spec.engine),
            report_token_volume(),
            empty_volume("adapters"),
            empty_volume("guard-root"),
            empty_volume("engine-tmp"),
            empty_volume("sidecar-tmp"),
            empty_volume("shm", memory=True),
        ],
    }


def _guard_container(settings: Settings) -> dict[str, Any]:
    return {
        "name": "guard",
        **image_fields(settings, settings.server_image),
        "args": ["install-guard", GUARD_ROOT],
        "securityContext": container_security(),
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [
            {"name": "guard-root", "mountPath": GUARD_ROOT},
            {"name": "sidecar-tmp", "mountPath": _TMP},
        ],
    }


def engine_arguments(server: ModelServer) -> list[str]:
    """Return the arguments of `vllm serve`; the user's own come last."""
    spec = server.spec
    return [
        source_volumes.model_path(server),
        f"--served-model-name={spec.model.served_name}",
        "--host=0.0.0.0",
        f"--port={ENGINE_PORT}",
        *lora_options(reserve(spec.adapter_capacity)),
        f"--middleware={GUARD_CLASS}",
        f"--shutdown-timeout={lifetimes(spec).shutdown}",
        *engine_options(spec.engine),
        *template_options(spec.engine),
        *extra_arguments(spec.engine),
    ]


def _engine_container(server: ModelServer, settings: Settings) -> dict[str, Any]:
    health = {"httpGet": {"path": "/health", "port": ENGINE_PORT}}
    times = lifetimes(server.spec)
    container: dict[str, Any] = {
        "name": "engine",
        **image_fields(settings, server.spec.engine.image or settings.engine_image),
        "command": ["python3", "-m", "vllm.entrypoints.cli.main", "serve"],
        "args": engine_arguments(server),
        "env": [
            *engine_variables(server.spec.engine),
            *_engine_environment(ready_seconds=times.engine_ready),
            *source_volumes.model_variables(server),
        ],
        "ports": [{"name": "http", "containerPort": ENGINE_PORT, "protocol": "TCP"}],
        "securityContext": container_security(),
        "startupProbe": {
            **health,
            "periodSeconds": PROBE_PERIOD_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": times.startup_failures,
        },
        "livenessProbe": {
            **health,
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
            # An engine that hangs has no request to end well.
            "terminationGracePeriodSeconds": EXIT_SECONDS,
        },
        "readinessProbe": {**health, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "lifecycle": {"preStop": {"exec": {"command": leave_command("whetstone_guard", times)}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            source_volumes.model_mount(server, read_only=True),
            {"name": "adapters", "mountPath": ADAPTERS_FOLDER, "readOnly": True},
            {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
            access_mount(),
            *template_mounts(server.spec.engine),
            {"name": "guard-root", "mountPath": GUARD_ROOT, "readOnly": True},
            {"name": "engine-tmp", "mountPath": _TMP},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a volume of the pod
        ],
    }
    resources = engine_resources(server.spec.engine, server.spec.resources)
    if resources is not None:
        container["resources"] = resources
    return container


def _engine_environment(*, ready_seconds: int) -> list[dict[str, str]]:
    values = {
        "PYTHONPATH": GUARD_ROOT,
        "WHETSTONE_TOKEN_FILE": f"{TOKEN_FOLDER}/{TOKEN_KEY}",
        "WHETSTONE_ACCESS_FILE": f"{ACCESS_FOLDER}/{ACCESS_FILE}",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(ready_seconds),
        # A pod's end waits for idle connections to be closed.
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_SECONDS),
        "VLLM_CACHE_ROOT": f"{_TMP}/vllm",
        "VLLM_CONFIG_ROOT": f"{_TMP}/vllm-config",
        "HF_HOME": f"{_TMP}/huggingface",
        "HF_HUB_OFFLINE": "1",
        "TRITON_CACHE_DIR": f"{_TMP}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{_TMP}/inductor",
        "HOME": _TMP,
        # Stock images have no passwd entry for our user, and getpass asks these first.
        "USER": "whetstone",
        "LOGNAME": "whetstone",
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def leave_command(package: str, times: Lifetimes) -> list[str]:
    """Return the preStop hook: it waits until no client uses the pod, within its limits.

    Args:
        package: The guard's package as the container has it.
        times: The pod's limits.
    """
    limits = (f"--least={times.leave_least}", f"--quiet={times.leave_quiet}", f"--limit={times.leave_limit}")
    return ["python3", "-m", f"{package}.leave", *limits]


def _sidecar_claim_mounts(server: ModelServer) -> list[dict[str, Any]]:
    mounts = [claim_mount(claim, read_only=True) for claim in sorted(_mounted_claims(server))]
    if server.spec.model.place.in_claim is None:
        mounts.append(source_volumes.model_mount(server, read_only=True))
    return mounts


def _sidecar_container(server: ModelServer, settings: Settings) -> dict[str, Any]:
    report_url = settings.report_url(
        plural=server.plural, namespace=server.metadata.namespace, name=server.metadata.name
    )
    values = {
        "WHETSTONE_ENGINE_URL": f"http://127.0.0.1:{ENGINE_PORT}",
        "WHETSTONE_DESIRED_FILE": f"{DESIRED_FOLDER}/{DESIRED_FILE}",
        "WHETSTONE_ADAPTERS_DIR": ADAPTERS_FOLDER,
        "WHETSTONE_TOKEN_FILE": f"{TOKEN_FOLDER}/{TOKEN_KEY}",
        "WHETSTONE_REPORT_URL": report_url,
        # Of this pod's engine: the desired state is the same for pods that a rollout has yet to replace.
        "WHETSTONE_MAX_RANK": str(reserve(server.spec.adapter_capacity).rank),
        "HOME": _TMP,
    }
    return {
        "name": "sidecar",
        **image_fields(settings, settings.server_image),
        "args": ["sidecar"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "ports": [{"name": "sidecar", "containerPort": SIDECAR_PORT, "protocol": "TCP"}],
        "securityContext": container_security(),
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": SIDECAR_PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/metrics", "port": SIDECAR_PORT},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
        # The guard answers until the engine ends, so its routes must have a keeper until then.
        "lifecycle": {"preStop": {"exec": {"command": leave_command(GUARD_PACKAGE, lifetimes(server.spec))}}},
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [
            *_sidecar_claim_mounts(server),
            {"name": "adapters", "mountPath": ADAPTERS_FOLDER},
            {"name": "desired", "mountPath": DESIRED_FOLDER, "readOnly": True},
            {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
            *source_volumes.store_secret_mounts(server),
            report_token_mount(),
            {"name": "sidecar-tmp", "mountPath": _TMP},
        ],
    }
