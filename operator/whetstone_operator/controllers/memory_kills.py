"""Pods of a training that the kernel kills for want of memory: told to the pods after them.

A pod that is killed so can tell nobody, and the trainer cannot know it of an earlier pod. The kubelet does: it calls
the end `OOMKilled`. The uids of such pods go into the configuration that later pods read, and stay there when the pods
are gone. All of it follows from what is there: an operator that was away finds the pods when it comes back, and each of
them that started meanwhile has only repeated the steps since its checkpoint. Kubernetes waits ten seconds or more
before it starts another pod, so an operator at work is in time for it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from whetstone_api.loratrainingjob import LoRATrainingJob

from whetstone_operator.controllers.job_outcome import ended_for_memory
from whetstone_operator.controllers.queueing import CHANGED_SECONDS
from whetstone_operator.kinds import CONFIG_MAP, POD
from whetstone_operator.resources.devices import asks_for_devices
from whetstone_operator.resources.distributed import JOB_NAME_LABEL
from whetstone_operator.resources.job_pod import CONFIG_KEY
from whetstone_operator.resources.training import config_name
from whetstone_operator.runtime.reconcile import Work

_FIELD = "killedPods"
_PODS = 128
"""Most that are kept: a Job gives up long before."""


async def hand_on_kills(work: Work[LoRATrainingJob], job: Mapping[str, Any] | None) -> str | None:
    """Tell later pods which ones were killed for want of memory.

    Args:
        work: The training.
        job: Its Job Train, if there is one.

    Returns:
        What became of the pod that began last, if it was killed so; None otherwise.
    """
    if job is None or not int(job.get("status", {}).get("failed") or 0):
        return None
    pods = await work.context.kube.list(POD, work.namespace, {JOB_NAME_LABEL: job["metadata"]["name"]})
    killed = [pod for pod in pods if ended_for_memory(pod)]
    if not killed:
        return None
    config_map = await work.context.kube.get(CONFIG_MAP, work.namespace, config_name(work.resource))
    known = kills_in(config_map)
    all_of_them = [*known, *(uid for pod in killed if (uid := pod["metadata"]["uid"]) not in known)]
    work.status["memoryKills"] = len(all_of_them)
    if config_map is not None and all_of_them != known:
        config = {**json.loads(config_map["data"][CONFIG_KEY]), _FIELD: all_of_them[-_PODS:]}
        change = {"data": {CONFIG_KEY: json.dumps(config, separators=(",", ":"))}}
        stored = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.name, **config_map}
        if await work.context.kube.merge(stored, change) is None:
            work.look_again(CHANGED_SECONDS)
    newest = _newest(pods)
    return _words(work.resource, newest) if ended_for_memory(newest) else None


async def kills_before(work: Work[LoRATrainingJob]) -> list[str]:
    """Return the pods of earlier attempts that were killed for want of memory, as they were handed on."""
    return kills_in(await work.context.kube.get(CONFIG_MAP, work.namespace, config_name(work.resource)))


def kills_in(config_map: Mapping[str, Any] | None) -> list[str]:
    """Return the uids that a configuration holds; none where there is no such configuration."""
    try:
        return [str(uid) for uid in json.loads((config_map or {})["data"][CONFIG_KEY])[_FIELD]]
    except (KeyError, TypeError, ValueError):
        return []


def _newest(pods: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the pod that began last; one that still waits for a node or an image has not."""
    begun = [pod for pod in pods if pod.get("status", {}).get("phase") not in (None, "Pending")]
    return max(begun, key=lambda pod: (pod["metadata"]["creationTimestamp"], not ended_for_memory(pod)))


def _words(training: LoRATrainingJob, pod: Mapping[str, Any]) -> str:
    resources = training.spec.resources
    limit = (resources.limits or {}).get("memory") if resources else None
    than = f"its limit of {limit} (spec.resources.limits.memory)" if limit else "there was"
    on_device = asks_for_devices(resources.to_wire() if resources else None)
    return (
        f"pod {pod['metadata']['name']} took more memory than {than}, and the kernel killed it; the next one goes on"
        f" from the newest checkpoint{'' if on_device else ' with a smaller plan'}"
    )
