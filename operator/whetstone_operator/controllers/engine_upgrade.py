"""Whether an upgrade of the operator, and nothing else, would restart a server's engines. Such servers take turns.

A Deployment tells what it was made by (images and settings of the operator), what for (the part of the spec that
restarts engines), and as what (its pods). Other pods for the same spec by another operator are an upgrade. A change by
the user, or room that adapters need, restarts engines anyway, and at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from whetstone_api.digests import canonical_digest
from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Annotation, ConditionType, Reason

from whetstone_operator.kinds import Key
from whetstone_operator.kube import Object
from whetstone_operator.resources.capacity import read_slots, reserve
from whetstone_operator.runtime.conditions import Conditions
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.unchanged import holds
from whetstone_operator.settings import Settings

HOT = frozenset({"replicas", "adapters", "adapterSelector", "aliases", "apiKeys", "limits"})
"""Fields of a spec that never restart an engine."""
_SHORT = 12


class UpgradeWaits(Waiting):
    """Other servers are restarted first; the server itself goes on as it is."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a Deployment was made from, as short digests.

    Args:
        by: The operator's part.
        of: The spec's part.
        pods: Its pods.
    """

    by: str
    of: str
    pods: str

    @classmethod
    def wanted(cls, server: ModelServer, settings: Settings, template: Mapping[str, Any]) -> Self:
        """Return the origin of the pods that this operator makes.

        Args:
            server: The server as its user wrote it.
            settings: What the administrator decided.
            template: The pods.
        """
        # Without defaults: a version that knows more fields finds the same spec.
        spec = server.spec.model_dump(by_alias=True, exclude_defaults=True, mode="json")
        spec = {name: value for name, value in spec.items() if name not in HOT}
        spec["model"].pop("defaultSampling", None)
        return cls(
            by=_short(settings.engine_digest),
            of=_short(canonical_digest(spec)),
            pods=_short(canonical_digest(template)),
        )

    @classmethod
    def read(cls, deployment: Mapping[str, Any]) -> Self | None:
        """Return what a Deployment tells; None where it was made by an operator that did not write it."""
        parts = _annotations(deployment).get(Annotation.ENGINE_ORIGIN, "").split(".")
        return cls(by=parts[0], of=parts[1], pods=parts[2]) if len(parts) == 3 else None

    def __str__(self) -> str:
        return f"{self.by}.{self.of}.{self.pods}"


def is_upgrade(stored: Object, wanted: Object, *, origin: Origin, server: ModelServer) -> bool:
    """Return whether applying a Deployment would restart engines that serve, for an upgrade alone.

    Args:
        stored: The Deployment as it is.
        wanted: As it would be.
        origin: What the wanted one is made from.
        server: The server with its capacity in numbers.
    """
    if not int((stored.get("status") or {}).get("availableReplicas") or 0):
        return False
    before = Origin.read(stored)
    if before is None:
        return not holds(stored["spec"]["template"], wanted["spec"]["template"])
    same_user = before.of == origin.of and not _needs_room(stored, server)
    return before.by != origin.by and before.pods != origin.pods and same_user


def is_under_way(stored: Object | None) -> bool:
    """Return whether it is a server's turn, and its engines are not all back yet."""
    if stored is None or Annotation.UPGRADE not in _annotations(stored):
        return False
    status, wanted = stored.get("status") or {}, int(stored["spec"].get("replicas", 1))
    current = status.get("observedGeneration") == stored["metadata"].get("generation")
    counts = [int(status.get(name) or 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return not (current and counts == [wanted] * 3)


def with_origin(deployment: Object, origin: Origin, *, upgrade: bool) -> Object:
    """Return a Deployment that tells what it is made from, and whether it is its server's turn."""
    marks = {str(Annotation.ENGINE_ORIGIN): str(origin), **({str(Annotation.UPGRADE): origin.by} if upgrade else {})}
    annotations = {**_annotations(deployment), **marks}
    return {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}}


def upgrade_waits(under_way: Sequence[Key] | None, *, limit: int) -> UpgradeWaits:
    """Return that a server waits.

    Args:
        under_way: Servers whose turn it is; None for one that is far from its own.
        limit: Servers at a time.
    """
    if limit == 0:
        why = "for a change of the spec that restarts them (the chart's operator.engineUpgrades is 0)"
    elif under_way is None:
        why = f"until many ModelServers are ready with it (the chart's operator.engineUpgrades is {limit})"
    else:
        names = ", ".join(f"{key.namespace}/{key.name}" for key in under_way)
        why = f"until ModelServer {names} is ready with it (the chart's operator.engineUpgrades is {limit})"
    return UpgradeWaits(Reason.UPGRADE_WAITS, f"engines go on as an earlier operator made them: an upgrade waits {why}")


def tell_upgrade(conditions: Conditions, waits: UpgradeWaits | None) -> None:
    """Set the condition Outdated of a server, or take it away."""
    if waits is None:
        conditions.remove(ConditionType.OUTDATED)
    else:
        conditions.set(ConditionType.OUTDATED, True, reason=waits.reason, message=waits.message)


def _needs_room(stored: Object, server: ModelServer) -> bool:
    """Return whether adapters need more than engines have reserved, where the capacity follows them."""
    if Annotation.ENGINE_FORM not in _annotations(stored):
        return False
    containers = stored["spec"]["template"]["spec"]["containers"]
    running = read_slots(next((one.get("args") or [] for one in containers if one["name"] == "engine"), []))
    wanted = reserve(server.spec.adapter_capacity)
    return running is not None and (wanted.rank > running.rank or wanted.loras > running.loras)


def _annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_SHORT]
