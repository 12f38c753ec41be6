"""States of pods as a kubelet would tell them. Pure."""

from typing import Final

from integration.api import Object
from integration.world import TIME
from whetstone_api.reports import Outcome, TerminationReport

_READY: Final = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}


def engine_state(address: str) -> Object:
    """Return the status of an engine pod that is ready.

    Args:
        address: Address of its sidecar.
    """
    place = {"podIP": address, "podIPs": [{"ip": address}]}
    return {"phase": "Running", "startTime": TIME, "conditions": [_READY], **place}


def job_pod_state(pod: Object, result: Object | None) -> Object:
    """Return the status of a Job's pod.

    Args:
        pod: The pod.
        result: What it has ended with; None while it is at work.
    """
    container = pod["spec"]["containers"][0]
    state: Object = {"running": {"startedAt": TIME}}
    if result is not None:
        report = TerminationReport(outcome=Outcome.SUCCEEDED, reason="Succeeded", message="", result=result)
        ended = {"exitCode": 0, "reason": "Completed", "message": report.to_termination_message()}
        state = {"terminated": {**ended, "startedAt": TIME, "finishedAt": TIME}}
    told = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {
        "phase": "Running" if result is None else "Succeeded",
        "startTime": TIME,
        "conditions": [_READY] if result is None else [],
        "containerStatuses": [{**told, "ready": result is None, "state": state}],
    }
