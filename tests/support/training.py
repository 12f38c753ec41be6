"""Specs of small training jobs and runs for tests on the node."""

import json
from typing import Any

from whetstone_dev.demo import plan

ROW = json.dumps({"messages": [{"role": "user", "content": "say hi"}, {"role": "assistant", "content": "hi"}]})


def training_spec(*, output: str, dataset: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a spec of a LoRATrainingJob on the seeded base model.

    Args:
        output: Folder in the claim `adapters`.
        dataset: `source` or `configMapRef`.
        fields: Further fields of the spec, or others instead of these.
    """
    return {
        "baseModel": {"source": {"uri": f"pvc://models/{plan.MODEL}"}},
        "datasets": [{"name": "rows", **dataset}],
        "workspace": {"claimName": "workspace"},
        "output": {"adapter": {"uri": f"pvc://adapters/{output}"}},
        "resources": {"requests": {"cpu": "200m", "memory": "2Gi"}, "limits": {"memory": "8Gi"}},
        **fields,
    }


def run_spec(*, output: str, dataset: str = "pvc://data/tasks", **fields: Any) -> dict[str, Any]:
    """Return a spec of a BenchmarkRun with the oracle on the seeded tasks.

    Args:
        output: Folder in the claim `results`.
        dataset: URI of the tasks' folder.
        fields: Further fields of the spec, or others instead of these.
    """
    trial = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    return {
        "target": {"modelServerRef": {"name": plan.SERVER}},
        "suite": {"harbor": {"dataset": {"uri": dataset}, "trialResources": trial}},
        "agent": {"name": "oracle"},
        "concurrency": 2,
        "output": {"uri": f"pvc://results/{output}"},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        **fields,
    }
