"""Several processes and several pods for one training: how many, and what lets them find each other. Pure.

Several pods are one Indexed Job with as many completions as pods. Whatever ends one of them ends all, since the others
lose their connection; Kubernetes starts them all anew, and they go on from the newest checkpoint together. So the
limit of failed pods grows with their number.
"""

from collections.abc import Mapping
from typing import Any

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.schema import Resources
from whetstone_api.training_backend import Backend
from whetstone_api.training_distributed import RENDEZVOUS_PORT, RENDEZVOUS_VARIABLE, DistributedSpec, World

from whetstone_operator.resources.metadata import child_metadata

GPU_SUFFIX = "/gpu"
"""How vendors name whole GPUs among a container's resources: `nvidia.com/gpu`, `amd.com/gpu`."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"


def gpus_of(resources: Resources | None) -> int:
    """Return how many GPUs a container with these resources gets."""
    limits = (resources and resources.limits) or {}
    amounts = [str(amount) for name, amount in limits.items() if name.endswith(GPU_SUFFIX)]
    return sum(int(amount) for amount in amounts if amount.isdigit())


def world_of(job: LoRATrainingJob) -> World:
    """Return the processes that train the job's adapter."""
    asked = job.spec.distributed or DistributedSpec()
    return World(
        nodes=asked.nodes,
        processes_per_node=asked.processes_per_node or max(1, gpus_of(job.spec.resources)),
        strategy=asked.strategy,
    )


def world_problem(job: LoRATrainingJob) -> str | None:
    """Return why the processes cannot train where `resources` puts them, with the fix; None when they can."""
    gpus, world = gpus_of(job.spec.resources), world_of(job)
    if job.spec.backend is Backend.UNSLOTH and world.ranks > 1:
        return (
            f"spec.backend is Unsloth, which trains in one process, and spec.resources.limits asks for {gpus} GPUs in"
            " each pod; ask for one, or take backend TRL"
        )
    if world.strategy.shares_base and world.ranks == 1:
        return (
            f"spec.distributed.strategy is {world.strategy}, and there is one process only, so that nothing can be"
            " shared out: raise nodes or processesPerNode, or the GPUs in spec.resources.limits, or take DDP"
        )
    if gpus in (0, world.processes_per_node):
        return None
    return (
        f"spec.distributed.processesPerNode is {world.processes_per_node}, and spec.resources.limits asks for {gpus}"
        " GPUs in each pod; each process trains on one of its own: make both the same, or leave processesPerNode out"
    )


def rendezvous_service(job: LoRATrainingJob, *, name: str, component: str) -> dict[str, Any] | None:
    """Return the headless Service that gives the pods of a training their DNS names; None for one pod.

    Args:
        job: The object.
        name: Name of the Job; the Service has the same.
        component: Part of the product, for the label.
    """
    if world_of(job).nodes == 1:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(job, name=name, component=component),
        "spec": {
            "clusterIP": "None",
            # The processes meet before their pods could be called ready, and no pod has a readiness probe.
            "publishNotReadyAddresses": True,
            "selector": {JOB_NAME_LABEL: name},
            "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
        },
    }


def across_nodes(manifest: dict[str, Any], *, nodes: int) -> dict[str, Any]:
    """Return a Job's manifest with as many pods that train together; the same for one.

    Args:
        manifest: The Job with one pod.
        nodes: Number of pods.
    """
    if nodes == 1:
        return manifest
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    pod = spec["template"]["spec"]
    address = {"name": RENDEZVOUS_VARIABLE, "value": f"{name}-0.{name}"}
    containers = [{**one, "env": [*one["env"], address]} for one in pod["containers"]]
    indexed = {
        **spec,
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimit": (spec["backoffLimit"] + 1) * nodes - 1,
        "template": {**spec["template"], "spec": {**pod, "subdomain": name, "containers": containers}},
    }
    return {**manifest, "spec": indexed}


def communication_environment(job: LoRATrainingJob) -> tuple[dict[str, Any], ...]:
    """Return the variables that the spec sets for the libraries by which the processes speak to each other."""
    variables = (job.spec.distributed and job.spec.distributed.env) or []
    return tuple(variable.to_wire() for variable in variables)


def index_of(pod: Mapping[str, Any]) -> int:
    """Return which of the pods of a Job this is: its completion index, 0 for a Job with one."""
    labels = pod["metadata"].get("labels") or {}
    return int(labels.get("batch.kubernetes.io/job-completion-index", "0"))
