"""What a trial pod's state means for its trial."""

from typing import Any

import pytest
from whetstone_agent.environment.errors import (
    PodStartError,
    SandboxEvictedError,
    SandboxExpiredError,
    SandboxLostError,
    SandboxOutOfDiskError,
    SandboxOutOfMemoryError,
)
from whetstone_agent.environment.states import ending, is_running, is_scheduled, words


def pod(*, phase: str = "Running", state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """Return a pod with one container `main`."""
    container = {"name": "main", "state": state or {"running": {}}}
    return {
        "metadata": {"name": "p", **status.pop("metadata", {})},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "containerStatuses": [container], **status},
    }


def terminated(reason: str) -> dict[str, Any]:
    """Return the state of a container that ended."""
    return {"terminated": {"reason": reason, "exitCode": 137}}


OWN_LIMIT = 'Container main exceeded its local ephemeral storage limit "16Mi". '
POD_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 16Mi. "
NODE_FULL = "The node was low on resource: ephemeral-storage. Container main was using 9Mi, request is 0."
DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for q"}]


def test_a_running_pod_has_no_ending() -> None:
    assert ending(pod(), "p") is None
    setup = {"name": "tools", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    assert ending(pod(initContainerStatuses=[setup]), "p") is None


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (None, SandboxLostError, "is gone"),
        (pod(metadata={"deletionTimestamp": "t"}), SandboxLostError, "phase Running"),
        (pod(state=terminated("Error")), SandboxLostError, "Error: exit code 137"),
        (pod(state=terminated("OOMKilled")), SandboxOutOfMemoryError, "memory_mb"),
        (pod(phase="Failed", reason="Evicted", message="low on disk"), SandboxEvictedError, "low on disk"),
        (pod(metadata={"deletionTimestamp": "t"}, conditions=DISRUPTED), SandboxEvictedError, "PreemptionByScheduler"),
        (pod(phase="Failed", reason="Evicted", message=OWN_LIMIT), SandboxOutOfDiskError, "storage_mb"),
        (pod(phase="Failed", reason="Evicted", message=POD_LIMIT), SandboxOutOfDiskError, "ephemeral-storage"),
        (pod(phase="Failed", reason="Evicted", message=NODE_FULL), SandboxEvictedError, "low on resource"),
        (pod(phase="Failed", reason="DeadlineExceeded"), SandboxExpiredError, "time limits"),
    ],
)
def test_each_ending_is_told_apart(state: dict[str, Any] | None, kind: type[Exception], text: str) -> None:
    error = ending(state, "p")
    assert type(error) is kind
    assert text in str(error)


def test_a_pod_without_a_node_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    waiting = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending", "conditions": [condition]}}
    assert not is_scheduled(waiting)
    assert words(waiting) == "Unschedulable: 0/1 nodes"


def test_a_container_that_can_never_start_is_not_waited_for() -> None:
    assert is_running(pod(), "main")
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}
    assert not is_running(pod(phase="Pending", state=pulling), "main")
    with pytest.raises(PodStartError, match="InvalidImageName"):
        is_running(pod(phase="Pending", state={"waiting": {"reason": "InvalidImageName"}}), "main")
    with pytest.raises(PodStartError, match="deleted before it ran"):
        is_running(pod(metadata={"deletionTimestamp": "t"}), "main")
