"""What keeps pods from starting that the demo can name in one line: images that are not pulled, claims not bound."""

import time
from collections.abc import Callable
from typing import Any

from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.watch import PATIENCE_SECONDS, DemoError

PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable"})
STORAGE_HINT = "name a class that makes ReadWriteMany volumes, STORAGE_CLASS=..."
PULL_HINT = "the nodes themselves must reach the registry and may pull from it"


class Patience:
    """Gives a namespace's pods some time to get over what keeps them from starting.

    Args:
        kube: The cluster.
        namespace: Where the pods are.
        clock: Seconds that only grow.
    """

    def __init__(self, kube: Kube, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._since: float | None = None

    def check(self) -> None:
        """Look once.

        Raises:
            DemoError: Something has been in the way for as long as a stalled object would be waited for.
        """
        known = obstacle(self._kube, self._namespace)
        if known is None:
            self._since = None
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since > PATIENCE_SECONDS:
            raise DemoError(known)


def obstacle(kube: Kube, namespace: str) -> str | None:
    """Return what keeps a pod of a namespace from starting; None when nothing is known."""
    pods = kube.list("v1", "Pod", namespace=namespace)
    claims = kube.list("v1", "PersistentVolumeClaim", namespace=namespace)
    events = kube.list("v1", "Event", namespace=namespace)
    return image_obstacle(pods) or claim_obstacle(claims, events)


def image_obstacle(pods: list[dict[str, Any]]) -> str | None:
    """Return which pod cannot pull which image."""
    for pod in pods:
        status = pod.get("status") or {}
        for container in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in PULLING:
                words = " ".join((waiting.get("message") or waiting["reason"]).split())
                return f"pod {pod['metadata']['name']} cannot pull {container['image']}: {words}; {PULL_HINT}"
    return None


def claim_obstacle(claims: list[dict[str, Any]], events: list[dict[str, Any]]) -> str | None:
    """Return which claim no volume is made for, in the provisioner's words."""
    pending = {item["metadata"]["name"]: item for item in claims if item["status"].get("phase") == "Pending"}
    for event in reversed(events):
        involved = event["involvedObject"]
        claim = pending.get(involved.get("name") or "")
        if claim and involved["kind"] == "PersistentVolumeClaim" and event.get("reason") == "ProvisioningFailed":
            words = " ".join(event["message"].split())
            made_by = claim["spec"].get("storageClassName")
            return f"storage class {made_by} makes no volume for claim {involved['name']}: {words}; {STORAGE_HINT}"
    return None
