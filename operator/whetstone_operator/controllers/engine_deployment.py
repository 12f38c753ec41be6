"""The Deployment of a ModelServer's engine pods: applied only when its pods can be made."""

import re

from whetstone_api.modelserver import ModelServer
from whetstone_api.vocabulary import Annotation, Reason

from whetstone_operator.controllers.chat_template import read_chat_template
from whetstone_operator.controllers.engine_upgrade import (
    Origin,
    is_under_way,
    is_upgrade,
    upgrade_waits,
    with_origin,
)
from whetstone_operator.controllers.hold import HeldBack, holds_back
from whetstone_operator.controllers.pod_judgement import FORBIDDEN_POLL_SECONDS, judge_pods
from whetstone_operator.kinds import DEPLOYMENT
from whetstone_operator.kube import KubeError, Object
from whetstone_operator.resources import modelserver as build
from whetstone_operator.resources import source_volumes
from whetstone_operator.resources.overlay import OverlayError
from whetstone_operator.resources.pod_template import overlay_digest
from whetstone_operator.runtime.outcome import Interrupt, Stalled, Waiting
from whetstone_operator.runtime.reconcile import Work

_POD_NAME = re.compile(r' "[^"]*-engine-[^"]*"')
_NO_IMAGE_VOLUMES = (
    "spec.model.imageVolume: this cluster drops volumes that are images (feature gate ImageVolume of API server and"
    " kubelet, Kubernetes 1.33 or newer with containerd 2.1 or CRI-O); leave it out, and the model is fetched"
)


async def apply_deployment(
    work: Work[ModelServer], server: ModelServer, *, form: str | None = None, held: bool = False
) -> tuple[Object, Interrupt | None]:
    """Apply the Deployment, unless `spec.podTemplate` is refused: then the pods that run go on as they are.

    A chat template that is not there any more changes nothing either: the pods keep theirs.

    Args:
        work: The reconcile.
        server: The server with its sources pinned and its capacity in numbers.
        form: What the Deployment remembers of a server whose capacity follows its adapters.
        held: Whether a benchmark measures the server: a Deployment that would change is left as it is.

    Returns:
        The Deployment as stored, and what is wrong with the wanted one.

    Raises:
        Interrupt: There is no Deployment yet, and none can be made.
    """
    kube = work.context.kube
    overlay, engine = server.spec.pod_template, server.spec.engine
    stored: Object | None = None
    problem: Interrupt | None = None
    with_image = server.spec.model.image_volume is not None
    if not work.new or overlay is not None or engine.chat_template is not None or with_image:
        stored = await kube.get(DEPLOYMENT, work.namespace, build.deployment_name(server))
    try:
        chat_template = await read_chat_template(work)
    except Interrupt as interrupt:
        _, problem = _kept(stored, interrupt)
        chat_template = _annotation(stored, Annotation.CHAT_TEMPLATE)
        if chat_template is None:
            return _kept(stored, problem)
    try:
        wanted = build.build_deployment(server, work.context.settings, chat_template=chat_template, form=form)
    except OverlayError as error:
        return _kept(stored, Stalled(Reason.INVALID_SPEC, str(error)))
    origin = Origin.wanted(work.resource, work.context.settings, wanted["spec"]["template"])
    turn = is_under_way(stored)
    wanted = with_origin(wanted, origin, upgrade=turn)
    if held and stored is not None and holds_back(stored, wanted):
        return stored, HeldBack(Reason.BENCHMARK_RUNNING, "a change of the Deployment waits for a benchmark")
    overlaid = overlay is not None and _annotation(stored, Annotation.POD_TEMPLATE) != overlay_digest(overlay)
    if overlaid or (with_image and not source_volumes.has_model_image(stored)):
        refusal = await _judge(work, wanted)
        if refusal is not None:
            return _kept(stored, refusal)
    if stored is not None and is_upgrade(stored, wanted, origin=origin, server=server):
        upgrades = work.context.upgrades
        if not upgrades.take(work.key):
            waits = upgrade_waits(upgrades.before(work.key), limit=upgrades.limit)
            return await _scaled(work, stored, wanted), problem or waits
        wanted = with_origin(wanted, origin, upgrade=True)
    elif not turn:
        work.context.upgrades.leave(work.key)
    applied = await _applied(work, wanted, stored)
    status = applied.get("status") or {}
    if int(status.get("updatedReplicas", 0)) < int(applied["spec"].get("replicas", 1)):
        problem = problem or refused_pods(applied)
    return applied, problem


async def _applied(work: Work[ModelServer], wanted: Object, stored: Object | None) -> Object:
    try:
        return await work.context.kube.apply(wanted, look=not work.new, stored=stored)
    except KubeError:
        work.context.upgrades.leave(work.key)
        raise


async def _scaled(work: Work[ModelServer], stored: Object, wanted: Object) -> Object:
    """Give a Deployment its number of pods and nothing else."""
    replicas = wanted["spec"]["replicas"]
    if stored["spec"].get("replicas") == replicas:
        return stored
    # When somebody else has changed it meanwhile, its event brings the next look.
    return await work.context.kube.merge(stored, {"spec": {"replicas": replicas}}) or stored


def refused_pods(deployment: Object) -> Interrupt | None:
    """Return why a Deployment cannot make its pods: a quota or a policy of the namespace forbids it."""
    status = deployment.get("status") or {}
    current = status.get("observedGeneration") == deployment["metadata"].get("generation")
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    failure = conditions.get("ReplicaFailure", {})
    if not current or failure.get("status") != "True":
        return None
    # Each try has another name, and would give the status another text.
    words = _POD_NAME.sub("", str(failure.get("message", "")))
    return Waiting(Reason.APPLY_REFUSED, f"the API server refuses engine pods: {words}", FORBIDDEN_POLL_SECONDS)


def _kept(stored: Object | None, refusal: Interrupt) -> tuple[Object, Interrupt]:
    if stored is None:
        raise refusal
    return stored, refusal


def _annotation(deployment: Object | None, name: Annotation) -> str | None:
    """Return an annotation of the pods that a Deployment makes."""
    metadata = deployment["spec"]["template"].get("metadata") or {} if deployment else {}
    value: str | None = (metadata.get("annotations") or {}).get(name)
    return value


async def _judge(work: Work[ModelServer], deployment: Object) -> Interrupt | None:
    """Return why the API server would refuse a Deployment's pods, or make others of them.

    With a refused Deployment, or pods that it cannot make, a rollout would already have taken pods away.
    """
    template = deployment["spec"]["template"]
    judged, refusal = await judge_pods(work, template, name=deployment["metadata"]["name"])
    if judged is not None and source_volumes.lost_model_image(template["spec"], judged["spec"]):
        return Stalled(Reason.IMAGE_VOLUMES_UNSUPPORTED, _NO_IMAGE_VOLUMES)
    return refusal
