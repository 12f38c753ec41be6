"""Containers of an engine pod: guard, engine and sidecar. Pure."""

from typing import Any

from whetstone_api.access import ACCESS_FILE
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import DESIRED_FILE, ENGINE_PORT, SIDECAR_PORT

from whetstone_operator.resources import source_volumes
from whetstone_operator.resources.access import FOLDER as ACCESS_FOLDER
from whetstone_operator.resources.access import TOKEN_KEY, access_mount
from whetstone_operator.resources.capacity import lora_options, reserve
from whetstone_operator.resources.chat_template import template_mounts, template_options
from whetstone_operator.resources.egress import ca_mounts, egress_variables
from whetstone_operator.resources.engine import engine_options, engine_resources, engine_variables, extra_arguments
from whetstone_operator.resources.lifetimes import (
    EXIT_SECONDS,
    KEEP_ALIVE_SECONDS,
    PROBE_PERIOD_SECONDS,
    Lifetimes,
    lifetimes,
)
from whetstone_operator.resources.pods import claim_mount, container_security, image_fields, report_token_mount
from whetstone_operator.settings import Settings

GUARD_ROOT = "/whetstone/guard-root"
GUARD_CLASS = "whetstone_guard.Guard"
GUARD_PACKAGE = "whetstone_server.guard.whetstone_guard"
"""The guard in the sidecar's image; the engine's container has it alone, on its PYTHONPATH."""
ADAPTERS_FOLDER = "/adapters"
DESIRED_FOLDER = "/etc/whetstone/desired"
_TMP = "/tmp"  # noqa: S108 - an emptyDir of the pod
_SIDECAR_START_SECONDS = 600
"""On a node without a CPU to spare, Python alone takes minutes; a container killed meanwhile begins anew for ever."""


def guard_container(settings: Settings) -> dict[str, Any]:
    """Return the init container that gives the engine the guard."""
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


def engine_container(server: ModelServer, settings: Settings) -> dict[str, Any]:
    """Return the container of vLLM, with the guard in it."""
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
        "WHETSTONE_TOKEN_FILE": f"{ACCESS_FOLDER}/{TOKEN_KEY}",
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


def sidecar_container(server: ModelServer, settings: Settings) -> dict[str, Any]:
    """Return the container that keeps the engine at its desired state."""
    report_url = settings.report_url(
        plural=server.plural, namespace=server.metadata.namespace, name=server.metadata.name
    )
    values = {
        "WHETSTONE_ENGINE_URL": f"http://127.0.0.1:{ENGINE_PORT}",
        "WHETSTONE_DESIRED_FILE": f"{DESIRED_FOLDER}/{DESIRED_FILE}",
        "WHETSTONE_ADAPTERS_DIR": ADAPTERS_FOLDER,
        "WHETSTONE_TOKEN_FILE": f"{ACCESS_FOLDER}/{TOKEN_KEY}",
        "WHETSTONE_REPORT_URL": report_url,
        # Of this pod's engine: the desired state is the same for pods that a rollout has yet to replace.
        "WHETSTONE_MAX_RANK": str(reserve(server.spec.adapter_capacity).rank),
        "HOME": _TMP,
    }
    alive = {"httpGet": {"path": "/metrics", "port": SIDECAR_PORT}}
    return {
        "name": "sidecar",
        **image_fields(settings, settings.server_image),
        "args": ["sidecar"],
        "env": [
            *({"name": name, "value": value} for name, value in values.items()),
            *egress_variables(settings.egress),
        ],
        "ports": [{"name": "sidecar", "containerPort": SIDECAR_PORT, "protocol": "TCP"}],
        "securityContext": container_security(),
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": SIDECAR_PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        "startupProbe": {
            **alive,
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": _SIDECAR_START_SECONDS,
        },
        "livenessProbe": {
            **alive,
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
            access_mount(),
            *source_volumes.store_secret_mounts(server),
            *ca_mounts(settings.egress),
            report_token_mount(),
            {"name": "sidecar-tmp", "mountPath": _TMP},
        ],
    }


def _sidecar_claim_mounts(server: ModelServer) -> list[dict[str, Any]]:
    mounts = [claim_mount(claim, read_only=True) for claim in sorted(mounted_claims(server))]
    if server.spec.model.place.in_claim is None:
        mounts.append(source_volumes.model_mount(server, read_only=True))
    return mounts


def mounted_claims(server: ModelServer) -> dict[str, str]:
    """Return the claims that the sidecar finds under `CLAIMS_ROOT`."""
    model = server.spec.model.place.in_claim
    found = {} if model is None else {model.claim: "spec.model.source.uri"}
    for store in server.spec.adapter_stores or []:
        if store.claim_name is not None:
            found.setdefault(store.claim_name, f"spec.adapterStores[{store.name}].claimName")
    return found
