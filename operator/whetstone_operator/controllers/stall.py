"""A training that hangs: its process lives and makes no step. Its pods are started again, once.

What is judged are the reports of the trainer, one a step. Silence counts only while a pod runs, from the moment that
this operator could hear of a step at all, and by its steady clock. Where no report comes through, the pod's log
decides: a step that it tells of, later than the last one heard of, shows that the training goes on. The first stall is
counted in the status, before anything is done, and the Job that takes the hung one's place carries the count: so an
operator that dies in between restarts no pod twice.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from whetstone_api.loratrainingjob import LoRATrainingJob
from whetstone_api.reports import ProgressReport
from whetstone_api.training_result import TrainingProgress
from whetstone_api.training_stall import StallSpec, last_step, usual_limit
from whetstone_api.vocabulary import Annotation, Reason

from whetstone_operator.controllers.job_outcome import LAST_WORDS, Failed, is_finished
from whetstone_operator.controllers.run_to_end import fail
from whetstone_operator.kinds import JOB, POD
from whetstone_operator.resources.distributed import JOB_NAME_LABEL
from whetstone_operator.resources.job_pod import CONTAINER
from whetstone_operator.runtime.clock import from_rfc3339, to_rfc3339
from whetstone_operator.runtime.outcome import Waiting
from whetstone_operator.runtime.reconcile import Work

LOG_LINES = 2000
"""Lines of the log in which a step is looked for: transformers writes one for every step beside ours."""
PHASE = "Train"
_SOON_SECONDS = 1.0


async def watch_steps(work: Work[LoRATrainingJob], job: Mapping[str, Any] | None) -> None:
    """Find out whether the training hangs, and start it again if it does.

    Args:
        work: The training.
        job: Its Job Train, if there is one.

    Raises:
        Waiting: It hangs for the first time, and its Job makes way for another one.
        Stalled: It hangs for the second time.
    """
    board = work.context.board
    if job is None or is_finished(job) or job["spec"].get("suspend"):
        return board.excuse(work.key)
    name, counted = job["metadata"]["name"], stalls_before(job)
    if int(work.status.get("stalls") or 0) > counted:
        await work.context.kube.delete(JOB, work.namespace, name, children_first=True)
        message = f"Job {name} has made no step for too long; it makes way for another one, which goes on from there"
        raise Waiting(Reason.TRAINING_STALLED, message, _SOON_SECONDS)
    if not work.status.get("progress") or not int(job.get("status", {}).get("ready") or 0):
        return board.excuse(work.key)
    progress = TrainingProgress.model_validate(work.status["progress"])
    if progress.phase != PHASE:
        return None
    allowed = allowed_seconds(work.resource.spec.stall, progress)
    silent = board.silence(work.key)
    if silent <= allowed:
        return work.look_again(allowed - silent + _SOON_SECONDS)
    pods = await work.context.kube.list(POD, work.namespace, {JOB_NAME_LABEL: name})
    pod, silent = running_pod(pods, silent=silent, now=work.now)
    if pod is None or silent <= allowed:
        return work.look_again(allowed - silent + _SOON_SECONDS)
    logs = await work.context.kube.logs(namespace=work.namespace, pod=pod, container=CONTAINER, tail_lines=LOG_LINES)
    if (unheard := last_step(logs) or 0) > (progress.step or 0):
        board.put(work.key, ProgressReport(phase=PHASE, step=unheard, max_steps=progress.max_steps))
        work.status["progress"] = _advanced(progress, unheard, now=work.now).to_wire()
        return work.look_again(allowed + _SOON_SECONDS)
    words = f"no step for {silent / 60:.0f} minutes after step {progress.step or 0}"
    said = f"; the last lines of its log: {logs.strip()[-LAST_WORDS:]}" if logs.strip() else ""
    if counted:
        message = f"pod {pod} made {words}, as another one before it{said}"
        raise fail(work, Failed(Reason.TRAINING_STALLED, message))
    work.status["stalls"] = counted + 1
    message = f"pod {pod} made {words}; it is started again from the last checkpoint{said}"
    raise Waiting(Reason.TRAINING_STALLED, message, _SOON_SECONDS)


def stalls_before(job: Mapping[str, Any]) -> int:
    """Return how often the training had hung before a Job was made."""
    return int((job["metadata"].get("annotations") or {}).get(Annotation.STALLS) or 0)


def allowed_seconds(spec: StallSpec | None, progress: TrainingProgress) -> float:
    """Return for how many seconds there may be no step.

    Args:
        spec: What the user says; without it, the time that a step has taken so far decides.
        progress: Where the training is.
    """
    if spec is not None:
        return spec.minutes * 60.0
    left = (progress.max_steps or 0) - (progress.step or 0)
    pace = (progress.eta_seconds or 0) / left if left > 0 else 0.0
    return usual_limit(pace)


def running_pod(pods: list[dict[str, Any]], *, silent: float, now: datetime) -> tuple[str | None, float]:
    """Return the pod that runs, the youngest of several, and for how many seconds at most it has been silent.

    Args:
        pods: Pods of the Job.
        silent: Seconds since anything was heard.
        now: The time.
    """
    started = [
        (from_rfc3339(state["running"]["startedAt"]), str(pod["metadata"]["name"]))
        for pod in pods
        for container in pod.get("status", {}).get("containerStatuses") or []
        if container["name"] == CONTAINER and "running" in (state := container.get("state") or {})
    ]
    if not started:
        return None, silent
    since, name = max(started)
    age = (now - since).total_seconds()
    # One that is to begin yet was started by another clock: it tells nothing.
    return name, min(silent, age) if age >= 0 else silent


def _advanced(progress: TrainingProgress, step: int, *, now: datetime) -> TrainingProgress:
    """Return progress of which only the step is known."""
    percent = min(100, 100 * step // progress.max_steps) if progress.max_steps else progress.percent
    return progress.model_copy(update={"step": step, "percent": percent, "updated_at": to_rfc3339(now)})
