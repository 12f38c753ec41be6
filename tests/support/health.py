"""What Argo CD, with the health checks of the examples, and kstatus (Flux, `kubectl wait`'s kin) say of objects."""

import json
from functools import cache
from typing import Any, NamedTuple

import yaml
from whetstone_dev.commands import run
from whetstone_dev.gobuild import HEALTH, build
from whetstone_dev.places import CHECKOUT

CHECKS = CHECKOUT / "examples" / "gitops" / "argocd-cm.yaml"
KEY = "resource.customizations.health.whetstone.dev_"


class Health(NamedTuple):
    """Both words for one object."""

    argocd: str
    kstatus: str


HEALTHY, PROGRESSING, DEGRADED = (
    Health("Healthy", "Current"),
    Health("Progressing", "InProgress"),
    Health("Degraded", "Failed"),
)
SUSPENDED = Health("Suspended", "InProgress")
"""kstatus has no word for what rests by its user's wish."""


@cache
def health_checks() -> dict[str, str]:
    """Return the data for Argo CD's ConfigMap."""
    data: dict[str, str] = yaml.safe_load(CHECKS.read_text())["data"]
    return data


def judge(obj: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return status and message of an object, as `health` (Argo CD) and as `kstatus`."""
    answer = run([build(HEALTH), health_checks()[KEY + obj["kind"]]], feed=json.dumps([obj]))
    [verdict] = json.loads(answer)
    found: dict[str, dict[str, str]] = verdict
    return found


def health_of(obj: dict[str, Any]) -> Health:
    """Return what both say of an object."""
    verdict = judge(obj)
    return Health(verdict["health"]["status"], verdict["kstatus"]["status"])
