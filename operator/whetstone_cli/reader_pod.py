"""The short-lived pod that reads a run's results from their claim."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from whetstone_api.benchmarkrun import BenchmarkRun
from whetstone_api.source import Source
from whetstone_api.vocabulary import API_VERSION

LONGEST_SECONDS: Final = 3600
"""The pod ends after that even where nobody deletes it."""
MOUNT: Final = "/claim"
_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations", "imagePullSecrets", "securityContext")
"""What the runner's pod had and the reader needs: the node that can mount the claim, and the user who may read it."""


def reader_pod(run: Mapping[str, Any], output: Source, template: Mapping[str, Any], image: str) -> dict[str, Any]:
    """Return the pod.

    Args:
        run: The BenchmarkRun, which owns the pod.
        output: Its output.
        template: Spec of the runner's pod; empty when its Job is gone.
        image: Image with a shell, `find`, `sha256sum` and `tar`.
    """
    metadata = run["metadata"]
    defaults = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    }
    owner = {
        "apiVersion": API_VERSION,
        "kind": BenchmarkRun.kind_name,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-results-{secrets.token_hex(3)}",
            "labels": {"app.kubernetes.io/name": "whetstone", "app.kubernetes.io/component": "results"},
            "ownerReferences": [owner],
        },
        "spec": {
            **defaults,
            **{name: template[name] for name in _PLACEMENT if name in template},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LONGEST_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [
                {
                    "name": "reader",
                    "image": image,
                    "command": ["sleep", str(LONGEST_SECONDS)],
                    "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "claim", "mountPath": MOUNT, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": output.claim, "readOnly": True}}],
        },
    }
