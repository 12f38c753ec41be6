"""From `kubectl apply` of a small LoRATrainingJob to its first optimizer step, on the node of the local cluster.

The moments come from the pods' states and, to the microsecond, from the times at which the container runtime took the
lines of the trainer's log.
"""

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from whetstone_api.training_stall import step_line
from whetstone_dev.commands import DevError
from whetstone_dev.demo import plan
from whetstone_dev.demo.__main__ import Demo
from whetstone_dev.demo.down import delete_namespace
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.demo.watch import condition
from whetstone_dev.images import TAGS_FILE
from whetstone_dev.places import BUILD

from whetstone_bench.figures import Figure, spread

NAMESPACE: Final = "whetstone-bench-training"
STEPS: Final = 2
LONGEST_SECONDS: Final = 900.0
LOOK_SECONDS: Final = 2.0
PARTS: Final = {
    "first step: applied -> container of Prepare started": ("applied", "prepare_started"),
    "first step: Prepare's program and its imports": ("prepare_started", "prepare_begins"),
    "first step: Prepare's work": ("prepare_begins", "prepare_ends"),
    "first step: Prepare ended -> container of Train started": ("prepare_ends", "train_started"),
    "first step: Train's program and its imports": ("train_started", "train_begins"),
    "first step: checks, imports of torch and TRL": ("train_begins", "loading"),
    "first step: base model loaded, adapter and trainer made": ("loading", "stepping"),
    "first step: the step itself": ("stepping", "stepped"),
}
"""Name of each part by the moments between which it lies."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """When what happened.

    Args:
        applied: The object was sent.
        prepare_started: The container of Prepare was started; whole seconds, as the kubelet tells it.
        prepare_begins: Its program has imported what it needs.
        prepare_ends: It has said its last word.
        train_started: The container of Train was started; whole seconds.
        train_begins: Its program has imported what it needs to check the job.
        loading: What a training needs is imported, and the base model is loaded.
        stepping: The first step begins.
        stepped: It is done.
    """

    applied: datetime
    prepare_started: datetime
    prepare_begins: datetime
    prepare_ends: datetime
    train_started: datetime
    train_begins: datetime
    loading: datetime
    stepping: datetime
    stepped: datetime

    def seconds(self, begin: str, end: str) -> float:
        """Return the seconds from one moment to another, by their names."""
        return float((getattr(self, end) - getattr(self, begin)).total_seconds())


def first_step(samples: int) -> list[Figure]:
    """Measure so many jobs one after the other; none where there is no cluster to measure on.

    Args:
        samples: Jobs after the one for which the node reads image and model for the first time.

    Raises:
        DevError: A job failed.
    """
    kubeconfig = Path(os.environ.get("KUBECONFIG") or BUILD / "kubeconfig")
    missing = next((str(path) for path in (kubeconfig, TAGS_FILE) if not path.is_file()), None)
    try:
        kube = None if missing else Kube.connect(kubeconfig)
    except DevError as error:
        kube, missing = None, str(error)
    if kube is None:
        print(f"[whetstone] apply to first step: not measured, there is no cluster ({missing});", end=" ")
        print("`make cluster images` makes one")
        return []
    demo = Demo(kube, namespace=NAMESPACE, images=json.loads(TAGS_FILE.read_text()), size=plan.SMALL)
    try:
        demo.prepare(kubeconfig, {})
        found = [_measure(kube, f"first-step-{number}") for number in range(samples + 1)][1:]
    finally:
        delete_namespace(kube, NAMESPACE)
    figures = [spread("apply -> first optimizer step", [one.seconds("applied", "stepped") for one in found], "s")]
    return figures + [spread(name, [one.seconds(*ends) for one in found], "s") for name, ends in PARTS.items()]


def _measure(kube: Kube, name: str) -> Moments:
    print(f"[whetstone] {name} ...", flush=True)
    applied = datetime.now(UTC)
    kube.apply(_job(name), namespace=NAMESPACE)
    deadline = time.monotonic() + LONGEST_SECONDS
    while (found := _moments(kube, name, applied)) is None:
        failed = condition(kube.get(WHETSTONE, "LoRATrainingJob", name=name, namespace=NAMESPACE), "Failed")
        if failed is not None or time.monotonic() > deadline:
            raise DevError(f"LoRATrainingJob {name}: {failed['message'] if failed else 'no step is made'}")
        time.sleep(LOOK_SECONDS)
    # What comes after the first step would only keep the processors from the next job.
    kube.delete(WHETSTONE, "LoRATrainingJob", name=name, namespace=NAMESPACE)
    return found


def _moments(kube: Kube, name: str, applied: datetime) -> Moments | None:
    """Return when what happened; None before the first step is done."""
    prepare, train = (_pod(kube, name, stage) for stage in ("prepare", "train"))
    said = _lines(kube, train) if train else []
    if prepare is None or train is None or not any(step_line(1, STEPS) in line for _, line in said):
        return None
    told = _lines(kube, prepare)
    return Moments(
        applied=applied,
        prepare_started=_started(prepare),
        prepare_begins=_when(told, "phase Validate"),
        prepare_ends=told[-1][0],
        train_started=_started(train),
        train_begins=_when(said, "phase Validate"),
        loading=_when(said, "phase Train"),
        stepping=_when(said, "the steps begin"),
        stepped=_when(said, step_line(1, STEPS)),
    )


def _job(name: str) -> dict[str, Any]:
    """Return the demo's training, of a few steps and without its server."""
    fitted = plan.fit_to_cpu(plan.examples(), plan.SMALL)
    spec = next(obj["spec"] for obj in fitted if obj["kind"] == "LoRATrainingJob")
    spec["baseModel"] = {"source": {"uri": f"pvc://models/{plan.MODEL}"}}
    del spec["hyperparameters"]["epochs"]
    spec["hyperparameters"]["maxSteps"] = STEPS
    spec["output"] = {"adapter": {"uri": f"pvc://adapters/{name}"}}
    return {"apiVersion": WHETSTONE, "kind": "LoRATrainingJob", "metadata": {"name": name}, "spec": spec}


def _pod(kube: Kube, name: str, stage: str) -> dict[str, Any] | None:
    labels = f"whetstone.dev/lora-training-job={name},whetstone.dev/stage={stage}"
    pods = kube.list("v1", "Pod", namespace=NAMESPACE, labels=labels)
    if len(pods) > 1:
        raise DevError(f"LoRATrainingJob {name} has {len(pods)} pods of stage {stage}, so its times mean nothing")
    return pods[0] if pods else None


def _started(pod: dict[str, Any]) -> datetime:
    [state] = [one["state"] for one in pod["status"]["containerStatuses"] if one["name"] == "main"]
    [entered] = state.values()
    return datetime.fromisoformat(entered["startedAt"])


def _lines(kube: Kube, pod: dict[str, Any]) -> list[tuple[datetime, str]]:
    """Return the lines of a pod's log with their times; none before its container runs."""
    log = kube.logs(namespace=NAMESPACE, pod=pod["metadata"]["name"], container="main", lines=10_000, timestamps=True)
    parted = [line.partition(" ") for line in log.split("\n") if line[:1].isdigit()]
    return [(datetime.fromisoformat(at), words) for at, _, words in parted]


def _when(lines: list[tuple[datetime, str]], words: str) -> datetime:
    found = next((at for at, line in lines if words in line), None)
    if found is None:
        raise DevError(f"the trainer's log does not say {words!r}")
    return found
