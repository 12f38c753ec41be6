"""Whether the pods of a training can be made, asked before the first of them is."""

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.vocabulary import Reason

from whetstone_operator.controllers.pod_judgement import judge_pods
from whetstone_operator.resources.overlay import OverlayError
from whetstone_operator.resources.training import TRAIN, TrainingPlan, training_job
from whetstone_operator.runtime.outcome import Stalled
from whetstone_operator.runtime.reconcile import Work


async def require_pods(work: Work[LoRATrainingJob], plan: TrainingPlan) -> None:
    """Check what `spec.podTemplate` makes of the pods that train.

    Raises:
        Stalled: It says what users may not decide, or the API server refuses such pods.
        Waiting: The namespace forbids such pods now.
    """
    if plan.job.spec.pod_template is None:
        return
    try:
        job = training_job(plan, TRAIN)
    except OverlayError as error:
        raise Stalled(Reason.INVALID_SPEC, str(error)) from error
    _, refusal = await judge_pods(work, job["spec"]["template"], name=job["metadata"]["name"])
    if refusal is not None:
        raise refusal
