"""What the attempts of a training leave for those after them, in the workspace: the plan to go on with.

An attempt writes down the plan that it is about to train by, and the pods that do. It cannot write down that it was
killed for want of memory: that ends it, and its control group with it. And a plan that was begun and not ended says
nothing, for `kill -9` and a lost node leave it too, after which the same plan gives the same bytes. So the kubelet's
word decides: the operator hands on which pods it calls `OOMKilled` (`TrainingConfig.killed_pods`).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from whetstone_api.vocabulary import Reason
from whetstone_api.wire import WireModel
from whetstone_artifacts.replacing import replacing
from whetstone_artifacts.serving_memory import quantity
from whetstone_artifacts.training_choice import Choice

from whetstone_trainer.errors import UserError
from whetstone_trainer.plan import Device, Plan

log = logging.getLogger(__name__)

FALLBACK_FILE = "plan.json"
BEGUN_FILE = "begun.json"
POD_VARIABLE = "POD_UID"
"""Variable with the uid of this pod, which the operator sets."""


class Fallback(WireModel):
    """What a training fell back to when its plan did not work."""

    recipe_digest: str
    micro_batch_size: int
    checkpointing: bool
    compiled: bool
    reason: str
    memory_limit: int | None = None
    """Bytes of main memory that a process had; None where it trains on an accelerator, or had no limit."""


class Begun(Fallback):
    """What the newest attempt trains by."""

    pods: list[str]
    """Uids of the pods that train together."""


def go_on(plan: Plan, workspace: Path, *, recipe_digest: str, device: Device, killed_pods: Sequence[str]) -> Plan:
    """Return the plan for this attempt: as made now, as fallen back to, or smaller than the one that was killed.

    What was begun with stays written down until `begin`, so that an attempt that is killed here is answered as before.

    Args:
        plan: The plan as it was made now.
        workspace: Folder of the object in the workspace claim.
        recipe_digest: What is asked.
        device: What the training runs on.
        killed_pods: Uids of the pods that were killed for want of main memory.

    Raises:
        UserError: `DEVICE_TOO_SMALL`: the plan that was killed is the smallest that `spec.plan` leaves open.
    """
    limit = _limit(device)
    kept = _read(workspace / FALLBACK_FILE, Fallback, plan, recipe_digest=recipe_digest, limit=limit)
    if kept is not None:
        plan = _as_kept(plan, kept)
    begun = _read(workspace / BEGUN_FILE, Begun, plan, recipe_digest=recipe_digest, limit=limit)
    if begun is None or not {*begun.pods} & {*killed_pods}:
        return plan
    if device.is_gpu:
        log.warning("a pod was killed for want of main memory; the plan, which is for the GPU's, stays")
        return plan
    killed = _as_kept(plan, begun)
    within = f" ({quantity(limit)} a process)" if limit else ""
    smaller = killed.smaller(f"was killed for want of memory{within}")
    if smaller is None:
        raise UserError(
            Reason.DEVICE_TOO_SMALL,
            f"the container's memory{within} is too small: the kernel killed the training with {killed.words}, and"
            f" {killed.bounds}; raise spec.resources.limits.memory and ask for a retry, shorten the longest rows"
            " (hyperparameters.maxLength), or lower lora.rank",
        )
    log.warning("%s", smaller.reason)
    remember(smaller, workspace, recipe_digest=recipe_digest, device=device)
    return smaller


def remember(plan: Plan, workspace: Path, *, recipe_digest: str, device: Device | None = None) -> None:
    """Keep a plan that was fallen back to for the attempts after this one.

    Args:
        plan: The plan.
        workspace: Folder of the object in the workspace claim.
        recipe_digest: What is asked.
        device: What the training runs on; a plan that a GPU's memory decided holds whatever that is when absent.
    """
    with replacing(workspace / FALLBACK_FILE) as temporary:
        temporary.write_text(Fallback(**_fields(plan, recipe_digest, device)).to_json())


def begin(plan: Plan, workspace: Path, *, recipe_digest: str, device: Device, pods: Sequence[str]) -> None:
    """Write down what is about to be trained by.

    Args:
        plan: The plan.
        workspace: Folder of the object in the workspace claim.
        recipe_digest: What is asked.
        device: What the training runs on.
        pods: Uids of the pods that train together.
    """
    begun = Begun(**_fields(plan, recipe_digest, device), pods=sorted({*pods} - {""}))
    with replacing(workspace / BEGUN_FILE) as temporary:
        temporary.write_text(begun.to_json())


def _fields(plan: Plan, recipe_digest: str, device: Device | None) -> dict[str, object]:
    return {
        "recipe_digest": recipe_digest,
        "micro_batch_size": plan.micro_batch_size,
        "checkpointing": plan.checkpointing,
        "compiled": plan.compiled,
        "reason": plan.reason,
        "memory_limit": _limit(device) if device else None,
    }


def _limit(device: Device) -> int | None:
    return None if device.is_gpu else device.free


def _read[F: Fallback](path: Path, model: type[F], plan: Plan, *, recipe_digest: str, limit: int | None) -> F | None:
    """Return what an earlier attempt wrote; None where it is of another recipe, or there is more memory by now."""
    try:
        found = model.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    if found.recipe_digest != recipe_digest or plan.freedom.batch_size % found.micro_batch_size:
        return None
    had = found.memory_limit
    return None if had is not None and (limit is None or limit > had) else found


def _as_kept(plan: Plan, kept: Fallback) -> Plan:
    choice = Choice(micro_batch=kept.micro_batch_size, checkpointing=kept.checkpointing, memory=None)
    return replace(plan, choice=choice, compiled=kept.compiled, tries_compiling=False, reason=kept.reason)
