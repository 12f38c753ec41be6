"""What the demo applies: the manifests of `examples/loop`, fitted to a machine without a GPU. Pure."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from whetstone_dev.demo.kube import read_manifests
from whetstone_dev.places import CHECKOUT
from whetstone_dev.tasks.prompt import SYSTEM_PROMPT

MODEL = "smollm2-135m"
SERVER, TRAINING, BASELINE, CANDIDATE = "smollm2", "shell-tasks", "baseline", "candidate"
NAMES = frozenset({SERVER, TRAINING, BASELINE, CANDIDATE})
ALIAS, ADAPTER = "assistant", "shell-tasks"
NAMESPACE = "whetstone-demo"
MARK = {"app.kubernetes.io/managed-by": "whetstone-demo"}
"""Labels of namespaces that the demo made, and may delete."""
KV_CACHE_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Size:
    """How much the demo does.

    Args:
        rows: Training rows.
        tasks: Held-out benchmark tasks.
        epochs: Passes over the rows.
    """

    rows: int
    tasks: int
    epochs: int


FULL = Size(rows=360, tasks=20, epochs=1)
SMALL = Size(rows=64, tasks=8, epochs=1)


def examples() -> list[dict[str, Any]]:
    """Return the manifests of `examples/loop` as they lie there."""
    return read_manifests(CHECKOUT / "examples" / "loop")


def fit_to_cpu(objects: list[dict[str, Any]], size: Size, *, storage_class: str | None = None) -> list[dict[str, Any]]:
    """Return the manifests for a node with 2 cores and no GPU.

    Args:
        objects: The manifests as they lie in `examples/loop`.
        size: How much to do.
        storage_class: Class of the claims; None leaves it to the cluster.
    """
    fitted = deepcopy(objects)
    for obj in fitted:
        spec = obj["spec"]
        if obj["kind"] == "ModelServer":
            # bfloat16 on some CPU types gives fluent nonsense; float32 is right everywhere.
            spec.setdefault("engine", {}).update(dtype="Float32", extraArgs=_engine_arguments())
            spec["resources"] = {"requests": {"cpu": "300m", "memory": "3Gi"}, "limits": {"memory": "6Gi"}}
        elif obj["kind"] == "LoRATrainingJob":
            spec["hyperparameters"]["epochs"] = size.epochs
            spec["resources"] = {"requests": {"cpu": "500m", "memory": "3Gi"}, "limits": {"memory": "8Gi"}}
        elif obj["kind"] == "BenchmarkRun" and "harbor" in spec["suite"]:
            spec["agent"]["parameters"]["systemPrompt"] = SYSTEM_PROMPT
        elif obj["kind"] == "PersistentVolumeClaim" and storage_class:
            spec["storageClassName"] = storage_class
    return fitted


def _engine_arguments() -> list[str]:
    return ["--enforce-eager", f"--kv-cache-memory-bytes={KV_CACHE_BYTES}"]


def namespace(name: str) -> dict[str, Any]:
    """Return the namespace: tasks run as root, so trial pods need the standard `baseline`."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "baseline"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {**MARK, **labels}}}


def system_namespace(name: str) -> dict[str, Any]:
    """Return the namespace of the operator."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(MARK)}}


def seed_job(*, image: str, task_image: str, size: Size) -> dict[str, Any]:
    """Return the Job that fills the claims `models` and `data`.

    Args:
        image: The image demo-seed.
        task_image: Image that the trials run in.
        size: How much data to make.
    """
    tasks = ["python3", "-m", "whetstone_dev.tasks", "--out", "/mnt/claims/data", "--image", task_image]
    tasks += ["--train-rows", str(size.rows), "--benchmark-tasks", str(size.tasks)]
    model = ["python3", "-m", "whetstone_dev.seed", "--out", f"/mnt/claims/models/{MODEL}"]
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_container("tasks", image=image, command=tasks)],
        "containers": [_container("model", image=image, command=model)],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "seed"},
        "spec": {"backoffLimit": 2, "template": {"metadata": {"labels": {"app": "seed"}}, "spec": pod}},
    }


def _container(name: str, *, image: str, command: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": command,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "models", "mountPath": "/mnt/claims/models"},
            {"name": "data", "mountPath": "/mnt/claims/data"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
