"""What users lay over the pods of a training. Pure.

All of it goes to the pods that train. The pods of Prepare and Merge hold no device: what would put them where devices
are, or gives them one, is left out there.
"""

from typing import Any

from whetstone_api.pod_template import PodTemplate

from whetstone_operator.resources.job_pod import CONTAINER
from whetstone_operator.resources.pod_template import Policy, lay_over

TRAINING_PODS = Policy(
    pods="training pods",
    main=CONTAINER,
    containers={CONTAINER: frozenset({"name", "env", "resources", "volumeMounts"})},
    variables=(
        "PYTHON.*|LD_.*|GLIBC_TUNABLES|GCONV_PATH|PATH|HOME|USER|LOGNAME|WHETSTONE_.*|KUBERNETES_.*|HF_HUB_OFFLINE"
        "|(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|JOB_COMPLETION_INDEX"
    ),
    grace="it is what a checkpoint may take",
)
OF_TRAINING = frozenset({"nodeSelector", "affinity", "topologySpreadConstraints", "runtimeClassName", "resourceClaims"})
"""Fields of a pod's spec that only the pods that train get. Tolerations only allow a place: all of them get those."""


def with_pod_template(manifest: dict[str, Any], overlay: PodTemplate | None, *, trains: bool) -> dict[str, Any]:
    """Return the manifest of a Job with a user's part laid over its pods.

    Args:
        manifest: Ours.
        overlay: The user's part; None: ours as it is.
        trains: Whether its pods train.

    Raises:
        OverlayError: The part says what users may not decide.
    """
    if overlay is None:
        return manifest
    # What it must not say is refused whichever pods it is for.
    template = lay_over(manifest["spec"]["template"], overlay, policy=TRAINING_PODS)
    if not trains:
        template = lay_over(manifest["spec"]["template"], _without_devices(overlay), policy=TRAINING_PODS)
    return {**manifest, "spec": {**manifest["spec"], "template": template}}


def _without_devices(overlay: PodTemplate) -> PodTemplate:
    spec = {name: value for name, value in (overlay.spec or {}).items() if name not in OF_TRAINING}
    if "containers" in spec:
        spec["containers"] = [
            {name: value for name, value in one.items() if one["name"] != CONTAINER or name != "resources"}
            for one in spec["containers"]
        ]
    return overlay.model_copy(update={"spec": spec})
